"""Item-kNN: items similar to those of the user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from dgcf.config import Between, require_range, tunable
from dgcf.data.pairs import Pairs
from dgcf.graph.crosshop.hubs import Hubs, require_feasible, split_hubs
from dgcf.models.base import SolvedModel
from dgcf.models.config import ModelConfig
from dgcf.ranking.rankings import ItemWeights
from dgcf.ranking.weights import SparseWeights

_BLOCK_WORK = 1 << 22  # multiply-adds of one block of rows; its product has at most as many entries
_CLASS_WORK = 1 << 27  # multiply-adds that a user with very many items must cause to be treated as a hub
MAX_NEIGHBOURS = 100_000
Indices = NDArray[np.int32]


@dataclass(frozen=True)
class ItemKNNConfig(ModelConfig):
    """Settings of item-kNN."""

    neighbours: int = tunable(100, Between(10, 1000, log=True))
    """Number k of neighbours kept per item."""
    shrinkage: float = tunable(10.0, Between(0.1, 1000.0, log=True))
    """Shrinkage h, which lowers the similarity of items with few users."""
    weighted: bool = False
    """Compare items by the weights of their users' pairs. Requires data with weights (``--weight-col``)."""

    def __post_init__(self) -> None:
        require_range("neighbours", self.neighbours, 1, MAX_NEIGHBOURS)
        require_range("shrinkage", self.shrinkage, 0, 1e12)

    @property
    def weight_setting(self) -> str | None:
        return "weighted" if self.weighted else None

    @property
    def memory_advice(self) -> str:
        return "keep fewer neighbours with --set neighbours=…"

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Return the bytes of the stored neighbours, and of two CSR copies while they are transposed."""
        return (8 + 2 * 12) * n_items * min(self.neighbours, n_items)


class ItemKNN(SolvedModel):
    """Item-based nearest neighbours (Sarwar et al., WWW 2001), with shrinkage as in Bell and Koren (ICDM 2007).

    ``c_ij = |U_i ∩ U_j| / (√(d_i d_j) + h)`` is the shrunk cosine of two items' users, d the number of these.
    ``s(u, i) = Σ_j c_ij`` over those items j of u that are among the k nearest of i; ties go to the smaller index.
    With ``weighted``, ``c_ij = Σ_u w_ui w_uj / (‖w_i‖ ‖w_j‖ + h)``, w_ui the weight of a pair; s stays a plain sum.
    Shapes: ``neighbours`` and ``likeness`` (n_items, k); unused places have likeness 0.
    """

    seeded = False
    config: ItemKNNConfig
    neighbours: Tensor
    likeness: Tensor

    def __init__(self, n_users: int, n_items: int, config: ItemKNNConfig) -> None:
        super().__init__(n_users, n_items, config)
        self.k = min(config.neighbours, n_items)
        self.register_buffer("neighbours", torch.zeros(n_items, self.k, dtype=torch.int32))
        self.register_buffer("likeness", torch.zeros(n_items, self.k))

    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        neighbours, likeness = self.neighbours.numpy(), self.likeness.numpy()
        neighbours[:], likeness[:] = 0, 0.0
        weight = pairs.require_weights("weighted") if self.config.weighted else None
        for item, others, near in nearest(pairs, self.k, self.config.shrinkage, weight):
            neighbours[item, : len(others)], likeness[item, : len(others)] = others, near

    def ranking(self, pairs: Pairs) -> ItemWeights:
        """Return the weights ``W[j, i] = c_ij`` for j among i's nearest: the stored rows, transposed."""
        near = self.likeness.numpy()
        kept = near > 0
        n_items, indptr = len(near), np.concatenate([[0], np.cumsum(kept.sum(1))])
        by_target = csr_array((near[kept], self.neighbours.numpy()[kept], indptr), shape=(n_items, n_items))
        W = by_target.T.tocsr()
        W.sort_indices()
        return ItemWeights(pairs, SparseWeights(W.indptr.astype(np.int64), W.indices.astype(np.int32), W.data, n_items))


