"""Every model with weights against its own equation in dense NumPy, float64, to 1e-10: whole forward passes."""

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
from dgcf.models import DropSchedule, GraphModel, entry
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


Keep = Callable[[int, Dense], Dense]
ORACLES: dict[str, Callable[[Weights, Keep], list[Dense]]] = {
    "gcn": gcn,
    "gcn-jk": gcn,
    "gc-mc": gc_mc,
    "ngcf": ngcf,
}


def build(name: str, **settings: Any) -> tuple[GraphModel, Any]:
    found = entry(name)
    config = replace(found.config, dim=DIM, layers=LAYERS, activation="leaky-relu", **settings)
    model = found.build(N_USERS, N_ITEMS, config, 3).double()
    return model, build_propagation(csr_array(interactions()), config.spec()).to(dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", ORACLES)
def test_all_layers_side_by_side_are_those_of_the_equation(name: str, dropout: float, bias: bool) -> None:
    model, propagation = build(name, readout="concat", bias=bias, message_dropout=dropout)
    drop = DropSchedule(0.0, seed=2, step=7)

    def keep(number: int, x: Dense) -> Dense:
        kept = drop.messages(number, dropout, torch.arange(len(x)), x.shape[1]).numpy()
        return np.asarray(np.where(kept, x / (1 - dropout), 0.0))

    expected = np.concatenate(ORACLES[name](Weights(model), keep), axis=1)
    np.testing.assert_allclose(model(propagation, drop=drop).detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ORACLES)
def test_the_other_read_outs_are_made_of_the_same_layers(name: str) -> None:
    side_by_side, propagation = build(name, readout="concat", bias=True, message_dropout=0.0)
    layers = side_by_side(propagation).detach().unflatten(1, (-1, DIM)).numpy()
    for readout, expected in (("mean", layers.mean(axis=1)), ("last", layers[:, -1])):
        model, _ = build(name, readout=readout, bias=True, message_dropout=0.0)
        np.testing.assert_allclose(model(propagation).detach().numpy(), expected, rtol=0, atol=1e-10)
