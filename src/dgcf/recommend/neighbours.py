"""Compute rows of ``M = L + Lc + I`` for single nodes, known or new, from the training pairs.

Fold-in and explanations need one row at a time, so no matrix is stored. A row follows from the node's neighbours and
the degrees of the training graph, by the formulas and in the precision of the trained operator: a known node gets
exactly its row.
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
    """The training graph, from which rows of M are computed."""

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
        shared = np.bincount(other.neighbours(across), minlength=len(half.degree))
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
