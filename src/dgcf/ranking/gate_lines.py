"""The gates of new nodes: ``logit α = a + b log(1 + d)`` for a node with d neighbours, fitted to the trained gates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.ranking.arrays import Floats


def gate_lines(logits: NDArray[Any], degree: NDArray[Any]) -> Floats:
    """Return (n_gates, 2): a and b by least squares, from logits (n_gates, n) and degrees (n,) of the nodes of a side.

    Nodes without a training pair are left out, as their gates are never trained.
    """
    trained = np.flatnonzero(degree)
    x = np.log1p(degree[trained])
    y = logits[:, trained].astype(np.float64)
    spread = x - x.mean()
    # If all degrees are equal, the slope is undetermined and not needed.
    slope = y @ spread / max(float(spread @ spread), 1e-300) if np.ptp(x) > 0 else np.zeros(len(y))
    return np.stack([y.mean(1) - slope * x.mean(), slope], axis=1)


def gates_at(lines: Floats, degree: NDArray[Any]) -> Floats:
    """Return the logits (n_gates, n) of nodes with these degrees (n,)."""
    return np.asarray(lines[:, :1] + lines[:, 1:] * np.log1p(degree))
