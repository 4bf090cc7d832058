"""Find the most similar users or items, by the cosine of their embeddings or by the weights between items."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Indices, Rows
from dgcf.ranking.topk import EmbeddingIndex, TopK, WeightIndex, fewest_left, top_k
from dgcf.ranking.weights import WeightMatrix


class Similarity(Protocol):
    """The similarity between the nodes of one side."""

    def nearest(self, idx: Indices, k: int) -> tuple[TopK, int]:
        """Return the k most similar others of each node, and the smallest number of candidates that any node had."""


class CosineSimilarity:
    """``⟨a, b⟩ / (‖a‖ ‖b‖)`` of two rows (n, dim)."""

    def __init__(self, rows: Rows) -> None:
        self.index = EmbeddingIndex(unit_rows(rows))

    def nearest(self, idx: Indices, k: int) -> tuple[TopK, int]:
        hidden = hide_itself(idx, len(self.index))
        return top_k(self.index, self.index.rows[idx], hidden, k), fewest_left(hidden)

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

    def _unrelated(self, items: Indices) -> Pairs:
        rows = [np.flatnonzero(self.index.scores(items[place : place + 1]) <= 0) for place in range(len(items))]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Pairs(indptr, np.concatenate(rows).astype(np.int32), len(self.index))


def unit_rows(rows: Rows) -> Rows:
    """Return the rows scaled to length one; a row of zeros stays."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def hide_itself(idx: Indices, n: int) -> Pairs:
    """Return a row for each node that holds the node alone."""
    return Pairs(np.arange(len(idx) + 1), idx.astype(np.int32), n)
