"""A report on a graph: edges, ε, the memory of each form of propagation and the histogram of Lc."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.graph.bipartite import interaction_matrix
from dgcf.graph.crosshop.build import CrossHop, Progress, cross_hop, silent
from dgcf.graph.crosshop.cooccurrence import Cooccurrence
from dgcf.graph.crosshop.hubs import Hubs, pairs_reaching, require_feasible, split_hubs
from dgcf.graph.crosshop.threshold import FixedThreshold
from dgcf.graph.spec import Epsilon

# Bins of equal width in log10: values of Lc lie in (1e-9, 1] on any graph of up to a billion two-hop paths per node.
DECADES, BINS_PER_DECADE = 9, 5
EDGES = 10.0 ** (np.arange(DECADES * BINS_PER_DECADE + 1) / BINS_PER_DECADE - DECADES)
# A value that equals an edge up to rounding counts in the bin above.
FLOORS = EDGES[:-1] * (1 - 1e-12)
# Comparisons that assign one row's pairs with all rows of a class to bins.
BISECTIONS = 400
# Bytes of one stored entry: a float32 value and an int32 index.
ENTRY_BYTES = 8
OFFSET_BYTES = 4


@dataclass(frozen=True)
class Histogram:
    """Number of entries of the unfiltered Lc in each bin, (bins,), and the bins' edges, (bins + 1,)."""

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Number of entries of the unfiltered Lc."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class GraphReport:
    """The result of ``graph_report``."""

    n_users: int
    n_items: int
    cross: CrossHop
    build_seconds: float
    histogram: Histogram | None

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes of the operator ``L + cross-hop + I`` in float32, by form of the cross-hop term."""
        n_nodes = self.n_users + self.n_items
        offsets = OFFSET_BYTES * (n_nodes + 1)
        on_diagonal = self.cross.edges - self.cross.off_diagonal
        direct = self.cross.direct_edges
        memory = {
            "none": ENTRY_BYTES * (direct + n_nodes) + offsets,
            "filtered": ENTRY_BYTES * (direct + self.cross.edges + n_nodes - on_diagonal) + offsets,
            "matrix-free": ENTRY_BYTES * direct + offsets + 3 * 4 * n_nodes,
        }
        if self.histogram is not None:
            memory["unfiltered"] = ENTRY_BYTES * (direct + self.histogram.total) + offsets
        return memory

    def to_dict(self, name: str) -> dict[str, Any]:
        """Return the report as JSON-ready values; ``name`` is the dataset's."""
        cross, warning, bins = self.cross, self.cross.warning(), self.histogram
        return {
            "name": name,
            "users": self.n_users,
            "items": self.n_items,
            "direct_edges": cross.direct_edges,
            "cross_edges": cross.edges,
            "cross_edges_off_diagonal": cross.off_diagonal,
            "ratio": cross.ratio,
            "epsilon": cross.epsilon,
            "memory_bytes": self.memory_bytes,
            "peak_held": cross.peak_held,
            "build_seconds": self.build_seconds,
            "histogram": bins and {"edges": bins.edges.tolist(), "counts": bins.counts.tolist()},
            "warnings": [] if warning is None else [warning],
        }


def graph_report(
    interactions: object, epsilon: Epsilon = "auto", *, histogram: bool = True, progress: Progress = silent
) -> GraphReport:
    """Build and time the filtered cross-hop matrix; count the values of the unfiltered one in a second pass."""
    passes = 2 if histogram else 1
    began = time.perf_counter()
    R = interaction_matrix(interactions)
    sides = _counted_sides(R) if histogram else []
    cross = cross_hop(R, epsilon, progress=lambda done, total: progress(done / (total or 1), passes))
    seconds = time.perf_counter() - began
    spread = _histogram(sides, lambda done, total: progress(1 + done / (total or 1), passes)) if histogram else None
    n_users, n_items = R.shape
    return GraphReport(n_users, n_items, cross, seconds, spread)


def _counted_sides(R: csr_array) -> list[tuple[Cooccurrence, Hubs]]:
    """Return both sides with their hubs; raise ``DataError`` if the remaining work exceeds the limit."""
    sides = []
    for B in (R, R.T.tocsr()):
        side = Cooccurrence(B)
        sides.append((side, split_hubs(side.B, BISECTIONS * len(np.unique(side.cross_degree)))))
    for side, hubs in sides:
        advice = "leave it out (--no-histogram, histogram=False), or remove these users or items from the data"
        require_feasible(hubs.work, "the histogram of Lc", side.column_degree.astype(np.int64), advice)
    return sides


def _histogram(sides: list[tuple[Cooccurrence, Hubs]], progress: Progress) -> Histogram:
    """Return the histogram of all values of Lc, computed in a stream that keeps only the counts."""
    counts, done = np.zeros(len(FLOORS), dtype=np.int64), 0
    for side, hubs in sides:
        for part, rows in _counts(side, hubs):
            counts += part
            progress(done + rows, sum(len(side.order) for side, _ in sides))
        done += len(side.order)
    occupied = np.flatnonzero(counts)
    first, last = int(occupied[0]), int(occupied[-1]) + 1
    return Histogram(EDGES[first : last + 1], counts[first:last])


def _counts(side: Cooccurrence, hubs: Hubs) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield parts of the counts of one side's values, with the number of rows done.

    Rows that share only hubs are counted by classes. Pairs that share more are then subtracted from these counts.
    """
    yield _class_counts(side, hubs), 0
    for rows, cols, shared, scale, stop in side.with_entries(hubs.light).blocks(FixedThreshold(0.0)):
        weight = np.where(rows == cols, 1, 2)
        from_hubs = hubs.shared(hubs.pattern[rows], hubs.pattern[cols])
        counts = _binned((shared + from_hubs) / scale, weight)
        twice = from_hubs > 0
        yield counts - _binned(from_hubs[twice] / scale[twice], weight[twice]), stop


def _binned(values: NDArray[np.float64], weight: NDArray[np.int64]) -> NDArray[np.int64]:
    place = np.maximum(np.searchsorted(FLOORS, values, side="right") - 1, 0)
    return np.bincount(place, weights=weight, minlength=len(FLOORS)).astype(np.int64)


def _class_counts(side: Cooccurrence, hubs: Hubs) -> NDArray[np.int64]:
    """Return the counts of all entries between rows that share a hub, as if they shared nothing else."""
    counts = np.zeros(len(FLOORS), dtype=np.int64)
    present = np.unique(hubs.pattern)
    degrees = {pattern: side.cross_degree[hubs.pattern == pattern] for pattern in present}
    for place, one in enumerate(present):
        for other in present[place:]:
            if shared := int(hubs.shared(one, other)):
                above = pairs_reaching(shared, degrees[one], degrees[other], FLOORS[1:])
                everything = len(degrees[one]) * len(degrees[other])
                part = -np.diff(np.concatenate([[everything], above, [0]]))
                counts += part if one == other else 2 * part
    return counts
