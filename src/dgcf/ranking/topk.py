"""The exact masked top-k, with NumPy or torch: the same items, order and scores to the bit, whatever computes it.

A query is a row of an embedding, or a set of items whose weights are summed. Inner products in float32 depend on the
kernel and the shape of the product that made them. So a backend only chooses candidates with them: everything that
could be among the k best given the largest possible rounding error. The candidates are scored again in float64, each
on its own, and ordered by that score, then by item. Sums of weights are float64 from the start, and added in one
order. Hence one query or a thousand at a time, on a CPU or a GPU, give the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Floats, Indices, Rows
from dgcf.ranking.scratch import SCRATCH
from dgcf.ranking.weights import WeightMatrix

_BLOCK_SCORES = 2**22  # scores held at once: 16 MiB, which suits a core's caches and BLAS
_RESCORED = 2**21  # numbers gathered at once while candidates are scored again
_DIRECT_ITEMS = 512  # so few are compared one by one
_FEW = 2  # queries that are not worth a threaded product


class TopK(NamedTuple):
    """``item_idx`` (n, k) int64, best first, −1 where no candidate is left; ``scores`` (n, k) float64, −∞ there."""

    item_idx: Indices
    scores: Floats

    def take(self, rows: Indices) -> TopK:
        """Return some of the lists."""
        return TopK(self.item_idx[rows], self.scores[rows])


class Candidates(NamedTuple):
    """Pairs of a query's number and an item, queries ascending."""

    query: Indices
    item: Indices


Query = TypeVar("Query", contravariant=True)


class ItemIndex(Protocol[Query]):
    """The items that can be ranked, and how queries score them."""

    def __len__(self) -> int: ...

    def restrict(self, items: Indices) -> ItemIndex[Query]:
        """Return an index of some of the items alone, numbered from 0 in the order given."""

    def search(self, queries: Query, hidden: Pairs, k: int, backend: Backend) -> tuple[Candidates, Floats]:
        """Return a superset of each query's k best items that are not hidden, and the exact score of each."""


class Backend(Protocol):
    """Finds candidates by embeddings: a superset of each query's k best items by exact score."""

    def candidates(self, index: EmbeddingIndex, queries: Rows, hidden: Pairs, k: int) -> Candidates:
        """Return the candidates of each query; ``hidden`` has a row per query, the items to leave out."""


