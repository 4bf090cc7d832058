"""The start of an update: known rows stay, new ones are zero, means or estimates, gates follow the degree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgcf.data.pairs import Pairs
from dgcf.data.update import resized
from dgcf.errors import ConfigError
from dgcf.models.base import GraphModel
from dgcf.ranking.layer0_map import layer0_map
from dgcf.train import Recipe, build, resolve
from dgcf.train.warm_start import GATES, LAYER0, Weights, grown, warm_start
from tests.train.planted_tastes import planted_tastes, validation_of

MORE_USERS, MORE_ITEMS = 3, 2
RECIPE = resolve("dgcf", preset="plain", settings={"dim": 4, "layers": 2, "metric": "recall@20"})


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def more_pairs(pairs: Pairs) -> Pairs:
    """Return the pairs with new users and items: user n has the items n and n + 1, and the first new item."""
    n_users, n_items = pairs.n_users + MORE_USERS, pairs.n_items + MORE_ITEMS
    users = np.repeat(np.arange(pairs.n_users, n_users), 3)
    items = np.concatenate([[n, n + 1, pairs.n_items] for n in range(MORE_USERS)])
    rest = Pairs.from_indices(np.array([0, 1]), np.array([pairs.n_items + 1] * 2), n_users, n_items)
    return resized(pairs, n_users, n_items).union(Pairs.from_indices(users, items, n_users, n_items), rest)


def trained(recipe: Recipe = RECIPE) -> tuple[Weights, Pairs, GraphModel]:
    """Return random weights of a small graph, the pairs of the larger one, and a model of its size."""
    dataset = planted_tastes()
    model, _ = build(dataset, recipe)
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in model.state_dict().items()}
    train = more_pairs(dataset.train)
    larger = recipe.entry.build(train.n_users, train.n_items, recipe.model, 0)
    assert isinstance(larger, GraphModel)
    return Weights(tensors, dataset.train, "the run"), train, larger


@pytest.mark.parametrize("new_rows", ["zero", "mean", "estimated"])
def test_known_nodes_keep_their_rows_and_gates(new_rows: str) -> None:
    weights, train, model = trained()
    tensors, before = grown(model, weights, train, new_rows), weights.train  # type: ignore[arg-type]
    n, m = before.n_users, train.n_users
    layer0, gates = tensors[LAYER0], tensors[GATES]
    torch.testing.assert_close(layer0[:n], weights.tensors[LAYER0][:n], rtol=0, atol=0)
    torch.testing.assert_close(layer0[m : m + before.n_items], weights.tensors[LAYER0][n:], rtol=0, atol=0)
    torch.testing.assert_close(gates[:, :n], weights.tensors[GATES][:, :n], rtol=0, atol=0)
    torch.testing.assert_close(gates[:, m : m + before.n_items], weights.tensors[GATES][:, n:], rtol=0, atol=0)
    assert torch.isfinite(gates).all()
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        name: tensor.shape for name, tensor in model.state_dict().items()
    }


def test_new_rows_are_zero_or_the_mean_of_known_neighbours() -> None:
    weights, train, model = trained()
    n, m, before = weights.train.n_users, train.n_users, weights.train
    old = weights.tensors[LAYER0]
    assert not grown(model, weights, train, "zero")[LAYER0][n:m].any()
    layer0 = grown(model, weights, train, "mean")[LAYER0]
    for number in range(MORE_USERS):  # the new item among the three has no row to count
        expected = (old[n + number] + old[n + number + 1]) / 2
        torch.testing.assert_close(layer0[n + number], expected)
    assert not layer0[m + before.n_items].any(), "a new item of new users alone has nothing to be the mean of"
    torch.testing.assert_close(layer0[m + before.n_items + 1], (old[0] + old[1]) / 2)


def test_rows_of_new_users_are_estimated_as_in_fold_in() -> None:
    weights, train, model = trained()
    n, m, before = weights.train.n_users, train.n_users, weights.train
    layer0 = grown(model, weights, train, "estimated")[LAYER0]
    assert not layer0[m + before.n_items :].any(), "new items"
    users, items = weights.tensors[LAYER0].numpy()[:n], weights.tensors[LAYER0].numpy()[n:]
    fitted, degree = layer0_map(users, items, before), before.item_degrees
    for number in range(MORE_USERS):
        liked = np.array([number, number + 1])
        expected = fitted.row(items[liked], degree[liked]).astype(np.float32)
        np.testing.assert_array_equal(layer0[n + number].numpy(), expected)


def test_validation_chooses_how_new_rows_are_filled() -> None:
    weights, train, _ = trained()
    dataset = planted_tastes()
    held = resized(dataset.validation, train.n_users, train.n_items)
    model, propagation = build(_Sized(train), RECIPE)
    assert isinstance(model, GraphModel)
    validate = validation_of(_Sized(train, held))
    start = warm_start(model, propagation, weights, train, RECIPE.train, validate)
    assert start.candidates.keys() == {"zero", "mean", "estimated"}
    assert start.validation["recall@20"] == max(value["recall@20"] for value in start.candidates.values())
    torch.testing.assert_close(model.state_dict()[LAYER0], start.tensors[LAYER0], rtol=0, atol=0)


def test_other_sizes_are_refused() -> None:
    weights, train, _ = trained()
    wide = resolve("dgcf", preset="plain", settings={"dim": 8, "layers": 2})
    model = wide.entry.build(train.n_users, train.n_items, wide.model, 0)
    assert isinstance(model, GraphModel)
    with pytest.raises(ConfigError, match="an update keeps the model and its sizes"):
        grown(model, weights, train, "zero")


class _Sized:
    """A dataset of the larger graph, of which only pairs and sizes are used."""

    def __init__(self, train: Pairs, validation: Pairs | None = None) -> None:
        self.train, self.validation = train, validation
        self.n_users, self.n_items = train.n_users, train.n_items

    def split(self, name: str) -> Pairs:
        pairs = {"train": self.train, "validation": self.validation}[name]
        assert pairs is not None
        return pairs
