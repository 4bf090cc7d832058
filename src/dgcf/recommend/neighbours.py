"""Rows of ``M = L + Lc + I`` for one node at a time, known or new, from the training pairs: no matrix is stored.

Fold-in and explanations need a single row each. It follows from the node's neighbours and the training graph's
degrees, by the same formulas in the same precision as the trained operator, so a known node gets exactly its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs, row_entries
from dgcf.ranking.arrays import Floats, Indices, Side
from dgcf.recommend.snapshot import GraphRule


@dataclass(frozen=True)
class Row:
    """One row of M: of a user, ``across`` are items (L) and ``alike`` other users (Lc); of an item the reverse.

    All indices count from 0 on their own side. ``own`` is the diagonal entry: the I and that of Lc.
    """

    across: Indices
    across_weight: Floats
    alike: Indices
    alike_weight: Floats
    own: float


@dataclass(frozen=True)
class _Half:
    """One side of the bipartite graph: who a node of this side met, and the degrees d and dc of this side."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    degree: Floats
    cross_degree: Floats

    def met(self, nodes: Indices) -> NDArray[np.int32]:
        """The neighbours of all ``nodes``, one list after the other."""
        return np.asarray(self.indices[row_entries(self.indptr, nodes)[0]])


class Neighbours:
    """The training graph, ready to give rows of M."""

    def __init__(self, train: Pairs, rule: GraphRule) -> None:
        self.train, self.rule = train, rule

    @cached_property
    def _halves(self) -> dict[Side, _Half]:
        user_degree = self.train.user_degrees.astype(np.float64)
        item_degree = self.train.item_degrees.astype(np.float64)
        R = self.train.to_scipy()
        Rt = R.T.tocsr()
        # dc = A (A 1): sums of whole numbers, exact in float64 whatever their order
        user_cross = np.asarray(R.astype(np.float64) @ item_degree)
        item_cross = np.asarray(Rt.astype(np.float64) @ user_degree)
        return {
            "user": _Half(R.indptr.astype(np.int64), R.indices, user_degree, user_cross),
            "item": _Half(Rt.indptr.astype(np.int64), Rt.indices, item_degree, item_cross),
        }

    def degree(self, side: Side) -> Floats:
        """How many training neighbours each node of a side has."""
        return self._halves[side].degree

    def met(self, side: Side, node: int) -> Indices:
        """The training neighbours of one node, ascending."""
        return self._halves[side].met(np.array([node])).astype(np.int64)

    def row(self, side: Side, across: Indices, node: int | None = None) -> Row:
        """The row of a node of ``side`` whose neighbours are ``across`` (ascending, each once).

        ``node`` is its index if it is a known one, which then is no neighbour of itself. Degrees of all others are
        those of the training graph: a new node sees the graph as it is, the graph does not see the new node.
        """
        other = self._halves["item" if side == "user" else "user"]
        reached = across[other.degree[across] > 0]  # one that nobody met in training has learned nothing to send
        degree, cross_degree = float(len(reached)), float(other.degree[reached].sum())
        scale = 1.0 / np.sqrt(degree * other.degree[reached]) if self.rule.direct else np.zeros(len(reached))
        alike, alike_weight, diagonal = self._cross(side, reached, degree, cross_degree, node)
        return Row(reached, scale, alike, alike_weight, float(self.rule.self_loop) + diagonal)

    def _cross(
        self, side: Side, across: Indices, degree: float, cross_degree: float, node: int | None
    ) -> tuple[Indices, Floats, float]:
        """``Lc_nv = |n ∩ v| / √(dc_n dc_v)`` of the other nodes v of this side that pass the filter, and Lc_nn."""
        nobody = np.zeros(0, dtype=np.int64)
        if not self.rule.cross or cross_degree == 0:
            return nobody, np.zeros(0), 0.0
        half, other = self._halves[side], self._halves["item" if side == "user" else "user"]
        shared = np.bincount(other.met(across), minlength=len(half.degree))
        if node is not None:
            shared[node] = 0
        alike = np.flatnonzero(shared)
        value = shared[alike] / np.sqrt(cross_degree * half.cross_degree[alike])
        passes = self._passes(value)
        own = np.array([degree / cross_degree]) if self.rule.cross_diagonal else np.zeros(1)
        diagonal = float(own[0]) if self._passes(own)[0] else 0.0
        return alike[passes], value[passes], diagonal

    def _passes(self, value: Floats) -> NDArray[Any]:
        above = value > (0.0 if self.rule.epsilon is None else self.rule.epsilon)
        return above & (value < 1.0) if self.rule.cross_below_one else above
