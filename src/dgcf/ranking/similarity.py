"""Find the most similar users or items, by the cosine of their embeddings or by the weights between items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Floats, Indices, Rows
from dgcf.ranking.topk import EmbeddingIndex, TopK, WeightIndex, fewest_left, top_k
from dgcf.ranking.weights import WeightMatrix

Among = Callable[[Indices], Floats]
"""Returns how similar the candidates (n, m) are to the one at a place (n,) of each row."""


class Similarity(Protocol):
    """The similarity between the nodes of one side."""

    def nearest(self, idx: Indices, k: int) -> tuple[TopK, int]:
        """Return the k most similar others of each node, and the smallest number of candidates that any node had."""

    def among(self, candidates: Indices) -> Among:
        """Return the similarities between the nodes of each row of ``candidates`` (n, m): equal bits in any batch."""


class CosineSimilarity:
    """``⟨a, b⟩ / (‖a‖ ‖b‖)`` of two rows (n, dim)."""

    def __init__(self, rows: Rows) -> None:
        self.index = EmbeddingIndex(unit_rows(rows))

    def nearest(self, idx: Indices, k: int) -> tuple[TopK, int]:
        hidden = hide_itself(idx, len(self.index))
        return top_k(self.index, self.index.rows[idx], hidden, k), fewest_left(hidden)

    def among(self, candidates: Indices) -> Among:
        return cosines_among(self.index.rows, candidates)

    def nearest_to(self, rows: Rows, k: int) -> TopK:
        """Return the k nodes most similar to each of ``rows`` (n, dim), which are no nodes themselves."""
        return top_k(self.index, unit_rows(rows), Pairs.empty(len(rows), len(self.index)), k)


class WeightSimilarity:
    """W[j, i]: what having item j alone adds to the score of item i; an item that it adds nothing to is not similar."""

    def __init__(self, weights: WeightMatrix) -> None:
        self.index = WeightIndex(weights)

    def nearest(self, idx: Indices, k: int) -> tuple[TopK, int]:
        itself = hide_itself(idx, len(self.index))
        hidden = itself.union(self._unrelated(idx))
        return top_k(self.index, itself, hidden, k), fewest_left(hidden)

    def among(self, candidates: Indices) -> Among:
        return weights_among(self.index.weights, candidates)

    def _unrelated(self, items: Indices) -> Pairs:
        rows = [np.flatnonzero(self.index.scores(items[place : place + 1]) <= 0) for place in range(len(items))]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Pairs(indptr, np.concatenate(rows).astype(np.int32), len(self.index))


def cosines_among(unit_rows: Rows, candidates: Indices) -> Among:
    """Return the cosines of candidates (n, m), which are rows of length one."""
    rows = unit_rows[candidates].astype(np.float64)

    def among(place: Indices) -> Floats:
        chosen = rows[np.arange(len(rows)), place]
        # Not a product of matrices, whose rounding depends on the shape.
        return np.asarray((rows * chosen[:, None]).sum(axis=2))

    return among


def weights_among(weights: WeightMatrix, candidates: Indices) -> Among:
    """Return the weights W[j, i] of candidates i (n, m), where j is the chosen one."""

    def among(place: Indices) -> Floats:
        chosen = candidates[np.arange(len(candidates)), place]
        return np.stack([weights.row(row, items) for row, items in zip(chosen.tolist(), candidates, strict=True)])

    return among


def unit_rows(rows: Rows) -> Rows:
    """Return the rows scaled to length one; a row of zeros stays."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def hide_itself(idx: Indices, n: int) -> Pairs:
    """Return a row for each node that holds the node alone."""
    return Pairs(np.arange(len(idx) + 1), idx.astype(np.int32), n)
