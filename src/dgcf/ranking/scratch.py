"""Memory that a thread keeps for its next search: fresh memory costs a search of few queries as much as its sums."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 2**24
"""Bytes of the largest array that is kept; larger ones are for many queries, which take much longer anyway."""


class Scratch(threading.local):
    """Arrays by name, one set for each thread."""

    def array(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        """Return an array with any content, to be used until the next call with this name."""
        size = math.prod(shape)
        kept: NDArray[Any] | None = self.__dict__.get(name)
        if kept is None or len(kept) < size:
            kept = np.empty(size, dtype=dtype)
            if kept.nbytes <= LARGEST:
                self.__dict__[name] = kept
        return kept[:size].reshape(shape)


SCRATCH = Scratch()
