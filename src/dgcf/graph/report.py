"""A graph in numbers: edges, ε, the memory of each form of propagation, and how the values of Lc are spread."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.graph.bipartite import interaction_matrix
from dgcf.graph.crosshop import CrossHop, cross_hop, offer_all
from dgcf.graph.sieve import Entries
from dgcf.graph.spec import Epsilon

# Bins of equal width in log10: values of Lc lie in (1e-9, 1] on any graph of up to a billion two-hop paths per node.
DECADES, BINS_PER_DECADE = 9, 5
# What one stored entry takes in the operator: a float32 value and an int32 index.
ENTRY_BYTES = 8
OFFSET_BYTES = 4


@dataclass
class HistogramSieve:
    """Counts all values by magnitude and keeps none."""

    threshold: float = 0.0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(DECADES * BINS_PER_DECADE, dtype=np.int64))

    def offer(self, entries: Entries) -> None:
        """Count each value once per entry of the full matrix."""
        place = np.floor((np.log10(entries.values) + DECADES) * BINS_PER_DECADE).astype(np.int64)
        weight = np.where(entries.rows == entries.cols, 1, 2)
        found = np.bincount(place.clip(0, len(self.counts) - 1), weights=weight, minlength=len(self.counts))
        self.counts += found.astype(np.int64)


@dataclass(frozen=True)
class Histogram:
    """How many entries of the unfiltered Lc lie in each bin, (bins,), and the bins' edges, (bins + 1,)."""

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Entries of Lc without a filter."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class GraphReport:
    """What ``dgcf graph`` shows."""

    n_users: int
    n_items: int
    cross: CrossHop
    build_seconds: float
    histogram: Histogram | None

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes of the operator ``L + cross-hop + I`` in float32, by form of its cross-hop part."""
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


def graph_report(R: object, epsilon: Epsilon = "auto", *, histogram: bool = True) -> GraphReport:
    """Build the filtered cross-hop matrix, timed, and count the values of the unfiltered one in a second pass."""
    began = time.perf_counter()
    interactions = interaction_matrix(R)
    cross = cross_hop(interactions, epsilon)
    seconds = time.perf_counter() - began
    spread = value_histogram(interactions) if histogram else None
    n_users, n_items = interactions.shape
    return GraphReport(n_users, n_items, cross, seconds, spread)


def value_histogram(R: csr_array) -> Histogram:
    """The histogram of all values of Lc, streamed: nothing but the counts is kept."""
    sieve = HistogramSieve()
    offer_all(R, sieve)
    occupied = np.flatnonzero(sieve.counts)
    first, last = int(occupied[0]), int(occupied[-1]) + 1
    edges = 10.0 ** (np.arange(first, last + 1) / BINS_PER_DECADE - DECADES)
    return Histogram(edges, sieve.counts[first:last])
