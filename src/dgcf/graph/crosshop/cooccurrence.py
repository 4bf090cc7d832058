"""The co-occurrence matrix ``B Bᵀ`` of one side, streamed in row blocks without entries below a threshold."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.graph.crosshop.hubs import entries_where
from dgcf.graph.crosshop.threshold import ThresholdFilter

Floats = NDArray[np.float64]
Indices = NDArray[np.int32]
# Multiply-adds of one block: its result holds at most as many entries, about 60 MB with all temporaries.
BLOCK_WORK = 1 << 21
# Hubs are left out of the product and counted separately if they cause at least this share of its work.
WORTH_SPLITTING = 0.15
# The parts of B are cut again once this share of the entries is done, or the threshold has risen by as much.
WORTH_CUTTING = 0.15
# A pair whose float32 bound is below this part of the threshold is below the threshold in exact arithmetic.
MARGIN = 1 - 1e-5


class Block(NamedTuple):
    """Pairs of rows u ≤ v in the sorted order, the number of columns they share, and ``√(dc_u dc_v)``."""

    rows: Indices
    cols: Indices
    counts: Indices
    scale: Floats
    stop: int
    """The row after the last one of the block."""


class Cooccurrence:
    """``B Bᵀ`` of a binary B (n, m): R for users, Rᵀ for items.

    Rows are sorted by ascending cross degree ``dc_u = Σ_{j ∈ u} d_j`` and columns by descending degree d_j.
    ``Lc_uv = |u ∩ v| / √(dc_u dc_v)``, each unordered pair once. For a threshold t > 0 two bounds save most of the work
    on graphs with hubs:

    - A pair whose shared columns S all have ``1/d_j ≤ t`` (*hubs*) fails: both cross degrees are at least the sum of
      the shared degrees, so ``Lc_uv ≤ |S| / Σ_S d_j ≤ 1 / min_S d_j``. So the product runs over the other columns
      only, and the hubs that a pair shares are counted for the pairs that they could lift over t.
    - ``Lc_uv ≤ d_u / √(dc_u dc_v)``, as rows share no more than one has; so with ``dc_u ≤ dc_v`` a row u where
      ``d_u / dc_u ≤ t`` has no partner after it, and in the same way a row v may be out of reach of all rows left.

    Both hold for the rounded values as well: rounding is monotone.
    """

    def __init__(self, B: csr_array) -> None:
        column_degree = np.bincount(B.indices, minlength=B.shape[1])
        cross_degree = np.asarray(B @ column_degree.astype(np.float64))
        columns = np.argsort(-column_degree, kind="stable")
        self.order = np.argsort(cross_degree, kind="stable").astype(np.int32)
        renumber = np.empty(B.shape[1], dtype=np.int32)
        renumber[columns] = np.arange(B.shape[1], dtype=np.int32)
        rows = B[self.order]
        self.B = csr_array((np.ones(rows.nnz, np.int32), renumber[rows.indices], rows.indptr), shape=B.shape)
        self.B.sort_indices()
        self.column_degree = column_degree[columns].astype(np.float64)
        self.cross_degree = cross_degree[self.order]
        self.row_degree = np.diff(self.B.indptr)

    def with_entries(self, light: csr_array) -> Cooccurrence:
        """Return the same rows, orders and cross degrees with only the entries of ``light``."""
        other = copy.copy(self)
        other.B, other.column_degree = light, np.bincount(light.indices, minlength=light.shape[1]).astype(np.float64)
        return other

    def blocks(self, threshold_filter: ThresholdFilter, block_work: int | None = None) -> Iterator[Block]:
        """Yield a superset of the pairs above the threshold, in blocks; the threshold may rise in between."""
        n_rows = self.B.shape[0]
        budget = block_work or max(BLOCK_WORK, 4 * n_rows)
        cut = _Cut(self, 0, threshold_filter.threshold)
        start = 0
        while start < n_rows:
            if cut.is_stale(start, threshold_filter.threshold):
                cut = _Cut(self, start, threshold_filter.threshold)
            stop = cut.block_end(start, budget)
            yield cut.block(start, stop, budget)
            start = stop


class _Cut:
    """The parts of B that the rows from ``start`` on need at a threshold, with hubs separate."""

    def __init__(self, side: Cooccurrence, start: int, threshold: float) -> None:
        self.side, self.start, self.threshold = side, start, threshold
        # Rows before ``start`` have already been paired with these.
        B = side.B[start:]
        n_hubs = int(np.count_nonzero(1.0 / np.maximum(side.column_degree, 1.0) <= threshold))
        work = side.column_degree**2
        if work[:n_hubs].sum() < WORTH_SPLITTING * work.sum():
            n_hubs = 0
        is_hub = B.indices < n_hubs
        self.hubs = entries_where(B, is_hub) if n_hubs else None
        light = entries_where(B, ~is_hub) if n_hubs else B
        cross_degree = np.maximum(side.cross_degree[start:], 1.0)
        self.inverse_scale = (1.0 / np.sqrt(cross_degree)).astype(np.float32)
        self.left = _rows_where(light, side.row_degree[start:] / cross_degree > threshold)
        reachable = side.row_degree[start:] / np.sqrt(cross_degree[0] * cross_degree) > threshold
        self.right = _rows_where(light, reachable).T.tocsr()
        row_work = self.left @ np.diff(self.right.indptr).astype(np.float64)
        self._work = np.concatenate([[0.0], np.cumsum(row_work)])

    def is_stale(self, start: int, threshold: float) -> bool:
        """Return whether enough rows are done, or the threshold has risen enough, to cut B again."""
        first_entry = self.side.B.indptr
        done = (first_entry[start] - first_entry[self.start]) / max(self.side.B.nnz - first_entry[self.start], 1)
        return bool(done > WORTH_CUTTING) or threshold > (1 + WORTH_CUTTING) * self.threshold

    def block_end(self, start: int, budget: int) -> int:
        """Return the end of a block from ``start`` within a budget of multiply-adds; at least one row."""
        spent = self._work[start - self.start]
        stop = self.start + int(np.searchsorted(self._work, spent + budget, side="right")) - 1
        return min(max(stop, start + 1), len(self.side.order))

    def block(self, start: int, stop: int, budget: int) -> Block:
        """Return a superset of the pairs above the threshold of a row of the block with a row not before it."""
        first, last = start - self.start, stop - self.start
        product = self.left[first:last] @ self.right
        rows = np.repeat(np.arange(first, last, dtype=np.int32), np.diff(product.indptr))
        chosen = np.flatnonzero(self._candidates(product, first, last) & (product.indices >= rows))
        rows, cols, counts = rows[chosen], product.indices[chosen], product.data[chosen]
        if self.hubs is not None:
            counts = counts + shared_columns(self.hubs, rows, cols, budget)
        cross_degree = self.side.cross_degree[self.start :]
        scale = np.sqrt(cross_degree[rows] * cross_degree[cols])
        return Block(rows + np.int32(self.start), cols + np.int32(self.start), counts, scale, stop)

    def _candidates(self, product: csr_array, first: int, last: int) -> NDArray[np.bool_]:
        """Return which entries could exceed the threshold if a pair shared all hubs of the row with fewer of them.

        In float32, with a margin far above its rounding. It only saves exact arithmetic for the rest.
        """
        if self.threshold == 0.0:
            return np.ones(product.nnz, dtype=np.bool_)
        lengths = np.diff(product.indptr)
        most = product.data.astype(np.float32)
        if self.hubs is not None:
            hub_count = np.diff(self.hubs.indptr).astype(np.float32)
            most += np.minimum(np.repeat(hub_count[first:last], lengths), hub_count[product.indices])
        most *= self.inverse_scale[product.indices]
        most *= np.repeat(self.inverse_scale[first:last], lengths)
        return np.asarray(most > np.float32(self.threshold * MARGIN))


def shared_columns(B: csr_array, rows: Indices, cols: Indices, budget: int) -> Indices:
    """Return ``|u ∩ v|`` in B for each pair (u, v) of ``rows`` and ``cols``, computed in slices of pairs."""
    shared = np.zeros(len(rows), dtype=np.int32)
    row_degree = np.diff(B.indptr)
    ends = np.cumsum(row_degree[rows] + row_degree[cols], dtype=np.int64)
    begin = 0
    while begin < len(rows):
        spent = ends[begin - 1] if begin else 0
        end = max(int(np.searchsorted(ends, spent + budget, side="right")), begin + 1)
        shared[begin:end] = np.diff(B[rows[begin:end]].multiply(B[cols[begin:end]]).indptr)
        begin = end
    return shared


def _rows_where(B: csr_array, keep: NDArray[np.bool_]) -> csr_array:
    """Return B with the other rows emptied."""
    return entries_where(B, np.repeat(keep, np.diff(B.indptr)))
