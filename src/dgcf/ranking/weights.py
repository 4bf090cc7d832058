"""Weights between items, dense or sparse, and their sums in a fixed order; NumPy alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Floats

Numbers = NDArray[np.integer[Any]]


class WeightMatrix(ABC):
    """A float32 matrix W (n_items, n_items): row j holds what item j adds to the score of every item."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @property
    @abstractmethod
    def largest(self) -> Floats:
        """The largest absolute value in each row, (n_rows,)."""

    @abstractmethod
    def sum_rows(self, rows: Numbers) -> Floats:
        """Return the sum of ``rows``, (n_columns,), added one after the other in float64: equal rows, equal bits."""

    def each_sum(self, queries: Pairs) -> Iterator[Floats]:
        """Yield the sum of the rows of each query's items, (n_columns,)."""
        for query in range(queries.n_users):
            yield self.sum_rows(queries[query])

    @abstractmethod
    def column(self, rows: Numbers, column: int) -> Floats:
        """Return the entries that ``rows`` have in one column, (n,)."""

    @abstractmethod
    def row(self, row: int, columns: Numbers) -> Floats:
        """Return the entries that one row has in ``columns``, (n,)."""

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return all arrays that it consists of, by name."""


@dataclass(frozen=True, eq=False)
class DenseWeights(WeightMatrix):
    """``values`` (n_rows, n_columns) float32."""

    values: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @cached_property
    def largest(self) -> Floats:
        values = self.values
        largest = np.maximum(values.max(1, initial=0.0), -values.min(1, initial=0.0))
        return np.asarray(largest, dtype=np.float64)

    def sum_rows(self, rows: Numbers) -> Floats:
        return np.asarray(np.add.reduce(self.values[rows], axis=0, dtype=np.float64))

    def column(self, rows: Numbers, column: int) -> Floats:
        return np.asarray(self.values[rows, column], dtype=np.float64)

    def row(self, row: int, columns: Numbers) -> Floats:
        return np.asarray(self.values[row, columns], dtype=np.float64)

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

    @classmethod
    def empty(cls, n: int) -> SparseWeights:
        """Return n rows and columns without an entry."""
        return cls(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), n)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_columns

    @cached_property
    def largest(self) -> Floats:
        largest = np.zeros(self.shape[0])
        filled = np.diff(self.indptr) > 0
        if filled.any():
            largest[filled] = np.maximum.reduceat(np.abs(self.values), self.indptr[:-1][filled])
        return largest

    def with_empty(self, n: int) -> SparseWeights:
        """Return these weights with n empty rows and columns at the end."""
        indptr = np.concatenate([self.indptr, np.full(n, self.indptr[-1])])
        wider = SparseWeights(indptr, self.indices, self.values, self.n_columns + n)
        wider.__dict__["largest"] = np.concatenate([self.largest, np.zeros(n)])
        return wider

    def sum_rows(self, rows: Numbers) -> Floats:
        if not len(rows):
            return np.zeros(self.n_columns)
        parts = [slice(*ends) for ends in zip(self.indptr[rows].tolist(), self.indptr[rows + 1].tolist(), strict=True)]
        indices = np.concatenate([self.indices[part] for part in parts])
        values = np.concatenate([self.values[part] for part in parts])
        # bincount adds in the order in which the entries come
        return np.asarray(np.bincount(indices, values, self.n_columns), dtype=np.float64)

    def column(self, rows: Numbers, column: int) -> Floats:
        entries = np.zeros(len(rows))
        for place, row in enumerate(rows.tolist()):
            first, last = self.indptr[row], self.indptr[row + 1]
            entry = first + np.searchsorted(self.indices[first:last], column)
            if entry < last and self.indices[entry] == column:
                entries[place] = self.values[entry]
        return entries

    def row(self, row: int, columns: Numbers) -> Floats:
        first, last = self.indptr[row], self.indptr[row + 1]
        own, values = self.indices[first:last], self.values[first:last]
        if not len(own):
            return np.zeros(len(columns))
        entry = np.minimum(np.searchsorted(own, columns), len(own) - 1)
        return np.where(own[entry] == columns, values[entry].astype(np.float64), 0.0)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return {"indptr": self.indptr, "indices": self.indices, "values": self.values}
