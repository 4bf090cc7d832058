"""Lists of users without events, kept until what they follow from changes."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.ranking.arrays import Floats

CACHE_BYTES = 64 * 2**20
"""Memory for lists that are kept; a list of 20 items takes about 500 bytes."""
_ENTRY_BYTES = 260  # of the keys, the objects and their places

Ranked = tuple[list[int], list[float]]


class Lists:
    """Items and scores by user, length and ``seen``; those that were used last are kept."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit, self._bytes = limit, 0
        self._kept: OrderedDict[tuple[int, int, bool], tuple[NDArray[np.int32], Floats]] = OrderedDict()

    def get(self, user: int, k: int, seen: bool) -> Ranked | None:
        """Return a list, or None; any thread may call it."""
        try:
            index, scores = self._kept[user, k, seen]
            self._kept.move_to_end((user, k, seen))
        except KeyError:  # not kept, or deleted by the other thread just now
            return None
        return index.tolist(), scores.tolist()

    def put(self, user: int, k: int, seen: bool, ranked: Ranked) -> None:
        """Keep a list; only the model thread calls it."""
        index, scores = np.array(ranked[0], dtype=np.int32), np.array(ranked[1], dtype=np.float64)
        if (user, k, seen) not in self._kept:
            self._bytes += _size(index)
        self._kept[user, k, seen] = index, scores
        while self._bytes > self._limit and self._kept:
            _, (index, _) = self._kept.popitem(last=False)
            self._bytes -= _size(index)

    def __len__(self) -> int:
        return len(self._kept)


def _size(index: NDArray[np.int32]) -> int:
    return _ENTRY_BYTES + 12 * len(index)
