"""Parts of graph models: locality gates, linear propagation layers and their readout, and a model of these alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dgcf.config import require_one_of
from dgcf.graph import Propagation
from dgcf.graph.operators.stored import WORTH_CUTTING
from dgcf.models.base import DropSchedule, GraphModel, PropagationStack, xavier_uniform
from dgcf.models.config import LayeredConfig
from dgcf.ranking.user_rules import UserRule

Readout = Literal["mean", "last"]
Gate = Callable[[int, Tensor], Tensor]


class LocalityGates(nn.Module):
    """A gate per node and layer: ``x ↦ α ⊙ x`` with ``α = σ(w)``, w (n_gates, N).

    Section 4 of the paper (LA layer). One gate vector per layer, or one for all layers (``shared``, DGCF-sl). The paper
    does not state the initialisation; as in the authors' code it is Xavier on an N × 1 matrix, so α starts near ½.
    """

    def __init__(self, n_nodes: int, layers: int, *, shared: bool = False, seed: int = 0) -> None:
        super().__init__()
        n_gates = 1 if shared else layers
        logits = [xavier_uniform(f"gates.{gate}", n_nodes, 1, seed).squeeze(1) for gate in range(n_gates)]
        self.logits = nn.Parameter(torch.stack(logits))

    def forward(self, layer: int, x: Tensor) -> Tensor:
        """Return the gated x, (N, dim); ``layer`` counts from 0."""
        return torch.sigmoid(self.logits[layer % len(self.logits)]).unsqueeze(1) * x


@dataclass(frozen=True)
class LinearConfig(LayeredConfig):
    """Settings of a model without weights between layers."""

    readout: Readout = "mean"
    """Ranked embeddings: the ``mean`` of all layers, or the ``last`` layer."""
    edge_weights: bool = False
    """Weigh the edges between users and items by the weights of the pairs. Requires data with weights
    (``--weight-col``)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("readout", self.readout, ("mean", "last"))

    @property
    def weight_setting(self) -> str | None:
        return "edge_weights" if self.edge_weights else None


class LinearModel(GraphModel):
    """A model that only propagates, with or without ``gates``, and reads out the layers."""

    config: LinearConfig

    def __init__(self, n_users: int, n_items: int, config: LinearConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.gates: LocalityGates | None = None

    def stack(self) -> PropagationStack:
        logits = None if self.gates is None else self.gates.logits
        return PropagationStack(self.config.layers, logits, self.config.readout == "mean")

    @property
    def user_rule(self) -> UserRule | None:
        """How the ranking represents users; None with edge weights, which a new user's items do not have."""
        return None if self.config.edge_weights else super().user_rule

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        assert propagation is not None
        layers, readout = self.config.layers, self.config.readout
        return propagate(self.layer0, propagation, layers, readout=readout, gate=self.gates, rows=rows, drop=drop)


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
    """Return the mean of ``E⁽⁰⁾ … E⁽ᴸ⁾``, or ``E⁽ᴸ⁾`` alone, with ``E⁽ˡ⁾ = M (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)`` for l = 1 … layers.

    ``x``: E⁽⁰⁾, (N, dim). With ``rows`` the last layer is computed for those rows only, if that is less work.
    Their values are the same to the last bit: each row of M x is summed on its own, and the layers are added in the
    same order.
    """
    gated = gate or (lambda layer, x: x)
    total = x
    for layer in range(layers - 1):
        x = received_rows(propagation, gated(layer, x), None, drop, layer)
        total = total + x
    inner = gated(layers - 1, x)
    if rows is not None:
        # Sum first and gather once: the adjoint of a gather fills a whole (N, dim) matrix.
        total = total.index_select(0, rows)
    x = received_rows(propagation, inner, rows, drop, layers - 1)
    return x if readout == "last" else (total + x) / (layers + 1)


def received_rows(
    propagation: Propagation, x: Tensor, rows: Tensor | None, drop: DropSchedule | None, layer: int
) -> Tensor:
    """Return ``M x``, (N, dim), or its ``rows``, (n_rows, dim), which are cut out of M if that is less work."""
    edge_drop = None if drop is None else drop.at(layer)
    if rows is None or len(rows) <= WORTH_CUTTING * propagation.n_nodes:
        return propagation.apply(x, rows=rows, drop=edge_drop)
    return propagation.apply(x, drop=edge_drop).index_select(0, rows)
