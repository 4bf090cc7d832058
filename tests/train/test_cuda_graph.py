"""Recorded GPU steps train like the CPU: the same batches, the same edges left out, the same weights up to rounding."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
import torch

from dgcf.data import Dataset, load
from dgcf.graph import build_propagation
from dgcf.models import entry
from dgcf.random import bits, uniform
from dgcf.train import Recipe, SeedJob, Trained, resolve, train, train_many
from dgcf.train.config import TrainConfig
from dgcf.train.engines import device_batches
from dgcf.train.engines.device_batches import DeviceBatches, LaidOutEpochs
from dgcf.train.engines.device_random import device_bits, device_uniform
from dgcf.train.loop import TrainingLoop
from dgcf.train.sampler import Sampler
from dgcf.train.trainer import Trainer
from tests.ordering import dataset_in_order

gpu = pytest.mark.gpu


@cache
def planted() -> Dataset:
    """A dataset with the order and the weights of its pairs."""
    dataset = dataset_in_order(load("planted"))
    weight = uniform(0, "test/weights", len(dataset.train)).astype(np.float32)
    return replace(dataset, train=replace(dataset.train, weight=weight))


@pytest.mark.parametrize("sampling", ["interaction", "user"])
@pytest.mark.parametrize("size", [128, 3000])
@pytest.mark.parametrize(("shared", "popularity"), [(None, 0.0), (20, 0.0), (20, 0.7)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("by", [{}, {"recency": 0.7}, {"weighted": True}], ids=["alike", "recency", "weights"])
def test_device_batches_equal_sampler_batches(
    sampling: Literal["interaction", "user"],
    size: int,
    shared: int | None,
    popularity: float,
    by: dict[str, Any],
    device: str,
) -> None:
    """On any device, the CPU included: whole epochs are the batches of the sampler, end to end."""
    if "weighted" in by and sampling == "user":
        pytest.skip("weights are of pairs, not of users")
    pairs = planted().train
    drawn: dict[str, Any] = {"shared": shared, "popularity": popularity, "sampling": sampling, **by}
    samplers = [Sampler(pairs, size, per_pair=2, seed=seed, **drawn) for seed in (3, 4)]
    epochs = DeviceBatches(samplers, torch.device(device))
    users, positives, negatives = (part.cpu() for part in epochs.lay_out(epochs.draw(4)))
    for lane, sampler in enumerate(samplers):
        batches = [sampler.batch(4, number) for number in range(sampler.batches_per_epoch)]
        assert torch.equal(users[lane], torch.cat([batch.users for batch in batches]))
        assert torch.equal(positives[lane], torch.cat([batch.positives for batch in batches]))
        join = torch.cat if shared is None else torch.stack
        assert torch.equal(negatives[lane], join([batch.negatives for batch in batches]))
        assert [len(batch) for batch in batches] == sampler.batch_sizes


@pytest.mark.parametrize("size", [128, 3000])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_negatives_drawn_on_the_device_equal_the_hosts(size: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = load("planted").train
    samplers = [Sampler(pairs, size, per_pair=3, seed=seed) for seed in (3, 4)]
    by_host = DeviceBatches(samplers, torch.device("cpu"))
    on_device = DeviceBatches(samplers, torch.device(device))
    wanted = by_host.lay_out(by_host.draw(4))
    monkeypatch.setattr(device_batches, "HOST_DRAWS", 1000)
    found = on_device.lay_out(on_device.draw(4)._replace(negatives=None))
    assert device == "cpu" or on_device.draw(4).negatives is None
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize(("n", "positions"), [(1, range(3)), (1001, range(5, 9)), (64, range(2**33, 2**33 + 2))])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_device_bits_equal_numpys(n: int, positions: range, device: str) -> None:
    place = torch.device(device)
    words = device_bits(7, "negatives", n, positions, place).cpu().numpy().view(np.uint64)
    assert np.array_equal(words, np.stack([bits(7, "negatives", n, position) for position in positions]))
    chances = device_uniform(7, "negatives", n, positions, place).cpu().numpy()
    assert np.array_equal(chances, np.stack([uniform(7, "negatives", n, position) for position in positions]))


@pytest.mark.parametrize("size", [100, 128, 10_000])
def test_laid_out_batches_equal_sampler_batches(size: int) -> None:
    pairs = load("planted").train
    sampler = Sampler(pairs, size, per_pair=3, seed=5)
    laid_out = LaidOutEpochs(sampler)
    assert LaidOutEpochs.suit(sampler)
    for epoch, number in [(1, 0), (1, sampler.batches_per_epoch - 1), (7, 0), (1, 0)]:
        found, wanted = laid_out.batch(epoch, number), sampler.batch(epoch, number)
        for part in ("users", "positives", "negatives"):
            assert torch.equal(getattr(found, part), getattr(wanted, part))
    assert not LaidOutEpochs.suit(Sampler(pairs, size, sampling="user"))
    assert not LaidOutEpochs.suit(Sampler(pairs, size, shared=4))
    assert not LaidOutEpochs.suit(Sampler(pairs, size, per_pair=100_000))


def trainer(device: str, epochs: int = 2, model: str = "dgcf", seed: int = 1, **settings: Any) -> Trainer:
    dataset, found = planted(), entry(model)
    others = {"message_dropout": 0.2, "edge_weights": settings.pop("edge_weights", False)}
    config = replace(found.config, **{name: value for name, value in others.items() if name in found.keys})
    spec = config.spec()
    propagation = None if spec is None else build_propagation(dataset.train, spec).to(device=device)
    how = TrainConfig(**{"batch_size": 500, "l2": 1e-2, "epochs": epochs, **settings})
    built = found.build(dataset.n_users, dataset.n_items, config, seed)
    return Trainer(built, propagation, dataset.train, how, seed=seed, device=device)


def trained(device: str, *args: Any, **settings: Any) -> Trainer:
    built = trainer(device, *args, **settings)
    built.fit()
    return built


def assert_same(one: Trainer, two: Trainer) -> None:
    for name, weights in one.model.state_dict().items():
        assert torch.equal(two.model.state_dict()[name], weights), name


LOSSES: list[dict[str, Any]] = [
    {},
    {"edge_dropout": 0.2},
    {"edge_dropout": 0.2, "dropout_draws": "step", "sampler": "user"},
    {"negatives": 3},
    {"loss": "softmax", "negatives": 30, "edge_dropout": 0.1},
    {"loss": "softmax", "negatives": 30, "popularity": 0.5},
    {"loss": "softmax-product", "negatives": 30, "l2": 0.01},
    {"loss": "bpr-hardest", "negatives": 4},
    {"loss": "bpr-hardest", "negatives": 4, "recency": 0.7},
    {"loss": "directau"},
    {"weighted_sampling": True},
]


@gpu
@pytest.mark.parametrize("settings", LOSSES)
@pytest.mark.parametrize("model", ["dgcf", "dgcf-sl", "lightgcn", "bpr-mf", "gcn", "gcn-jk", "gc-mc", "ngcf", "sgc"])
def test_recorded_steps_agree_with_the_cpu_and_are_deterministic(model: str, settings: dict[str, Any]) -> None:
    cpu, one, two = (trained(device, model=model, **settings) for device in ("cpu", "cuda", "cuda"))
    for name, weights in cpu.model.state_dict().items():
        found = one.model.state_dict()[name]
        # Adam divides by the size of the gradient: where that is all rounding, so is the step.
        assert float((found.cpu() - weights).norm() / weights.norm()) < (1e-5 if one.model.stack() else 1e-3), name
    assert float(one.running_loss) == pytest.approx(float(cpu.running_loss), rel=1e-5)
    assert_same(one, two)


@gpu
@pytest.mark.parametrize("model", ["dgcf", "lightgcn"])
def test_weighted_edges_on_a_gpu_agree_with_the_cpu(model: str) -> None:
    cpu, gpu_one, plain = (
        trained(device, model=model, edge_dropout=0.2, edge_weights=weighted)
        for device, weighted in (("cpu", True), ("cuda", True), ("cpu", False))
    )
    expected, found = cpu.model.layer0.detach(), gpu_one.model.layer0.detach().cpu()
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    assert float((plain.model.layer0.detach() - expected).norm() / expected.norm()) > 1e-3


@gpu
@pytest.mark.parametrize("settings", LOSSES)
@pytest.mark.parametrize("model", ["dgcf", "ngcf"])
def test_seeds_side_by_side_have_the_bits_of_single_trainings(model: str, settings: dict[str, Any]) -> None:
    together = [trainer("cuda", model=model, seed=seed, **settings) for seed in (1, 2, 3)]
    TrainingLoop(together).fit()
    for seed, one in zip((1, 2, 3), together, strict=True):
        assert_same(one, trained("cuda", model=model, seed=seed, **settings))


@gpu
def test_seeds_side_by_side_stop_independently() -> None:
    dataset = load("planted")
    settings = {"batch_size": 500, "epochs": 40, "evaluate_every": 1, "patience": 2, "min_epochs": 1, "dim": 24}
    recipe: Recipe = resolve("dgcf", preset="paper", settings=settings)
    from dgcf.evaluate.validation import validator

    validate = validator(dataset, "recall@20")
    each = [SeedJob(seed) for seed in range(4)]
    together: list[Trained] = train_many(dataset, recipe, each, device="cuda", validate=validate)
    alone = [train(dataset, recipe, seed=seed, device="cuda", validate=validate) for seed in range(4)]
    assert len({one.epochs for one in alone}) > 1, "these seeds are meant to stop at different epochs"
    for one, other in zip(together, alone, strict=True):
        assert (one.epochs, one.best_epoch, one.reason) == (other.epochs, other.best_epoch, other.reason)
        for name, weights in other.model.state_dict().items():
            assert torch.equal(one.model.state_dict()[name], weights), name


@gpu
def test_recorded_training_resumes_with_the_same_bits() -> None:
    whole = trained("cuda", epochs=3, edge_dropout=0.1)
    half = trained("cuda", epochs=2, edge_dropout=0.1)
    rest = trainer("cuda", epochs=3, edge_dropout=0.1)
    rest.restore(half.checkpoint())
    rest.fit()
    assert_same(whole, rest)


@gpu
def test_bfloat16_storage_gives_similar_weights() -> None:
    full, half = trained("cuda"), trained("cuda", storage="bfloat16")
    weights, found = full.model.layer0.detach(), half.model.layer0.detach()
    assert 1e-6 < float((found - weights).norm() / weights.norm()) < 0.05
