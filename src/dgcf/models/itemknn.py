"""Item-kNN: an item is recommended for the nearest of the items that a user has; the classic of the shops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from dgcf.config import Between, require_range, tuned
from dgcf.data.pairs import Pairs
from dgcf.data.rows import SparseRows
from dgcf.models.base import AtOnceModel, ItemWeights

_BLOCK_WORK = 1 << 22  # multiply-adds of one block of rows, whose product has at most as many entries
MAX_NEIGHBOURS = 100_000


@dataclass(frozen=True)
class ItemKNNConfig:
    """What shapes an item-kNN."""

    neighbours: int = tuned(100, Between(10, 1000, log=True))
    """k: how many items are kept as neighbours of each."""
    shrinkage: float = tuned(10.0, Between(0.1, 1000.0, log=True))
    """h: pulls the likeness of items that few users have towards zero."""

    def __post_init__(self) -> None:
        require_range("neighbours", self.neighbours, 1, MAX_NEIGHBOURS)
        require_range("shrinkage", self.shrinkage, 0, 1e12)

    @property
    def instead(self) -> str:
        return "keep fewer with --set neighbours=…"

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Neighbours as they are stored, and twice as compressed rows while these are transposed."""
        return (8 + 2 * 12) * n_items * min(self.neighbours, n_items)


class ItemKNN(AtOnceModel):
    """Item-based nearest neighbours (Sarwar et al., WWW 2001), with shrinkage as in Bell and Koren (ICDM 2007).

    ``c_ij = |U_i ∩ U_j| / (√(d_i d_j) + h)`` is the shrunk cosine of two items' users, d the number of these.
    ``s(u, i) = Σ_j c_ij`` over those items j of u that are among the k nearest of i; of equally near ones, those with
    the smaller index. Shapes: ``neighbours`` and ``likeness`` (n_items, k), a place that is left over has likeness 0.
    """

    seeded = False
    neighbours: Tensor
    likeness: Tensor

    def __init__(self, n_users: int, n_items: int, config: ItemKNNConfig) -> None:
        super().__init__()
        self.config, self.k = config, min(config.neighbours, n_items)
        self.register_buffer("neighbours", torch.zeros(n_items, self.k, dtype=torch.int32))
        self.register_buffer("likeness", torch.zeros(n_items, self.k))

    def solve(self, pairs: Pairs, seed: int) -> None:
        neighbours, likeness = self.neighbours.numpy(), self.likeness.numpy()
        neighbours[:], likeness[:] = 0, 0.0
        for item, others, near in nearest(pairs, self.k, self.config.shrinkage):
            neighbours[item, : len(others)], likeness[item, : len(others)] = others, near

    def ranking(self, pairs: Pairs) -> ItemWeights:
        """``W[j, i] = c_ij`` where j is one of i's nearest: the rows as they are stored, transposed."""
        near = self.likeness.numpy()
        kept = near > 0
        n_items, indptr = len(near), np.concatenate([[0], np.cumsum(kept.sum(1))])
        by_target = csr_array((near[kept], self.neighbours.numpy()[kept], indptr), shape=(n_items, n_items))
        W = by_target.T.tocsr()
        W.sort_indices()
        return ItemWeights(pairs, SparseRows(W.indptr.astype(np.int64), W.indices.astype(np.int32), W.data, n_items))


def nearest(pairs: Pairs, k: int, shrinkage: float) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.float64]]]:
    """Each item with its k nearest, ascending by index, and their likeness; no more than a block is ever held."""
    X = pairs.to_scipy()
    X.data = X.data.astype(np.int32)
    Xt = X.T.tocsr()
    root = np.sqrt(pairs.item_degrees.astype(np.float64))
    work = np.concatenate([[0], np.cumsum(Xt @ pairs.user_degrees)])
    start = 0
    while start < pairs.n_items:
        stop = max(start + 1, int(np.searchsorted(work, work[start] + _BLOCK_WORK, side="right")) - 1)
        shared = Xt[start:stop] @ X
        shared.sort_indices()
        for item in range(start, stop):
            row = slice(*shared.indptr[item - start : item - start + 2])
            others, count = shared.indices[row], shared.data[row]
            others, count = others[others != item], count[others != item]
            near = count / (root[item] * root[others] + shrinkage)
            best = largest(near, k)
            yield item, others[best], near[best]
        start = stop


def largest(values: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """The places of the k largest, ascending; of equals at the end, the first."""
    if len(values) <= k:
        return np.arange(len(values))
    last = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > last)
    return np.sort(np.concatenate([above, np.flatnonzero(values == last)[: k - len(above)]]))
