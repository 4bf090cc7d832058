"""Fold-in: compute the embeddings of a new node from its neighbours, as the propagation layers would.

The stored layers and gates do not change. A new node's row of M comes from its neighbours and the degrees of the
training graph (``Neighbours``); then, layer by layer,

    E_n⁽ˡ⁾ = Σ_j M_nj α_j⁽ˡ⁾ E_j⁽ˡ⁻¹⁾ + M_nn α_n⁽ˡ⁾ E_n⁽ˡ⁻¹⁾.

Layer 0 is trained node by node. A new user's row is estimated from the rows of the user's items, by a linear map that
is fitted to the trained users (``dgcf.ranking.layer0_map``); a few steps of BPR gave a measurably worse row than zero.
A new item's row is zero. The new node's gates are those of a node of its degree:
``logit α = a + b log(1 + d)`` with a and b by least squares over its side, one line per layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs, row_entries
from dgcf.errors import DataError
from dgcf.ranking.arrays import Floats, Indices, Rows, Side
from dgcf.ranking.gate_lines import gate_lines, gates_at
from dgcf.ranking.layer0_map import Layer0Map, layer0_map
from dgcf.recommend.snapshot import GraphRule, Layers, Snapshot, sigmoid


@dataclass(frozen=True)
class Row:
    """One row of M. For a user, ``across`` are items (L) and ``alike`` other users (Lc); for an item the reverse.

    Indices start from 0 on each side. ``own`` is the diagonal entry, from I and Lc.
    """

    across: Indices
    across_weight: Floats
    alike: Indices
    alike_weight: Floats
    own: float


@dataclass(frozen=True)
class _Half:
    """One side of the bipartite graph: the neighbours of its nodes as compressed rows, and their degrees d and dc."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    degree: Floats
    cross_degree: Floats

    def neighbours(self, nodes: Indices) -> NDArray[np.int32]:
        """Return the neighbours of all ``nodes``, concatenated."""
        return np.asarray(self.indices[row_entries(self.indptr, nodes)[0]])


class Neighbours:
    """Computes rows of ``M = L + Lc + I`` for single nodes, known or new, from the training pairs.

    No matrix is stored. A row follows from the node's neighbours and the degrees of the training graph, by the formulas
    and in the precision of the trained operator: a known node gets exactly its row.
    """

    def __init__(self, train: Pairs, rule: GraphRule) -> None:
        self.train, self.rule = train, rule

    @cached_property
    def _halves(self) -> dict[Side, _Half]:
        user_degree = self.train.user_degrees.astype(np.float64)
        item_degree = self.train.item_degrees.astype(np.float64)
        R = self.train.to_scipy()
        Rt = R.T.tocsr()
        # dc = A (A 1): sums of whole numbers, exact in float64 in any order
        user_cross = np.asarray(R.astype(np.float64) @ item_degree)
        item_cross = np.asarray(Rt.astype(np.float64) @ user_degree)
        return {
            "user": _Half(R.indptr.astype(np.int64), R.indices, user_degree, user_cross),
            "item": _Half(Rt.indptr.astype(np.int64), Rt.indices, item_degree, item_cross),
        }

    def with_items(self, train: Pairs) -> Neighbours:
        """Return the neighbours in ``train``, the same pairs among more items."""
        wider = Neighbours(train, self.rule)
        halves = self._halves
        more = train.n_items - self.train.n_items
        items = halves["item"]
        zeros = np.zeros(more)
        indptr = np.concatenate([items.indptr, np.full(more, items.indptr[-1])])
        degrees = (np.concatenate([degree, zeros]) for degree in (items.degree, items.cross_degree))
        wider.__dict__["_halves"] = {"user": halves["user"], "item": _Half(indptr, items.indices, *degrees)}
        return wider

    def degree(self, side: Side) -> Floats:
        """Return the number of training neighbours of each node of a side."""
        return self._halves[side].degree

    def of(self, side: Side, node: int) -> Indices:
        """Return the training neighbours of one node, ascending."""
        return self._halves[side].neighbours(np.array([node])).astype(np.int64)

    def row(self, side: Side, across: Indices, node: int | None = None) -> Row:
        """Return the row of a node of ``side`` whose neighbours are ``across`` (ascending, distinct).

        ``node`` is the index of a known node, which is no neighbour of itself. The degrees of all other nodes are those
        of the training graph, which a new node does not change.
        """
        other = self._halves["item" if side == "user" else "user"]
        reached = across[other.degree[across] > 0]  # a node without training pairs has no trained row
        degree, cross_degree = float(len(reached)), float(other.degree[reached].sum())
        scale = 1.0 / np.sqrt(degree * other.degree[reached]) if self.rule.direct else np.zeros(len(reached))
        alike, alike_weight, diagonal = self._cross(side, reached, degree, cross_degree, node)
        return Row(reached, scale, alike, alike_weight, float(self.rule.self_loop) + diagonal)

    def _cross(
        self, side: Side, across: Indices, degree: float, cross_degree: float, node: int | None
    ) -> tuple[Indices, Floats, float]:
        """Return the similar nodes v that pass the filter, their ``Lc_nv = |n ∩ v| / √(dc_n dc_v)``, and Lc_nn."""
        if not self.rule.cross or cross_degree == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0), 0.0
        half, other = self._halves[side], self._halves["item" if side == "user" else "user"]
        alike, shared = _counts(other.neighbours(across), len(half.degree))
        if node is not None:
            alike, shared = alike[alike != node], shared[alike != node]
        value = shared / np.sqrt(cross_degree * half.cross_degree[alike])
        passes = self._passes(value)
        own = np.array([degree / cross_degree]) if self.rule.cross_diagonal else np.zeros(1)
        diagonal = float(own[0]) if self._passes(own)[0] else 0.0
        return alike[passes], value[passes], diagonal

    def _passes(self, value: Floats) -> NDArray[Any]:
        above = value > (0.0 if self.rule.epsilon is None else self.rule.epsilon)
        return above & (value < 1.0) if self.rule.cross_below_one else above