def nearest(
    pairs: Pairs, k: int, shrinkage: float, weight: NDArray[np.float32] | None = None
) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.float64]]]:
    """Yield each item with its k nearest, ascending by index, and their similarity, computed in blocks."""
    X = pairs.to_scipy(weight)
    X.data = X.data.astype(np.int32 if weight is None else np.float64)
    # Weights have no classes of equal rows, so that no user is treated as a hub.
    class_work = float(max(k * pairs.n_items, _CLASS_WORK)) if weight is None else np.inf
    hubs = split_hubs(X.T.tocsr(), class_work)
    advice = "remove these users from the data, or choose another model"
    require_feasible(hubs.work, "item-knn", pairs.user_degrees, advice)
    by_item, by_user = hubs.light, hubs.light.T.tocsr()
    degree = pairs.item_degrees.astype(np.int64)
    squares = X.data.astype(np.float64) ** 2
    root = np.sqrt(np.bincount(X.indices, squares, minlength=pairs.n_items))
    hub_candidates = _HubCandidates(hubs, degree, k, shrinkage)
    work = np.concatenate([[0], np.cumsum(by_item @ np.diff(by_user.indptr))])
    start = 0
    while start < pairs.n_items:
        stop = max(start + 1, int(np.searchsorted(work, work[start] + _BLOCK_WORK, side="right")) - 1)
        shared = by_item[start:stop] @ by_user
        shared.sort_indices()
        for item in range(start, stop):
            row = slice(*shared.indptr[item - start : item - start + 2])
            others, count = shared.indices[row], shared.data[row]
            others, count = others[others != item], count[others != item]
            if hubs.count:
                others, count = hub_candidates.added(item, others, count)
            near = count / (root[item] * root[others] + shrinkage)
            best = largest(near, k)
            yield item, others[best], near[best]
        start = stop


class _HubCandidates:
    """Candidates that share only hubs (users with very many items) with an item.

    Their similarity depends on the pattern of hubs and the degree alone, so items with the same two are a class. Of
    each class only the first items by index can be among the k nearest.
    """

    def __init__(self, hubs: Hubs, degree: NDArray[np.int64], k: int, shrinkage: float) -> None:
        self.hubs, self.degree, self.k, self.shrinkage = hubs, degree, k, shrinkage
        keys, members = np.unique(np.stack([hubs.pattern, degree]), axis=1, return_inverse=True)
        self.pattern, self.root = keys[0], np.sqrt(keys[1].astype(np.float64))
        self.members = np.argsort(members.ravel(), kind="stable").astype(np.int32)
        self.ends = np.cumsum(np.bincount(members.ravel()))
        self._ranked: dict[tuple[int, int], tuple[int, NDArray[np.int32]]] = {}

    def added(self, item: int, others: Indices, count: Indices) -> tuple[Indices, Indices]:
        """Return the items that may be among the k nearest, ascending, and the users they share with ``item``."""
        pattern = self.hubs.pattern
        candidates = self._candidates(item, self.k + 1 + len(others))
        candidates = candidates[~np.isin(candidates, others) & (candidates != item)][: self.k]
        count = count + self.hubs.shared(pattern[item], pattern[others])
        others = np.concatenate([others, candidates])
        count = np.concatenate([count, self.hubs.shared(pattern[item], pattern[candidates])])
        order = np.argsort(others)
        return others[order], count[order]

    def _candidates(self, item: int, needed: int) -> Indices:
        """Return at least ``needed`` items (if so many exist), by similarity through hubs, then by index."""
        key = int(self.degree[item]), int(self.hubs.pattern[item])
        size, ranking = self._ranked.get(key, (0, np.zeros(0, dtype=np.int32)))
        if size < needed:
            size = 1 << needed.bit_length()
            ranking = self._ranking(item, size)
            self._ranked[key] = size, ranking
        return ranking

    def _ranking(self, item: int, needed: int) -> Indices:
        shared = self.hubs.shared(self.hubs.pattern[item], self.pattern)
        near = shared / (np.sqrt(float(self.degree[item])) * self.root + self.shrinkage)
        ranking: list[Indices] = []
        for likeness in -np.unique(-near[shared > 0]):
            classes = np.flatnonzero((near == likeness) & (shared > 0))
            spans = [(self.ends[number - 1] if number else 0, self.ends[number]) for number in classes]
            members = np.concatenate([self.members[first : min(first + needed, end)] for first, end in spans])
            ranking.append(np.sort(members)[:needed])
            if sum(map(len, ranking)) >= needed:
                break
        return np.concatenate(ranking)[:needed] if ranking else np.zeros(0, dtype=np.int32)


def largest(values: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return the positions of the k largest values, ascending; ties at the end go to the first."""
    if len(values) <= k:
        return np.arange(len(values))
    last = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > last)
    return np.sort(np.concatenate([above, np.flatnonzero(values == last)[: k - len(above)]]))
