"""Tests of the choice of an engine, and of the interface that all engines share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.train import Trainer, build, resolve
from dgcf.train.engines import groups, pick_engine
from dgcf.train.engines.base import InTurn
from dgcf.train.engines.cpu import CpuEngine
from dgcf.train.engines.eager import EagerEngine


def trainer_of(dataset: Dataset, model: str, *, seed: int = 0, **settings: Any) -> Trainer:
    recipe = resolve(model, preset="paper", settings={"dim": 8, "batch_size": 64, **settings})
    built, propagation = build(dataset, recipe, seed=seed)
    return Trainer(built, propagation, dataset.train, recipe.train, seed=seed)


@pytest.mark.parametrize(
    ("model", "settings", "engine"),
    [
        ("dgcf", {}, CpuEngine),
        ("lightgcn", {}, CpuEngine),
        ("dgcf", {"cross": "matrix-free"}, EagerEngine),
        ("bpr-mf", {}, EagerEngine),
        ("gcn", {}, EagerEngine),
        ("sage", {}, EagerEngine),
    ],
    ids=str,
)
def test_pick_engine_on_a_cpu(dataset: Dataset, model: str, settings: dict[str, Any], engine: type) -> None:
    assert type(pick_engine([trainer_of(dataset, model, **settings)])) is engine


def test_several_trainings_on_a_cpu_step_in_turn(dataset: Dataset) -> None:
    together = [trainer_of(dataset, "dgcf", seed=seed, edge_dropout=0.2) for seed in (1, 2)]
    alone = [trainer_of(dataset, "dgcf", seed=seed, edge_dropout=0.2) for seed in (1, 2)]
    engine = pick_engine(together)
    assert isinstance(engine, InTurn)
    for stepping in (engine, *(pick_engine([trainer]) for trainer in alone)):
        stepping.begin_epoch(1, 0)
        for batch in range(3):
            stepping.step(batch)
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one.model.layer0, other.model.layer0)
        assert torch.equal(one.running_loss, other.running_loss)


def test_cpu_and_eager_engines_compute_the_same_loss_and_gradients(dataset: Dataset) -> None:
    trainer = trainer_of(dataset, "dgcf", edge_dropout=0.2, l2=0.01)
    batch, parameters = trainer.sampler.batch(1, 0), list(trainer.model.parameters())
    results = []
    for engine in (CpuEngine(trainer), EagerEngine(trainer)):
        value = engine.loss(batch, step=3)
        results.append([value, *torch.autograd.grad(value, parameters)])
    for fused, plain in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-7)


def test_seeds_train_alone_on_a_cpu() -> None:
    assert groups([1, 2, 3], resolve("dgcf", preset="paper"), "cpu") == [[1], [2], [3]]
