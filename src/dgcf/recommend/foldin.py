"""Fold-in: compute the embeddings of a new node from its neighbours, as the propagation layers would.

The stored layers and gates do not change. A new node's row of M comes from its neighbours and the degrees of the
training graph (``neighbours``); then, layer by layer,

    E_n⁽ˡ⁾ = Σ_j M_nj α_j⁽ˡ⁾ E_j⁽ˡ⁻¹⁾ + M_nn α_n⁽ˡ⁾ E_n⁽ˡ⁻¹⁾,   E_n⁽⁰⁾ = 0.

Layer 0 is trained node by node, so it is zero for a new one; fitting it by a few steps of BPR was measurably worse. The
new node's gates are those of a node of its degree:
``logit α = a + b log(1 + d)`` with a and b by least squares over its side, one line per layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dgcf.errors import DataError
from dgcf.ranking.arrays import Floats, Indices, Rows, Side
from dgcf.recommend.neighbours import Neighbours, Row
from dgcf.recommend.snapshot import Layers, Snapshot, sigmoid


@dataclass(frozen=True)
class Folded:
    """A folded-in node: its ``row`` of M, ``layers`` (L + 1, dim), ``gates`` α⁽¹⁾ … α⁽ᴸ⁾, ``ranked`` row (dim,)."""

    row: Row
    layers: Floats
    gates: Floats
    ranked: Rows
    length: float
    """The divisor of ``Σ w_l E⁽ˡ⁾``: its length if the loss is on cosines, else 1."""


class FoldIn:
    """Folds nodes into the graph of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        if snapshot.layers is None or snapshot.rule is None:
            raise DataError(
                f"model {snapshot.model} cannot fold in a new user or item: its embeddings depend on more than the "
                "graph; train a model that can, such as dgcf or lightgcn."
            )
        self.layers: Layers = snapshot.layers
        self.neighbours = Neighbours(snapshot.train, snapshot.rule)

    def fold(self, side: Side, across: Indices, node: int | None = None) -> Folded:
        """Fold in a node of ``side`` with the neighbours ``across``; a known ``node`` keeps its layer 0 and gates."""
        row = self.neighbours.row(side, across, node)
        first, other = self._first(side), self._first("item" if side == "user" else "user")
        stored, depth = self.layers.embeddings, self.layers.depth
        gates = self._gates(side, len(row.across), node)
        layers = np.zeros((depth + 1, stored.shape[2]))
        if node is not None:
            layers[0] = stored[0, first + node]
        for layer in range(1, depth + 1):
            for nodes, weight in ((other + row.across, row.across_weight), (first + row.alike, row.alike_weight)):
                layers[layer] += (weight * self.layers.gate(layer, nodes)) @ stored[layer - 1, nodes]
            layers[layer] += row.own * gates[layer - 1] * layers[layer - 1]
        mean = self.snapshot.layer_weights(depth) @ layers
        length = max(float(np.linalg.norm(mean)), 1e-12) if self.snapshot.cosine else 1.0
        return Folded(row, layers, gates, (mean / length).astype(np.float32), length)

    def _first(self, side: Side) -> int:
        """Return the number of a side's first node."""
        return 0 if side == "user" else self.snapshot.n_users

    def _gates(self, side: Side, degree: int, node: int | None) -> Floats:
        depth = self.layers.depth
        if node is not None:
            return np.array([float(self.layers.gate(layer, self._first(side) + node)) for layer in range(1, depth + 1)])
        if self.layers.gate_logits is None:
            return np.ones(depth)
        line = self.gate_lines[side]
        logits = line[:, 0] + line[:, 1] * np.log1p(degree)
        return np.resize(sigmoid(logits), depth)  # shared gates have one line for all layers

    @cached_property
    def gate_lines(self) -> dict[Side, Floats]:
        """(n_gates, 2) per side: a and b of ``logit α = a + b log(1 + d)``, over nodes with a training pair."""
        return {"user": self._lines("user"), "item": self._lines("item")}

    def _lines(self, side: Side) -> Floats:
        assert self.layers.gate_logits is not None
        degree = self.neighbours.degree(side)
        trained = np.flatnonzero(degree)
        x = np.log1p(degree[trained])
        logits = self.layers.gate_logits[:, self._first(side) + trained].astype(np.float64)
        spread = x - x.mean()
        # If all degrees are equal, the slope is undetermined and not needed.
        slope = logits @ spread / max(float(spread @ spread), 1e-300) if np.ptp(x) > 0 else np.zeros(len(logits))
        return np.stack([logits.mean(1) - slope * x.mean(), slope], axis=1)
