"""Every model that is trained in epochs: it learns what was planted, and no interruption leaves a trace in its bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.models import CATALOG, Embeddings, GraphModel
from dgcf.train import Trainer, build, resolve
from tests.train.planted_tastes import recall

TRAINED = [name for name, found in CATALOG.items() if not found.solved]
SMALL = {"dim": 16, "layers": 2, "batch_size": 256, "learning_rate": 0.01, "l2": 1e-4, "epochs": 30}
# Everything that is drawn anew in each step; sage draws neighbours in the place of edges.
DRAWN = {"message_dropout": 0.2, "edge_dropout": 0.2, "fanout": 3}


def trainer_for(
    dataset: Dataset, name: str, stop_after: int | None = None, device: str = "cpu", **more: Any
) -> Trainer:
    recipe = resolve(name, preset="plain", settings=settings_of(name, {**SMALL, **more}))
    model, propagation = build(dataset, recipe, seed=1, device=device)
    assert isinstance(model, GraphModel)
    steps = iter(range(1, 10**9))
    return Trainer(
        model,
        propagation,
        dataset.train,
        recipe.train,
        seed=1,
        device=device,
        interrupted=lambda: next(steps) == stop_after,
    )


def settings_of(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that the model has."""
    lacking = {"dim", "layers", "message_dropout", "fanout"} - set(CATALOG[name].keys)
    if name == "sage":
        lacking.add("edge_dropout")
    return {key: value for key, value in wanted.items() if key not in lacking}


@pytest.mark.parametrize("name", TRAINED)
def test_model_beats_popularity_on_planted_data(dataset: Dataset, name: str) -> None:
    """With all that can be dropped at random being dropped."""
    degrees = torch.from_numpy(dataset.train.item_degrees).float()
    popular = Embeddings(torch.ones(dataset.n_users, 1), degrees.unsqueeze(1))
    assert recall(popular, dataset, "test", 10) < 0.5
    trainer = trainer_for(dataset, name, epochs=30, batch_size=64, **DRAWN)
    trainer.fit()
    assert recall(trainer.model.embed(trainer.propagation), dataset, "test", 10) > 0.9


@pytest.mark.parametrize("name", TRAINED)
def test_training_interrupted_twice_ends_with_the_same_bits(dataset: Dataset, name: str) -> None:
    whole = trainer_for(dataset, name, epochs=3, **DRAWN)
    whole.fit()
    first = trainer_for(dataset, name, stop_after=1, epochs=3, **DRAWN)
    assert first.fit().startswith("interrupted in epoch 1")
    second = trainer_for(dataset, name, stop_after=2, epochs=3, **DRAWN)
    second.restore(first.checkpoint())
    assert second.fit().startswith("interrupted in epoch 2")
    third = trainer_for(dataset, name, epochs=3, **DRAWN)
    third.restore(second.checkpoint())
    third.fit()
    expected = whole.model.state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in third.model.state_dict().items())


@pytest.mark.gpu
@pytest.mark.parametrize("name", TRAINED)
def test_gpu_and_cpu_training_agree(dataset: Dataset, name: str) -> None:
    here, there = (trainer_for(dataset, name, device=device, epochs=2, **DRAWN) for device in ("cpu", "cuda"))
    here.fit()
    there.fit()
    for key, weights in here.model.state_dict().items():
        found = there.model.state_dict()[key].cpu()
        assert float((found - weights).norm() / weights.norm()) < 1e-3
