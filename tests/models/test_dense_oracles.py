"""Forward passes of every model with weights against its equation in dense NumPy, in float64 to 1e-10."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.graph import build_propagation
from dgcf.models import DropSchedule, Entry, GraphModel, entry
from dgcf.random import uniform

Dense = NDArray[np.float64]
N_USERS, N_ITEMS, DIM, LAYERS = 7, 9, 5, 3


def interactions() -> Dense:
    """Sparse, with hubs, and with a user and an item that nobody met."""
    drawn = uniform(11, "test/oracle", N_USERS * N_ITEMS).reshape(N_USERS, N_ITEMS) < np.linspace(0.1, 0.9, N_ITEMS)
    drawn[2], drawn[:, 4] = False, False
    return drawn.astype(np.float64)


def adjacency() -> Dense:
    R = interactions()
    return np.block([[np.zeros((N_USERS, N_USERS)), R], [R.T, np.zeros((N_ITEMS, N_ITEMS))]])


def symmetric(A: Dense) -> Dense:
    """``D^-½ A D^-½``, with nothing for a node without neighbours."""
    degree = A.sum(axis=1)
    scale = np.diag([value**-0.5 if value else 0.0 for value in degree])
    return np.asarray(scale @ A @ scale)


def leaky(x: Dense) -> Dense:
    return np.where(x > 0, x, 0.2 * x)


def unit(x: Dense) -> Dense:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


class Weights:
    """A model's parameters by name, as NumPy arrays; a bias that is not there is zero."""

    def __init__(self, model: GraphModel) -> None:
        self.named = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}

    def dense(self, name: str, x: Dense) -> Dense:
        """``x W + b``."""
        return np.asarray(x @ self.named[f"{name}.weight"] + self.named.get(f"{name}.bias", 0.0))


def gcn(w: Weights, keep: Keep) -> list[Dense]:
    M = symmetric(adjacency() + np.eye(N_USERS + N_ITEMS))
    layers = [w.named["layer0"]]
    for number in range(LAYERS):
        layers.append(keep(number, leaky(w.dense(f"weights.{number}", M @ layers[-1]))))
    return layers


def gc_mc(w: Weights, keep: Keep) -> list[Dense]:
    M, hidden, layers = symmetric(adjacency()), w.named["layer0"], []
    for number in range(LAYERS):
        hidden = leaky(w.dense(f"convolutions.{number}", M @ hidden))
        layers.append(keep(number, w.dense(f"outputs.{number}", hidden)))
    return layers


def ngcf(w: Weights, keep: Keep) -> list[Dense]:
    M, x = symmetric(adjacency()), w.named["layer0"]
    layers = [x]
    for number in range(LAYERS):
        alike = w.dense(f"products.{number}", (M @ x) * x)
        x = keep(number, leaky(w.dense(f"sums.{number}", M @ x + x) + alike))
        layers.append(unit(x))
    return layers


def spectralcf(w: Weights, keep: Keep) -> list[Dense]:
    frequency, U = np.linalg.eigh(np.eye(N_USERS + N_ITEMS) - symmetric(adjacency()))
    M = U @ U.T + U @ np.diag(frequency) @ U.T
    layers = [w.named["layer0"]]
    for number in range(LAYERS):
        layers.append(keep(number, leaky(w.dense(f"weights.{number}", M @ layers[-1]))))
    return layers


def sage(w: Weights, keep: Keep) -> list[Dense]:
    A = adjacency()
    M = A / np.maximum(A.sum(axis=1, keepdims=True), 1)
    layers = [w.named["layer0"]]
    for number in range(LAYERS):
        both = np.concatenate([layers[-1], M @ layers[-1]], axis=1)
        layers.append(keep(number, leaky(w.dense(f"weights.{number}", both))))
    return layers


Keep = Callable[[int, Dense], Dense]
ORACLES: dict[str, Callable[[Weights, Keep], list[Dense]]] = {
    "gcn": gcn,
    "gcn-jk": gcn,
    "gc-mc": gc_mc,
    "ngcf": ngcf,
    "spectralcf": spectralcf,
    "sage": sage,
}


