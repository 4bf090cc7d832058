"""Training with the weights of pairs: gradients through weighted edges, and pairs drawn by their weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError
from dgcf.random import uniform
from dgcf.train import TrainConfig, Trainer, build, resolve, train
from dgcf.train.engines import pick_engine
from dgcf.train.engines.cpu import CpuEngine
from dgcf.train.engines.device_batches import LaidOutEpochs
from dgcf.train.engines.eager import EagerEngine
from dgcf.train.sampler import Sampler
from tests.models.test_pair_weights import normalised
from tests.train.test_sampler import pairs_of, random_pairs


def with_weights(pairs: Pairs, seed: int = 0) -> Pairs:
    """The pairs with weights from 0 to 6, of which some are 0."""
    return replace(pairs, weight=np.floor(7 * uniform(seed, "test/weights", len(pairs))).astype(np.float32))


@pytest.fixture
def weighted(dataset: Dataset) -> Dataset:
    return replace(dataset, train=with_weights(dataset.train))


def trainer_of(dataset: Dataset, model: str = "lightgcn", **settings: Any) -> Trainer:
    recipe = resolve(model, preset="paper", settings={"dim": 6, "layers": 2, "batch_size": 64, **settings})
    built, propagation = build(dataset, recipe, seed=1)
    return Trainer(built, propagation, dataset.train, recipe.train, seed=1)


# -- edges ----------------------------------------------------------------------------------------------------------


def test_gradients_through_weighted_edges_equal_those_of_a_dense_model(weighted: Dataset) -> None:
    trainer = trainer_of(weighted, edge_weights=True, l2=0.0)
    assert trainer.propagation is not None
    batch = trainer.sampler.batch(1, 0)
    L = torch.from_numpy(normalised(weighted.train))

    def loss(nodes: torch.Tensor) -> torch.Tensor:
        users, items = nodes[: weighted.n_users], nodes[weighted.n_users :]
        better = (users[batch.users] * items[batch.positives]).sum(1)
        worse = (users[batch.users] * items[batch.negatives.flatten()]).sum(1)
        return torch.nn.functional.softplus(worse - better).mean()

    dense = trainer.model.layer0.detach().double().requires_grad_()
    loss((dense + L @ dense + L @ L @ dense) / 3).backward()
    model = trainer.model.double()
    loss(model(trainer.propagation.to(dtype=torch.float64))).backward()
    assert dense.grad is not None
    assert model.layer0.grad is not None
    assert dense.grad.abs().max() > 1e-4
    torch.testing.assert_close(model.layer0.grad, dense.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"edge_dropout": 0.3}], ids=["whole", "dropout"])
def test_fused_steps_with_weighted_edges_equal_those_of_autograd(weighted: Dataset, settings: dict[str, Any]) -> None:
    fused, plain = (trainer_of(weighted, "dgcf", edge_weights=True, **settings) for _ in range(2))
    engine = pick_engine([fused])
    assert type(engine) is CpuEngine
    for stepping in (engine, EagerEngine(plain)):
        stepping.begin_epoch(1, 0)
        for batch in range(4):
            stepping.step(batch)
    for name, values in fused.model.state_dict().items():
        torch.testing.assert_close(values, plain.model.state_dict()[name], rtol=1e-4, atol=1e-6)


def test_weights_are_not_used_without_a_setting(dataset: Dataset, weighted: Dataset) -> None:
    recipe = resolve("dgcf", preset="plain", settings={"dim": 4, "layers": 2, "epochs": 2, "batch_size": 64})
    states = [train(data, recipe, device="cpu").model.state_dict() for data in (dataset, weighted)]
    assert all(torch.equal(values, states[1][name]) for name, values in states[0].items())
    for setting in ("edge_weights", "weighted_sampling"):
        other = resolve(
            "dgcf", preset="plain", settings={"dim": 4, "layers": 2, "epochs": 2, "batch_size": 64, setting: True}
        )
        assert not torch.equal(train(weighted, other, device="cpu").model.layer0, states[0]["layer0"])


# -- pairs drawn by their weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("laid_out", [False, True], ids=["batches", "epochs"])
def test_pairs_are_drawn_in_proportion_to_their_weights(laid_out: bool) -> None:
    pairs = with_weights(random_pairs(1, n_users=6, n_items=12, density=0.5), seed=2)
    assert pairs.weight is not None
    sampler = Sampler(pairs, 16, weighted=True, seed=2)
    source = LaidOutEpochs(sampler) if laid_out else sampler
    batches = [source.batch(e, b) for e in range(1, 2001) for b in range(sampler.batches_per_epoch)]
    drawn = torch.cat([batch.users * 12 + batch.positives for batch in batches]).numpy()
    assert len(drawn) == 2000 * len(pairs)
    counts = np.bincount(np.searchsorted(pairs.keys(), drawn), minlength=len(pairs))
    expected = pairs.weight / pairs.weight.sum(dtype=np.float64) * len(drawn)
    nothing = pairs.weight == 0
    assert nothing.any()
    assert not counts[nothing].any()
    assert np.abs((counts - expected)[~nothing] / np.sqrt(expected[~nothing])).max() < 4.5


def test_users_with_every_item_are_not_drawn() -> None:
    pairs = pairs_of([[0, 1, 2], [1], [0, 2]], 3)
    weight = np.array([9, 9, 9, 1, 2, 1], dtype=np.float32)
    sampler = Sampler(replace(pairs, weight=weight), 30_000, weighted=True)
    drawn = [sampler.batch(epoch, 0) for epoch in range(1, 2001)]
    keys = torch.cat([batch.users * 3 + batch.positives for batch in drawn]).numpy()
    counts = np.bincount(keys, minlength=9) / len(keys)
    np.testing.assert_allclose(counts[[4, 6, 8]], [0.25, 0.5, 0.25], atol=0.03)
    assert not counts[:3].any()


def test_weighted_sampling_that_cannot_be_done_is_refused(dataset: Dataset, weighted: Dataset) -> None:
    with pytest.raises(DataError, match=r"weighted_sampling needs a weight of each pair, .*--count-repeats"):
        trainer_of(dataset, weighted_sampling=True)
    nothing = np.zeros(len(dataset.train), dtype=np.float32)
    with pytest.raises(DataError, match="weighted_sampling needs weights above 0"):
        trainer_of(replace(weighted, train=replace(weighted.train, weight=nothing)), weighted_sampling=True)
    # Only the user who has every item has weights, and is skipped.
    pairs = replace(pairs_of([[0, 1], [0]], 2), weight=np.array([1, 1, 0], dtype=np.float32))
    with pytest.raises(DataError, match="weighted_sampling has no pair with a weight above 0 to draw"):
        Sampler(pairs, 4, weighted=True)
    for others in ({"sampler": "user"}, {"recency": 1.0}):
        with pytest.raises(ConfigError, match="weighted_sampling draws pairs by their weights alone"):
            TrainConfig(weighted_sampling=True, **others)  # type: ignore[arg-type]
