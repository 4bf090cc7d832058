"""A matrix by its rows, dense or sparse, and sums of rows in a fixed order: how what items say becomes scores.

NumPy alone, for it is needed both where models are trained and where they are only asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]


class WeightMatrix(ABC):
    """A float32 matrix that is asked for sums of its rows."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @abstractmethod
    def total(self, rows: Indices) -> Floats:
        """(n_columns,) the sum of ``rows``, one after the other in float64: the same rows give the same bits."""

    @abstractmethod
    def column(self, rows: Indices, column: int) -> Floats:
        """(n,) the numbers that ``rows`` have in one column."""

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All that it consists of, by name."""


@dataclass(frozen=True, eq=False)
class DenseWeights(WeightMatrix):
    """``values`` (n_rows, n_columns) float32."""

    values: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def total(self, rows: Indices) -> Floats:
        return np.asarray(np.add.reduce(self.values[rows], axis=0, dtype=np.float64))

    def column(self, rows: Indices, column: int) -> Floats:
        return np.asarray(self.values[rows, column], dtype=np.float64)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return {"values": self.values}


@dataclass(frozen=True, eq=False)
class SparseWeights(WeightMatrix):
    """Compressed rows: row r has ``values[indptr[r]:indptr[r + 1]]`` in the columns ``indices[…]``, ascending.

    ``indptr`` (n_rows + 1,) int64, ``indices`` (n,) int32, ``values`` (n,) float32.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    n_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_columns

    def total(self, rows: Indices) -> Floats:
        counts = self.indptr[rows + 1] - self.indptr[rows]
        ends = np.cumsum(counts)
        place = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.indptr[rows] - (ends - counts), counts)
        # bincount adds in the order in which the entries come
        return np.asarray(np.bincount(self.indices[place], self.values[place], self.n_columns), dtype=np.float64)

    def column(self, rows: Indices, column: int) -> Floats:
        found = np.zeros(len(rows))
        for place, row in enumerate(rows.tolist()):
            first, last = self.indptr[row], self.indptr[row + 1]
            entry = first + np.searchsorted(self.indices[first:last], column)
            if entry < last and self.indices[entry] == column:
                found[place] = self.values[entry]
        return found

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return {"indptr": self.indptr, "indices": self.indices, "values": self.values}