def _counts(nodes: NDArray[np.int32], n: int) -> tuple[Indices, Indices]:
    """Return the distinct nodes below n, ascending, and how often each comes; few are sorted, many counted."""
    if len(nodes) < n // 8:
        few, counts = np.unique(nodes, return_counts=True)
        return few.astype(np.int64), counts.astype(np.int64)
    every = np.bincount(nodes, minlength=n)
    counted = np.flatnonzero(every)
    return counted, every[counted]


@dataclass(frozen=True)
class Folded:
    """A folded-in node: its ``row`` of M, ``layers`` (L + 1, dim), ``gates`` α⁽¹⁾ … α⁽ᴸ⁾, ``ranked`` row (dim,).

    ``estimated``: layer 0 is the map's, from the items of a new user.
    """

    row: Row
    layers: Floats
    gates: Floats
    ranked: Rows
    length: float
    """The divisor of ``Σ w_l E⁽ˡ⁾``: its length if the loss is on cosines, else 1."""
    estimated: bool = False


class FoldIn:
    """Folds nodes into the graph of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        snapshot.require_no_weights("so it cannot fold in a new user or item, whose pairs have no weights")
        if snapshot.layers is None or snapshot.rule is None:
            raise DataError(
                f"model {snapshot.model} cannot fold in a new user or item: its embeddings depend on more than the "
                "graph; train one that can, such as dgcf or lightgcn."
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
        estimated = node is None and side == "user" and len(row.across) > 0
        if node is not None:
            layers[0] = stored[0, first + node]
        elif estimated:
            layers[0] = self.layer0_map.row(stored[0, other + row.across], self._item_degree[row.across])
        for layer in range(1, depth + 1):
            for nodes, weight in ((other + row.across, row.across_weight), (first + row.alike, row.alike_weight)):
                layers[layer] += (weight * self.layers.gate(layer, nodes)) @ stored[layer - 1, nodes]
            layers[layer] += row.own * gates[layer - 1] * layers[layer - 1]
        mean = self.snapshot.layer_weights(depth) @ layers
        length = max(float(np.linalg.norm(mean)), 1e-12) if self.snapshot.cosine else 1.0
        return Folded(row, layers, gates, (mean / length).astype(np.float32), length, estimated)

    def layer0_parts(self, row: Row, target: Floats) -> Floats:
        """Return what each item in the row of a new user adds to ``⟨E_n⁽⁰⁾, target⟩``."""
        items = self.layers.embeddings[0, self.snapshot.n_users + row.across]
        return self.layer0_map.parts(items, self._item_degree[row.across], target)

    @cached_property
    def layer0_map(self) -> Layer0Map:
        """The map from the items of a new user to the user's row of layer 0."""
        users, items = np.split(self.layers.embeddings[0], [self.snapshot.n_users])
        return layer0_map(users, items, self.snapshot.train)

    @property
    def _item_degree(self) -> Floats:
        return self.neighbours.degree("item")

    def with_items(self, snapshot: Snapshot) -> FoldIn:
        """Return the fold-in of a snapshot that has more items, none with a training pair."""
        wider = FoldIn(snapshot)
        wider.neighbours = self.neighbours.with_items(snapshot.train)
        if self.layers.gate_logits is not None:
            wider.__dict__["gate_lines"] = self.gate_lines
        wider.__dict__["layer0_map"] = self.layer0_map
        return wider

    def _first(self, side: Side) -> int:
        """Return the number of a side's first node."""
        return 0 if side == "user" else self.snapshot.n_users

    def _gates(self, side: Side, degree: int, node: int | None) -> Floats:
        depth = self.layers.depth
        if node is not None:
            return np.array([float(self.layers.gate(layer, self._first(side) + node)) for layer in range(1, depth + 1)])
        if self.layers.gate_logits is None:
            return np.ones(depth)
        logits = gates_at(self.gate_lines[side], np.array([degree]))[:, 0]
        return np.resize(sigmoid(logits), depth)  # shared gates have one line for all layers

    @cached_property
    def gate_lines(self) -> dict[Side, Floats]:
        """(n_gates, 2) per side: a and b of ``logit α = a + b log(1 + d)``, over nodes with a training pair."""
        return {"user": self._lines("user"), "item": self._lines("item")}

    def _lines(self, side: Side) -> Floats:
        assert self.layers.gate_logits is not None
        degree = self.neighbours.degree(side)
        first = self._first(side)
        return gate_lines(self.layers.gate_logits[:, first : first + len(degree)], degree)
