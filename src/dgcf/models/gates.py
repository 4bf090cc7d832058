"""What the gates have learned: how open a node's gate is against how many neighbours the node has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.models.base import GraphModel, Model
from dgcf.models.layers import LocalityGates


def gate_correlation(model: Model, train: Pairs) -> dict[str, Any]:
    """Pearson's ρ of 1/α and log degree, for users and items: the paper's figure (.578 and .835 on ML1M).

    ``users`` and ``items`` are those of the last layer, ``layers`` has all of them. Nodes without a training pair
    are left out: they have no degree to take the logarithm of, and their gates are never used.
    """
    gates = getattr(model, "gates", None)
    if not isinstance(model, GraphModel) or not isinstance(gates, LocalityGates):
        raise ConfigError("this model has no gates to look at; train dgcf, dgcf-la or dgcf-sl.")
    closed = 1.0 / gates.alpha().double().cpu().numpy()
    layers = [
        {
            "users": _correlation(layer[: model.n_users], train.user_degrees),
            "items": _correlation(layer[model.n_users :], train.item_degrees),
        }
        for layer in closed
    ]
    return {**layers[-1], "layers": layers}


def _correlation(closed: NDArray[np.float64], degrees: NDArray[np.int64]) -> float | None:
    seen = degrees > 0
    x, y = closed[seen], np.log(degrees[seen])
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return None  # nothing varies, so nothing varies together
    return float(np.corrcoef(x, y)[0, 1])
