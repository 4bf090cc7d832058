"""The learned gates of a model, and their correlation with node degrees."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.models.base import GraphModel, Model


class SideCorrelation(TypedDict):
    """Pearson's ρ of 1/α and log degree for users and for items; None where one of the two is constant."""

    users: float | None
    items: float | None


class GateCorrelation(SideCorrelation):
    """The correlations of the last layer, and in ``layers`` those of all."""

    layers: list[SideCorrelation]


def gate_values(model: Model) -> NDArray[np.float64] | None:
    """Return the gates α of a model, (n_gates, N), or None for a model without gates."""
    stack = model.stack() if isinstance(model, GraphModel) else None
    if stack is None or stack.gate_logits is None:
        return None
    return np.asarray(stack.gate_logits.detach().sigmoid().double().cpu().numpy())


def gate_correlation(model: Model, train: Pairs) -> GateCorrelation:
    """Return Pearson's ρ of 1/α and log degree, for users and items: the paper's figure (.578 and .835 on ML1M).

    Nodes without a training pair are left out: their degree has no logarithm, and their gates are never used.
    """
    alpha = gate_values(model)
    if alpha is None or not isinstance(model, GraphModel):
        raise ConfigError("this model has no gates to look at; train dgcf, dgcf-la or dgcf-sl.")
    layers: list[SideCorrelation] = [
        {
            "users": _correlation(layer[: model.n_users], train.user_degrees),
            "items": _correlation(layer[model.n_users :], train.item_degrees),
        }
        for layer in 1.0 / alpha
    ]
    return {**layers[-1], "layers": layers}


def _correlation(inverse: NDArray[np.float64], degrees: NDArray[np.int64]) -> float | None:
    seen = degrees > 0
    x, y = inverse[seen], np.log(degrees[seen])
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])
