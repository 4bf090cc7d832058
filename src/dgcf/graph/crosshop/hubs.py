"""Hubs: a few columns that very many rows share, whose pairs are counted by classes of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.errors import DataError

MOST_HUBS = 8
MOST_WORK = 200_000_000_000
"""The most multiply-adds of ``B Bᵀ`` accepted: about half an hour on one core."""
_ONES = np.array([number.bit_count() for number in range(1 << MOST_HUBS)], dtype=np.int32)


@dataclass(frozen=True)
class Hubs:
    """The columns that cause most of the work of ``B Bᵀ``, separated from the rest of B.

    A column of degree d takes d² multiply-adds, 10^10 for a user with 100,000 items. ``light``: B without the hubs'
    entries. ``pattern``: bit j of a row's pattern is set if it has hub j. ``work``: the remaining multiply-adds.
    """

    light: csr_array
    pattern: NDArray[np.int64]
    count: int
    work: float

    def shared(self, one: NDArray[np.int64] | np.int64, other: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return how many hubs rows with these patterns share."""
        return np.asarray(_ONES[one & other])


def split_hubs(B: csr_array, class_work: float) -> Hubs:
    """Choose as hubs so many columns of a binary B that work is least; each pattern of rows costs ``class_work``."""
    degree = np.bincount(B.indices, minlength=B.shape[1]).astype(np.float64)
    heaviest = np.argsort(-degree, kind="stable")[:MOST_HUBS]
    pattern = (B[:, heaviest].toarray() > 0) @ (1 << np.arange(len(heaviest)))
    work = [float(np.square(degree).sum())]
    for count in range(1, len(heaviest) + 1):
        patterns = len(np.unique(pattern & ((1 << count) - 1)))
        work.append(work[0] - float(np.square(degree[heaviest[:count]]).sum()) + class_work * patterns)
    count = int(np.argmin(work))
    light = entries_where(B, ~np.isin(B.indices, heaviest[:count])) if count else B
    return Hubs(light, pattern & ((1 << count) - 1), count, work[count])


def pairs_reaching(
    shared: int, one: NDArray[np.float64], other: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Count, for each level, the pairs (x, y) of ``one`` and ``other`` with ``shared / √(x y) ≥ level``.

    The left side falls with y, even when rounded, so bisection gives the y of each x without forming the pairs.
    """
    (x, times), (y, y_times) = (np.unique(side, return_counts=True) for side in (one, other))
    before = np.concatenate([[0], np.cumsum(y_times)])
    counts = np.zeros(len(levels), dtype=np.int64)
    for place, level in enumerate(levels):
        low, high = np.zeros(len(x), dtype=np.int64), np.full(len(x), len(y), dtype=np.int64)
        for _ in range(len(y).bit_length()):
            middle = (low + high) // 2
            reaches = shared / np.sqrt(x * y[np.minimum(middle, len(y) - 1)]) >= level
            low, high = np.where(reaches & (low < high), middle + 1, low), np.where(reaches, high, middle)
        counts[place] = int(times @ before[low])
    return counts


def require_feasible(work: float, what: str, degree: NDArray[np.int64], advice: str) -> None:
    """Raise ``DataError`` if ``work`` exceeds the limit, with the largest of ``degree`` and ``advice``."""
    if work > MOST_WORK:
        largest = ", ".join(f"{count:,}" for count in np.sort(degree)[::-1][:3])
        raise DataError(
            f"{what} would take about {work:.1e} multiplications, more than the limit of {MOST_WORK:.0e}: "
            f"the nodes with the most neighbours have {largest}; {advice}."
        )


def entries_where(B: csr_array, keep: NDArray[np.bool_]) -> csr_array:
    """Return B with only the marked stored entries."""
    before = np.concatenate([[0], np.cumsum(keep)])
    return csr_array((B.data[keep], B.indices[keep], before[B.indptr].astype(B.indptr.dtype)), shape=B.shape)
