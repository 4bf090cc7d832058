"""The filtered cross-hop matrix Lc, computed exactly without storing A²."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from dgcf.errors import ConfigError
from dgcf.graph.crosshop.cooccurrence import Cooccurrence
from dgcf.graph.crosshop.hubs import pairs_reaching
from dgcf.graph.crosshop.threshold import AutoThreshold, Entries, FixedThreshold, ThresholdFilter
from dgcf.graph.spec import Epsilon, check_epsilon

# A filter that keeps more than this many times the direct edges saves nothing.
TOO_MANY = 10
# The most entries a filter may keep: they take 12 GB as a matrix, and more while it is built.
MOST_EDGES = 2**30

Progress = Callable[[float, float | None], None]
"""Called with the work done so far and the total."""


def silent(done: float, total: float | None) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class CrossHop:
    """The entries of Lc above ε, (N, N), symmetric to the last bit, with sorted indices."""

    matrix: csr_array
    epsilon: float
    direct_edges: int
    peak_held: int
    """The most entries (of one triangle) held at a time while ε was computed."""

    @property
    def edges(self) -> int:
        """Number of stored entries, both directions and the diagonal, as the paper counts them."""
        return int(self.matrix.nnz)

    @property
    def off_diagonal(self) -> int:
        """Number of stored entries between different nodes."""
        return int(self.matrix.nnz - np.count_nonzero(self.matrix.diagonal()))

    @property
    def ratio(self) -> float:
        """The paper's measure of ε, 1 at best: the larger of cross and direct edges divided by the smaller."""
        few, many = sorted((self.edges, self.direct_edges))
        return many / few if few else math.inf

    def warning(self) -> str | None:
        """Return one sentence if ε keeps almost nothing or almost everything, else None."""
        if self.off_diagonal == 0:
            return (
                f"epsilon {self.epsilon:g} leaves no cross-hop edge between different nodes; "
                "lower it or set it to 'auto'; if it is 'auto', set cross=none."
            )
        if self.edges > TOO_MANY * self.direct_edges:
            return (
                f"epsilon {self.epsilon:g} keeps {self.edges:,} cross-hop edges, more than {TOO_MANY} times the "
                f"{self.direct_edges:,} direct ones; raise it, or set epsilon to 'auto'."
            )
        return None


def cross_hop(
    R: csr_array,
    epsilon: Epsilon = "auto",
    *,
    diagonal: bool = True,
    below_one: bool = False,
    block_work: int | None = None,
    progress: Progress = silent,
) -> CrossHop:
    """Return the entries of ``Lc = Dc^-½ A² Dc^-½`` with ``Lc > ε``.

    R is a checked interaction matrix. With ``below_one`` entries of 1 are dropped, without ``diagonal`` those of the
    diagonal. ``A²`` has two blocks, ``R Rᵀ`` between users and ``Rᵀ R`` between items; one triangle of each is streamed
    in row blocks and mirrored at the end, so memory is that of the result plus one block. With ``"auto"``, ε is the
    value at which the number of edges kept is closest to that of direct edges.
    """
    check_epsilon(epsilon)
    direct_edges = 2 * int(R.nnz)
    if isinstance(epsilon, str):
        auto = AutoThreshold(direct_edges)
        stream_cross_hop(R, auto, diagonal=diagonal, below_one=below_one, block_work=block_work, progress=progress)
        chosen, entries = auto.settle()
        return CrossHop(_mirrored(entries, sum(R.shape)), chosen, direct_edges, auto.peak_held)
    _require_few_enough(R, float(epsilon))
    fixed = FixedThreshold(float(epsilon), MOST_EDGES // 2)
    stream_cross_hop(R, fixed, diagonal=diagonal, below_one=below_one, block_work=block_work, progress=progress)
    kept = fixed.entries()
    return CrossHop(_mirrored(kept, sum(R.shape)), float(epsilon), direct_edges, len(kept.values))


def stream_cross_hop(
    R: csr_array,
    threshold_filter: ThresholdFilter,
    *,
    diagonal: bool = True,
    below_one: bool = False,
    block_work: int | None = None,
    progress: Progress = silent,
) -> None:
    """Offer every entry of Lc's upper triangle above the threshold to the filter, in no particular order."""
    Rt = R.T.tocsr()
    sides = [(R, 0), (Rt, R.shape[0])]
    # The side with less work first: a rising threshold then saves most of the work of the other.
    sides.sort(key=lambda side: float(np.square(np.bincount(side[0].indices), dtype=np.float64).sum()))
    done = 0
    for B, first_node in sides:
        side = Cooccurrence(B)
        nodes = side.order + np.int32(first_node)
        for rows, cols, counts, scale, stop in side.blocks(threshold_filter, block_work):
            entries = Entries(nodes[rows], nodes[cols], counts / scale)
            if not diagonal:
                entries = entries.where(entries.rows != entries.cols)
            if below_one:
                entries = entries.where(entries.values < 1.0)
            threshold_filter.offer(entries)
            progress(done + stop, sum(R.shape))
        done += B.shape[0]


def _require_few_enough(R: csr_array, epsilon: float) -> None:
    """Raise ``ConfigError`` if the pairs of one node's neighbours alone exceed the limit, before they are formed."""
    for B in (R, R.T.tocsr()):
        degree = np.bincount(B.indices, minlength=B.shape[1])
        heaviest = int(np.argmax(degree))
        if degree[heaviest] ** 2 > MOST_EDGES:
            rows = (B[:, [heaviest]].toarray() > 0).ravel()
            cross_degree = np.asarray(B @ degree.astype(np.float64))[rows]
            kept = int(pairs_reaching(1, cross_degree, cross_degree, np.nextafter([epsilon], 1.0))[0])
            if kept > MOST_EDGES:
                raise ConfigError(
                    f"epsilon {epsilon:g} keeps more than {kept:,} cross-hop edges, because one node has "
                    f"{degree[heaviest]:,} neighbours; raise it, or set epsilon to 'auto'."
                )


def _mirrored(upper: Entries, n_nodes: int) -> csr_array:
    """Return the symmetric matrix with these entries on and above the diagonal."""
    if n_nodes > np.iinfo(np.int32).max:
        raise ConfigError(f"{n_nodes} nodes are more than 32-bit indices can number; drop rare users or items first.")
    above = upper.rows != upper.cols
    values = np.concatenate([upper.values, upper.values[above]])
    rows = np.concatenate([upper.rows, upper.cols[above]])
    cols = np.concatenate([upper.cols, upper.rows[above]])
    matrix = csr_array((values, (rows, cols)), shape=(n_nodes, n_nodes))
    matrix.sort_indices()
    return matrix
