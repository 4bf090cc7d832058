"""Rank under rules: restricted items, boosts, at most n items of a group, and re-ranking by MMR.

Every step is exact and concerns one query alone, so a user's list is the same alone or among all users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs, distinct, row_entries
from dgcf.ranking.arrays import Floats, Indices, Rows
from dgcf.ranking.boost import boosted_index, boosted_queries, take_queries
from dgcf.ranking.similarity import Similarity
from dgcf.ranking.topk import NUMPY, Backend, ItemIndex, Subset, TopK, rows_at_once, top_k

UNIT_RANK = 100
"""A boost of 1 is the difference between the best score of a user and this one, counted from the best."""
_CANDIDATES = 2**13  # of several queries, re-ranked at once: what their similarities read fits into a cache


@dataclass(frozen=True, eq=False)
class Limit:
    """At most ``n`` items of each group; ``group`` (n_items,) numbers them from 0, −1 for an item of none."""

    group: Indices
    n: int

    @cached_property
    def members(self) -> tuple[Indices, Indices]:
        """The items of each group as compressed rows: where they begin, and all items."""
        order = np.argsort(self.group, kind="stable")
        return np.searchsorted(self.group[order], np.arange(self.n_groups + 1)), order

    @cached_property
    def n_groups(self) -> int:
        return int(self.group.max(initial=-1)) + 1


@dataclass(frozen=True, eq=False)
class ItemRules:
    """Rules by item index: ``allowed`` (n_items,), limits, ``boost`` (n_items,) or None, and MMR.

    ``notes`` are for the reader: what was ignored while the rules were read.
    """

    allowed: NDArray[np.bool_]
    limits: tuple[Limit, ...] = ()
    boost: Rows | None = None
    mmr: float = 0.0
    mmr_candidates: int = 100
    notes: tuple[str, ...] = field(default=(), compare=False)

    def arrays(self) -> list[NDArray[Any]]:
        """Return all that decides a ranking."""
        limits = [array for limit in self.limits for array in (limit.group, np.array([limit.n]))]
        boost = [] if self.boost is None else [self.boost]
        return [self.allowed, *limits, *boost, np.array([self.mmr, self.mmr_candidates])]


class Ranker:
    """Ranks the items of an index under rules; ``similarity`` is that of the items, which MMR needs."""

    def __init__(self, index: ItemIndex[Any], rules: ItemRules, similarity: Similarity | None = None) -> None:
        self.index, self.rules, self.similarity = index, rules, similarity
        boosted = index if rules.boost is None else boosted_index(index, rules.boost)
        self._subset = Subset(boosted, rules.allowed)

    def top_k(self, queries: Any, hidden: Pairs, k: int, backend: Backend = NUMPY) -> TopK:
        """Return the k best items of each query without its row of ``hidden``, best first or as MMR orders them."""
        rules = self.rules
        if rules.boost is not None:
            queries = boosted_queries(queries, self._units(queries, hidden, backend))
        width = max(k, rules.mmr_candidates) if rules.mmr else k
        if rules.limits:
            best = top_k_limited(self._subset, queries, hidden, width, rules.limits, backend)
        else:
            best = top_k(self._subset, queries, hidden, width, backend)
        return best if self.similarity is None or not rules.mmr else mmr(best, k, rules.mmr, self.similarity)

    def _units(self, queries: Any, hidden: Pairs, backend: Backend) -> Rows:
        """Return what a boost of 1 adds to a score of each query, (n,); 1 where the best scores are equal."""
        scores = top_k(self.index, queries, hidden, UNIT_RANK, backend).scores
        last = np.where(np.isfinite(scores), scores, np.inf).min(1, initial=np.inf)
        spread = scores.max(1, initial=-np.inf) - last
        return np.where(spread > 0, spread, 1.0).astype(np.float32)


def top_k_limited(
    index: ItemIndex[Any],
    queries: Any,
    hidden: Pairs,
    k: int,
    limits: Sequence[Limit],
    backend: Backend = NUMPY,
) -> TopK:
    """Return the first k items of each query's ranking, passing over an item that has a full group.

    The best 2 k items are looked through; where too few of them were taken, the ranking is searched again without what
    was taken and without the items of full groups. Each search takes one item at least, so k of them suffice.
    """
    n, n_items, k = hidden.n_users, hidden.n_items, min(k, len(index))
    best = TopK(np.full((n, k), -1, dtype=np.int64), np.full((n, k), -np.inf))
    block = rows_at_once(n_items)  # or the items of full groups could be as many as users times items
    for start in range(0, n, block):
        pending = np.arange(start, min(start + block, n))
        while len(pending):
            lists = TopK(best.item_idx[pending], best.scores[pending])
            without = hidden.take(pending).union(_closed(lists.item_idx, limits, n_items))
            ranked = top_k(index, take_queries(queries, pending), without, 2 * k, backend)
            _append(lists, ranked, limits)
            best.item_idx[pending], best.scores[pending] = lists
            more = (lists.item_idx[:, -1:] < 0) & (ranked.item_idx[:, -1:] >= 0)
            pending = pending[more.any(1)]
    return best


def _closed(lists: Indices, limits: Sequence[Limit], n_items: int) -> Pairs:
    """Return the items that cannot be added to each of the ``lists`` (n, k): those in it, and all of full groups."""
    row, place = np.nonzero(lists >= 0)
    item = lists[row, place]
    keys = [row * n_items + item]
    for limit in limits:
        of_row, group = row[limit.group[item] >= 0], limit.group[item][limit.group[item] >= 0]
        slot, count = np.unique(of_row * limit.n_groups + group, return_counts=True)
        of_row, group = np.divmod(slot[count >= limit.n], max(limit.n_groups, 1))
        indptr, items = limit.members
        entries, sizes = row_entries(indptr, group)
        keys.append(np.repeat(of_row, sizes) * n_items + items[entries])
    return Pairs.from_keys(distinct(np.concatenate(keys)), len(lists), n_items)


def _append(lists: TopK, ranked: TopK, limits: Sequence[Limit]) -> None:
    """Append the ranked items (n, m) to the lists (n, k), in their order, as far as they and their groups have room."""
    k = lists.item_idx.shape[1]
    size = (lists.item_idx >= 0).sum(1)
    counters = [(*_count(lists.item_idx, ranked.item_idx, limit), limit.n) for limit in limits]
    for place in range(ranked.item_idx.shape[1]):
        room = (ranked.item_idx[:, place] >= 0) & (size < k)
        for slot, count, n in counters:
            room &= count[slot[:, place]] < n
        row = np.flatnonzero(room)
        if not len(row) and (size == k).all():
            return
        lists.item_idx[row, size[row]] = ranked.item_idx[row, place]
        lists.scores[row, size[row]] = ranked.scores[row, place]
        size[row] += 1
        for slot, count, _ in counters:
            count[slot[row, place]] += 1
            count[0] = 0


def _count(lists: Indices, ranked: Indices, limit: Limit) -> tuple[Indices, Indices]:
    """Return the slot (n, m) of each ranked item, and the number of items that the lists have in each slot.

    A slot is a group of one list; slot 0, of items without a group, is never full.
    """

    def keys(items: Indices) -> Indices:
        group = np.where(items >= 0, limit.group[items], -1)
        return np.where(group >= 0, np.arange(len(items))[:, None] * limit.n_groups + group, -1)

    known, slot = np.unique(np.append(-1, keys(ranked)), return_inverse=True)
    taken = keys(lists)
    place = np.minimum(np.searchsorted(known, taken), len(known) - 1)
    count = np.bincount(place[(known[place] == taken) & (taken >= 0)], minlength=len(known))
    return slot.ravel()[1:].reshape(ranked.shape), count


def mmr(best: TopK, k: int, weight: float, similarity: Similarity) -> TopK:
    """Choose k of the ranked items (n, m) one by one, by maximal marginal relevance.

    The next item is the one with the largest ``(1 − λ) r_i − λ max_j c_ji`` over the items j chosen before, the first
    in the ranking among equals. λ is the ``weight``; ``r_i`` is the score, scaled to 0 … 1 over the m items; ``c_ji``
    is the similarity of i to j, and the maximum is 0 for the first item (Carbonell and Goldstein, 1998, whose λ is
    1 − λ). Scores stay as they were.
    """
    n, m = best.item_idx.shape
    k = min(k, m)
    chosen = TopK(np.full((n, k), -1, dtype=np.int64), np.full((n, k), -np.inf))
    block = max(1, _CANDIDATES // max(m, 1))
    for start in range(0, n, block):
        part = slice(start, start + block)
        items, scores = best.item_idx[part], best.scores[part]
        among = similarity.among(np.maximum(items, 0))
        relevance, left, row = _scaled(scores), items >= 0, np.arange(len(items))
        closest = np.zeros(items.shape)
        for rank in range(k):
            value = np.where(left, (1 - weight) * relevance - weight * closest, -np.inf)
            place = value.argmax(1)
            taken = np.flatnonzero(left[row, place])
            chosen.item_idx[part][taken, rank] = items[taken, place[taken]]
            chosen.scores[part][taken, rank] = scores[taken, place[taken]]
            left[row, place] = False
            closest = np.maximum(closest, among(place)) if rank else among(place)
    return chosen


def _scaled(scores: Floats) -> Floats:
    """Return the finite scores of each row, scaled to 0 … 1; zeros if they are equal."""
    finite = np.isfinite(scores)
    low = np.where(finite, scores, np.inf).min(1, keepdims=True, initial=np.inf)
    spread = np.where(finite, scores, -np.inf).max(1, keepdims=True, initial=-np.inf) - low
    scaled = np.zeros(scores.shape)
    np.divide(scores - low, spread, out=scaled, where=finite & (spread > 0))
    return scaled
