"""The parts that graph models are built from: locality gates, the stack of propagation layers, the read-out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from dgcf.graph import EdgeDrop, Propagation
from dgcf.graph.operators.stored import WORTH_CUTTING
from dgcf.models.base import DropSchedule, xavier_uniform

Readout = Literal["mean", "last"]
READOUTS: tuple[Readout, ...] = ("mean", "last")
Gate = Callable[[int, Tensor], Tensor]


class LocalityGates(nn.Module):
    """How much of a node is let out, per node and layer: ``x ↦ α ⊙ x`` with ``α = σ(w)``, w (n_gates, N).

    Section 4 of the paper (LA layer). One gate vector per layer, or one for all of them (``shared``, DGCF-sl). The
    paper does not say how w starts; as in the authors' code it is Xavier on an N × 1 matrix, so α starts near ½.
    """

    def __init__(self, n_nodes: int, layers: int, *, shared: bool = False, seed: int = 0) -> None:
        super().__init__()
        n_gates = 1 if shared else layers
        drawn = [xavier_uniform(f"gates.{gate}", n_nodes, 1, seed).squeeze(1) for gate in range(n_gates)]
        self.logits = nn.Parameter(torch.stack(drawn))

    def forward(self, layer: int, x: Tensor) -> Tensor:
        """(N, dim) → (N, dim); ``layer`` counts from 0."""
        return torch.sigmoid(self.logits[layer % len(self.logits)]).unsqueeze(1) * x


class IdentityGates(nn.Module):
    """Everything is let out: what is left of the gates in DGCF-chp."""

    def forward(self, layer: int, x: Tensor) -> Tensor:
        return x


def propagate(
    x: Tensor,
    propagation: Propagation,
    layers: int,
    *,
    readout: Readout = "mean",
    gate: Gate | None = None,
    rows: Tensor | None = None,
    drop: DropSchedule | None = None,
) -> Tensor:
    """``E⁽ˡ⁾ = M (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)`` for l = 1 … layers, then the mean of ``E⁽⁰⁾ … E⁽ᴸ⁾`` or ``E⁽ᴸ⁾`` alone.

    ``x``: E⁽⁰⁾, (N, dim). With ``rows`` the last layer is computed for those rows only, wherever that is less work.
    Their values are the same to the last bit: each row of M x is summed on its own, and the layers are added in the
    same order.
    """
    total = x
    for layer in range(layers - 1):
        x = propagation.apply(_gated(gate, layer, x), drop=_drawn(drop, layer))
        total = total + x
    inner, drawn = _gated(gate, layers - 1, x), _drawn(drop, layers - 1)
    if rows is not None:
        # Summed first and gathered once: the adjoint of a gather fills a whole (N, dim) matrix.
        total = total.index_select(0, rows)
    x = received_rows(propagation, inner, rows, drawn)
    return x if readout == "last" else (total + x) / (layers + 1)


def received_rows(propagation: Propagation, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
    """``M x``, (N, dim), or its ``rows``, (n_rows, dim): cut out of M wherever that is less work."""
    if rows is None:
        return propagation.apply(x, drop=drop)
    if len(rows) <= WORTH_CUTTING * propagation.n_nodes:
        return propagation.apply(x, rows=rows, drop=drop)
    return propagation.apply(x, drop=drop).index_select(0, rows)


def _gated(gate: Gate | None, layer: int, x: Tensor) -> Tensor:
    return x if gate is None else gate(layer, x)


def _drawn(drop: DropSchedule | None, layer: int) -> EdgeDrop | None:
    return None if drop is None else drop.at(layer)