def build(name: str, **settings: Any) -> tuple[GraphModel, Any]:
    found = entry(name)
    config = replace(found.config, dim=DIM, layers=LAYERS, activation="leaky-relu", **settings)
    return ready(found, config)


def ready(found: Entry, config: Any) -> tuple[GraphModel, Any]:
    model = found.build(N_USERS, N_ITEMS, config, 3).double()
    return model, build_propagation(csr_array(interactions()), config.spec()).to(dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", ORACLES)
def test_concatenated_layers_equal_the_equation(name: str, dropout: float, bias: bool) -> None:
    more = {"fanout": "all"} if name == "sage" else {}
    model, propagation = build(name, readout="concat", bias=bias, message_dropout=dropout, **more)
    drop = DropSchedule(0.0, seed=2, step=7)

    def keep(number: int, x: Dense) -> Dense:
        kept = drop.messages(number, dropout, torch.arange(len(x)), x.shape[1]).numpy()
        return np.asarray(np.where(kept, x / (1 - dropout), 0.0))

    expected = np.concatenate(ORACLES[name](Weights(model), keep), axis=1)
    np.testing.assert_allclose(model(propagation, drop=drop).detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ORACLES)
def test_mean_and_last_readouts_use_the_same_layers(name: str) -> None:
    side_by_side, propagation = build(name, readout="concat", bias=True, message_dropout=0.0)
    layers = side_by_side(propagation).detach().unflatten(1, (-1, DIM)).numpy()
    for readout, expected in (("mean", layers.mean(axis=1)), ("last", layers[:, -1])):
        model, _ = build(name, readout=readout, bias=True, message_dropout=0.0)
        np.testing.assert_allclose(model(propagation).detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("layers", [1, 4])
def test_sgc_is_a_power_of_the_graph_and_one_weight_matrix(loops: bool, layers: int) -> None:
    found = entry("sgc")
    model, propagation = ready(found, replace(found.config, dim=DIM, layers=layers, loops=loops))
    M, w = symmetric(adjacency() + np.eye(N_USERS + N_ITEMS) * loops), Weights(model)
    expected = np.linalg.matrix_power(M, layers) @ w.named["layer0"] @ w.named["output.weight"]
    np.testing.assert_allclose(model(propagation).detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("frequencies", [1, 5, 16])
def test_spectralcf_of_the_lowest_frequencies_equals_the_equation(frequencies: int) -> None:
    model, propagation = build("spectralcf", readout="last", frequencies=frequencies)
    frequency, U = np.linalg.eigh(np.eye(N_USERS + N_ITEMS) - symmetric(adjacency()))
    low, U = frequency[:frequencies], U[:, :frequencies]  # eigh sorts them, and the next is higher
    x, w = Weights(model).named["layer0"], Weights(model)
    for number in range(LAYERS):
        x = leaky(w.dense(f"weights.{number}", U @ ((1 + low)[:, None] * (U.T @ x))))
    np.testing.assert_allclose(model(propagation).detach().numpy(), x, rtol=0, atol=1e-10)


def test_sage_trains_on_sampled_neighbours_alone() -> None:
    model, propagation = build("sage", readout="last", fanout=2)
    drop, w = DropSchedule(0.0, seed=4, step=9), Weights(model)
    met = [np.flatnonzero(row) for row in adjacency()]
    x = w.named["layer0"]
    for number in range(LAYERS):
        mean = np.zeros_like(x)
        for node, neighbours in enumerate(met):
            if len(neighbours):
                degree = torch.tensor([len(neighbours)])
                places = drop.neighbours(number, 2).places(torch.tensor([node]), degree)[0].numpy()
                mean[node] = (x[neighbours[places[0]]] + x[neighbours[places[1]]]) / 2
        x = leaky(w.dense(f"weights.{number}", np.concatenate([x, mean], axis=1)))
    np.testing.assert_allclose(model(propagation, drop=drop).detach().numpy(), x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["ngcf", "sage"])
def test_unit_rows_can_be_switched_off(name: str) -> None:
    for unit_rows in (True, False):
        model, propagation = build(name, readout="last", unit_rows=unit_rows)
        lengths = model(propagation).detach().norm(dim=1)
        assert torch.allclose(lengths, torch.ones_like(lengths)) == unit_rows