@dataclass(frozen=True, eq=False)
class EmbeddingIndex:
    """Items by their embeddings: ``rows`` (n_items, dim) float32, contiguous; queries are rows (n, dim)."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def restrict(self, items: Indices) -> EmbeddingIndex:
        return EmbeddingIndex(self.rows[items])

    def search(self, queries: Rows, hidden: Pairs, k: int, backend: Backend) -> tuple[Candidates, Floats]:
        candidates = backend.candidates(self, queries, hidden, k)
        return candidates, exact_scores(queries, self.rows, candidates)

    @cached_property
    def columns(self) -> Rows:
        """(dim, padded): transposed, and padded to whole groups, once for all products."""
        columns = np.zeros((self.rows.shape[1], padded(len(self))), dtype=np.float32)
        columns[:, : len(self.rows)] = self.rows.T
        return columns

    @cached_property
    def longest(self) -> float:
        """The greatest length of a row, which bounds the rounding error of any score."""
        return float(np.sqrt(np.square(self.rows, dtype=np.float64).sum(1).max(initial=0.0)))

    def scores(self, queries: Rows, out: Rows) -> None:
        """Write ``⟨q, e⟩`` in float32 into ``out`` (n, padded), and −∞ into the padding."""
        n_items = len(self.rows)
        if len(queries) <= _FEW:
            # One query is too little work to share: on a busy machine BLAS waits longer for its threads than it works.
            for query, row in zip(queries, out, strict=True):
                np.einsum("d,nd->n", query, self.rows, out=row[:n_items])
        else:
            np.matmul(queries, self.columns, out=out)
        out[:, n_items:] = -np.inf

    def slack(self, queries: Rows) -> Floats:
        """Bound how far float32 scores of each query may lie from exact ones, (n,): above ``γ_d ‖q‖ ‖e‖``."""
        lengths = np.sqrt(np.square(queries, dtype=np.float64).sum(1))
        return np.asarray((queries.shape[1] + 2) * 2.0**-23 * self.longest * lengths)


@dataclass(frozen=True, eq=False)
class WeightIndex:
    """Items by the weights that other items give them: W (n_items, n_items), or some of its ``columns``.

    Queries are sets of items.
    """

    weights: WeightMatrix
    columns: Indices | None = None

    def __len__(self) -> int:
        return self.weights.shape[1] if self.columns is None else len(self.columns)

    def restrict(self, items: Indices) -> WeightIndex:
        return WeightIndex(self.weights, items if self.columns is None else self.columns[items])

    def scores(self, items: NDArray[np.integer]) -> Floats:
        """Return the sum of the weights of ``items``, (len(self),)."""
        scores = self.weights.sum_rows(items)
        return scores if self.columns is None else scores[self.columns]

    def search(self, queries: Pairs, hidden: Pairs, k: int, backend: Backend) -> tuple[Candidates, Floats]:
        """Return candidates and scores, which are exact and computed on the CPU by any ``backend``."""
        n_items = len(self)
        block = rows_at_once(n_items)
        candidates: list[Candidates] = []
        exact: list[Floats] = []
        for start in range(0, queries.n_users, block):
            stop = min(start + block, queries.n_users)
            scores = np.full((stop - start, padded(n_items)), -np.inf)
            for row, query in zip(scores, range(start, stop), strict=True):
                row[:n_items] = self.scores(queries[query])
            hide(scores, hidden, start, stop)
            part = candidates_above(scores, groups(n_items), k, np.zeros(stop - start))
            candidates.append(Candidates(part.query + start, part.item))
            exact.append(scores[part.query, part.item])
        return _joined(candidates), np.concatenate(exact)


@dataclass(frozen=True, eq=False)
class Subset(Generic[Query]):
    """The ``allowed`` items (n_items,) of an index alone, with the numbers that they have there."""

    index: ItemIndex[Query]
    allowed: NDArray[np.bool_]

    @cached_property
    def items(self) -> Indices:
        return np.flatnonzero(self.allowed)

    @cached_property
    def _restricted(self) -> ItemIndex[Query]:
        return self.index if len(self) == len(self.index) else self.index.restrict(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def restrict(self, items: Indices) -> ItemIndex[Query]:
        return self.index.restrict(self.items[items])

    def within(self, pairs: Pairs) -> Pairs:
        """Return the pairs of allowed items, numbered from 0."""
        if len(self) == len(self.allowed):
            return pairs
        keep = self.allowed[pairs.indices]
        indptr = np.concatenate([[0], np.cumsum(keep)])[pairs.indptr].astype(np.int64)
        return Pairs(indptr, (np.cumsum(self.allowed) - 1)[pairs.indices[keep]].astype(np.int32), len(self))

    def search(self, queries: Query, hidden: Pairs, k: int, backend: Backend) -> tuple[Candidates, Floats]:
        candidates, exact = self._restricted.search(queries, self.within(hidden), k, backend)
        return Candidates(candidates.query, self.items[candidates.item]), exact


def rows_at_once(n_items: int) -> int:
    """Return the number of queries whose scores are held at once."""
    return max(1, _BLOCK_SCORES // max(n_items, 1))


def groups(n_items: int) -> int:
    """Return the number of groups G near √(32 n); item i is of group i mod G. Few maxima to order, few members each."""
    return n_items if n_items <= _DIRECT_ITEMS else 1 << (int(np.sqrt(32 * n_items)).bit_length() - 1)


def padded(n_items: int) -> int:
    """Return the number of items, rounded up to whole groups."""
    return -(-n_items // groups(n_items)) * groups(n_items)


class NumpyBackend:
    """Candidates by one product and a threshold, in blocks of queries.

    The k-th largest of the groups' maxima is a lower bound t on the k-th best score, for k groups each have an item
    at least as good. So only items of groups whose maximum is at least t (less the rounding error) are compared.
    """

    def candidates(self, index: EmbeddingIndex, queries: Rows, hidden: Pairs, k: int) -> Candidates:
        n_items = len(index.rows)
        block = rows_at_once(n_items)
        slack = index.slack(queries)
        buffer = SCRATCH.array("scores", (min(block, len(queries)), padded(n_items)), np.float32)
        candidates = []
        for start in range(0, len(queries), block):
            stop = min(start + block, len(queries))
            scores = buffer[: stop - start]
            index.scores(queries[start:stop], scores)
            hide(scores, hidden, start, stop)
            part = candidates_above(scores, groups(n_items), k, slack[start:stop])
            candidates.append(Candidates(part.query + start, part.item))
        return _joined(candidates)


NUMPY = NumpyBackend()


def top_k(index: ItemIndex[Query], queries: Query, hidden: Pairs, k: int, backend: Backend = NUMPY) -> TopK:
    """Return the k best items of each query without its row of ``hidden``.

    Larger exact scores come first, of equal ones the smaller index. There are at most as many columns as items.
    """
    n, k = hidden.n_users, min(k, len(index))
    item_idx = np.full((n, k), -1, dtype=np.int64)
    scores = np.full((n, k), -np.inf)
    if n and len(index):
        candidates, exact = index.search(queries, hidden, k, backend)
        order = np.lexsort((candidates.item, -exact, candidates.query))
        query = candidates.query[order]
        place = np.arange(len(query)) - np.searchsorted(query, query)
        kept = place < k
        item_idx[query[kept], place[kept]] = candidates.item[order][kept]
        scores[query[kept], place[kept]] = exact[order][kept]
    return TopK(item_idx, scores)


def joined(parts: Sequence[TopK]) -> TopK:
    """Return the lists of all parts, which have as many columns."""
    return TopK(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def fewest_left(hidden: Pairs) -> int:
    """Return the smallest number of items that a query has left."""
    return hidden.n_items - int(hidden.user_degrees.max(initial=0))


def one_query(items: Indices, n_items: int) -> Pairs:
    """Return the items of a single query as ``Pairs``."""
    return Pairs(np.array([0, len(items)]), items.astype(np.int32), n_items)


def hide(scores: Rows | Floats, hidden: Pairs, start: int, stop: int) -> None:
    """Write −∞ over the hidden items of the queries from ``start`` to ``stop``, one row of ``scores`` each."""
    first, last = hidden.indptr[start], hidden.indptr[stop]
    row = np.repeat(np.arange(stop - start), np.diff(hidden.indptr[start : stop + 1]))
    scores[row, hidden.indices[first:last]] = -np.inf


def candidates_above(scores: Rows | Floats, groups: int, k: int, slack: Floats) -> Candidates:
    """Return the items of each row of ``scores`` (n, padded) that may be among its k best."""
    n, padded = scores.shape
    by_group = scores.reshape(n, padded // groups, groups)
    maxima = by_group.max(axis=1)
    if k < groups:
        bound = np.partition(maxima, groups - k, axis=1)[:, groups - k].astype(np.float64)
    else:
        bound = np.full(n, -np.inf)
    # Where fewer than k groups have a candidate the bound is −∞, and all that is not hidden is one.
    limit = np.nextafter((bound - 2 * slack).astype(np.float32), np.float32(-np.inf))
    limit = np.maximum(limit, np.finfo(np.float32).min)
    query, group = np.nonzero(maxima >= limit[:, None])
    near = by_group[query, :, group] >= limit[query, None]
    place, member = np.nonzero(near)
    return Candidates(query[place], member * groups + group[place])


def _joined(parts: list[Candidates]) -> Candidates:
    return Candidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def exact_scores(queries: Rows, rows: Rows, pairs: Candidates) -> Floats:
    """Return ``⟨q, e⟩`` of each pair in float64, (n,), summed in the same order wherever the pair stands."""
    scores = np.empty(len(pairs.query))
    step = max(1, _RESCORED // max(rows.shape[1], 1))
    for start in range(0, len(scores), step):
        part = slice(start, start + step)
        products = queries[pairs.query[part]].astype(np.float64)
        products *= rows[pairs.item[part]]
        scores[part] = products.sum(axis=1)
    return scores
