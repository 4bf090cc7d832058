"""User-item pairs in compressed sparse rows: the in-memory form of interactions used by all other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import DataError

if TYPE_CHECKING:
    import scipy.sparse

ReadArray = Callable[[str, str], NDArray[Any]]
"""Returns a stored one-dimensional array by name and NumPy dtype (``<i8``)."""
VALUES = {"place": "<i4", "time": "<f8", "weight": "<f4"}
"""The optional arrays with one number per pair, and the type in which each is stored."""


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sorted distinct keys. (``np.unique`` of NumPy 2.3 and later hashes first: five times slower here.)"""
    keys = np.sort(keys)
    return keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys


def _ascending_rows(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> bool:
    """Return whether the indices of each row ascend, with little memory and without holding Python's lock."""
    rises = indices[1:] > indices[:-1]
    starts = indptr[(indptr > 0) & (indptr < len(indices))]
    rises[starts - 1] = True  # from one row to the next, they may fall
    return bool(rises.all())


def row_entries(indptr: NDArray[np.int64], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the entries of some compressed rows lie, one row after the other, and how many each row has."""
    counts = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(counts)
    entries = np.arange(ends[-1] if len(ends) else 0) + np.repeat(indptr[rows] - (ends - counts), counts)
    return entries, counts


def count_earlier(user_idx: NDArray[np.integer], time: NDArray[Any]) -> NDArray[np.int64]:
    """Return (n,) for each row the number of rows of the same user with a smaller time."""
    n = len(user_idx)
    order = np.lexsort((time, user_idx))
    user, sorted_time, rank = user_idx[order], time[order], np.arange(n)
    new_user = np.append(True, user[1:] != user[:-1])[:n]
    new_time = new_user | np.append(True, sorted_time[1:] != sorted_time[:-1])[:n]
    first_of_time, first_of_user = (np.maximum.accumulate(np.where(new, rank, 0)) for new in (new_time, new_user))
    counts = np.empty(n, dtype=np.int64)
    counts[order] = first_of_time - first_of_user
    return counts


@dataclass(frozen=True, eq=False)
class Pairs:
    """A set of (user, item) pairs; each pair once, items ascending within a user.

    ``indptr``: (n_users + 1,) int64; ``indices``: (n_pairs,) int32; user u has ``indices[indptr[u]:indptr[u + 1]]``.
    Optional values of each pair, (n_pairs,), which equality ignores:

    - ``place``: int32, the chronological rank of a pair among its user's pairs (0 is the earliest, equal times share a
      rank);
    - ``time``: float64, the time of its latest event, in the unit of the source (seconds from 1970 for dates);
    - ``weight``: float32, finite and at least 0.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    n_items: int
    place: NDArray[np.int32] | None = None
    time: NDArray[np.float64] | None = None
    weight: NDArray[np.float32] | None = None

    @classmethod
    def from_indices(
        cls, user_idx: NDArray[np.integer], item_idx: NDArray[np.integer], n_users: int, n_items: int
    ) -> Pairs:
        """Return the distinct pairs of two index columns."""
        return cls.from_keys(distinct(user_idx.astype(np.int64) * n_items + item_idx), n_users, n_items)

    @property
    def values(self) -> dict[str, Any]:
        """The optional values that are known, by name."""
        return {name: array for name in VALUES if (array := getattr(self, name)) is not None}

    def with_values(self, key: NDArray[np.int64], **values: NDArray[Any] | None) -> Pairs:
        """Return these pairs with more values, given for distinct pairs (by ``key``) that include all of them."""
        order = np.argsort(key)
        match = np.searchsorted(key, self.keys(), sorter=order)
        if not np.array_equal(key[order[np.minimum(match, len(key) - 1)]], self.keys()):
            raise ValueError("some pairs have no value")
        at = order[match]
        known: dict[str, Any] = {
            name: array[at].astype(VALUES[name]) for name, array in values.items() if array is not None
        }
        return replace(self, **known)

    @classmethod
    def from_keys(cls, key: NDArray[np.int64], n_users: int, n_items: int) -> Pairs:
        """Return the pairs of ascending, distinct keys ``user · n_items + item``."""
        user_idx, item_idx = np.divmod(key, max(n_items, 1))
        indptr = np.zeros(n_users + 1, dtype=np.int64)
        np.cumsum(np.bincount(user_idx, minlength=n_users), out=indptr[1:])
        return cls(indptr, item_idx.astype(np.int32), n_items)

    def to_arrays(self, name: str, values: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays to store, their names prefixed by ``name``: the pairs, and those of ``values``."""
        known = self.values
        stored = {f"{name}{value}": known[value] for value in values}
        return {f"{name}indptr": self.indptr, f"{name}indices": self.indices, **stored}

    @classmethod
    def from_arrays(cls, name: str, read: ReadArray, n_users: int, n_items: int, values: Iterable[str] = ()) -> Pairs:
        """Return the pairs that ``to_arrays`` stored; raise ValueError if the arrays are not valid."""
        indptr, indices = read(f"{name}indptr", "<i8"), read(f"{name}indices", "<i4")
        # Neighbours are compared, not subtracted: a difference of two int64 may wrap around.
        falls = bool((indptr[1:] < indptr[:-1]).any())
        if len(indptr) != n_users + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or falls:
            raise ValueError(f"{name}indptr does not give each row a place in {name}indices")
        if len(indices) and not (indices.min() >= 0 and indices.max() < n_items):
            raise ValueError(f"{name}indices are not item indices below {n_items}")
        if not _ascending_rows(indptr, indices):
            raise ValueError(f"{name}indices are not ascending")
        stored: dict[str, Any] = {value: read(f"{name}{value}", VALUES[value]) for value in values}
        for value, array in stored.items():
            valid = np.isfinite(array).all() and (value == "time" or bool((array >= 0).all()))
            if len(array) != len(indices) or not valid:
                raise ValueError(f"{name}{value} has {len(array)} numbers for {len(indices)} pairs, or invalid ones")
        return cls(indptr, indices, n_items, **stored)

    @classmethod
    def empty(cls, n_users: int, n_items: int) -> Pairs:
        """Return an empty set of pairs; all of its (no) values are known."""
        values = {name: np.zeros(0, dtype=dtype) for name, dtype in VALUES.items()}
        return cls(np.zeros(n_users + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), n_items, **values)

    def __len__(self) -> int:
        return len(self.indices)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Pairs)
            and self.n_items == other.n_items
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, user_idx: int) -> NDArray[np.int32]:
        """Return the items of one user, ascending."""
        return self.indices[self.indptr[user_idx] : self.indptr[user_idx + 1]]

    def take(self, user_idx: NDArray[np.integer]) -> Pairs:
        """Return the items of some users: row n holds those of ``user_idx[n]``."""
        entries, counts = row_entries(self.indptr, user_idx)
        return Pairs(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), self.indices[entries], self.n_items)

    def of_users(self, user_idx: NDArray[np.integer]) -> Pairs:
        """Return the pairs of some users alone, numbered anew in this order, with their values."""
        entries = row_entries(self.indptr, user_idx)[0]
        return replace(self.take(user_idx), **{name: array[entries] for name, array in self.values.items()})

    @property
    def n_users(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def user_degrees(self) -> NDArray[np.int64]:
        """(n_users,) number of items of each user."""
        return np.diff(self.indptr)

    @cached_property
    def item_degrees(self) -> NDArray[np.int64]:
        """(n_items,) number of users of each item."""
        return np.bincount(self.indices, minlength=self.n_items)

    @property
    def user_idx(self) -> NDArray[np.int64]:
        """(n_pairs,) the user of each pair; together with ``indices``, the pairs as two columns."""
        return np.repeat(np.arange(self.n_users), self.user_degrees)

    def count_later(self) -> NDArray[np.int64]:
        """Return (n_pairs,) the number of later pairs of the same user; needs ``place``."""
        assert self.place is not None
        return count_earlier(self.user_idx, -self.place.astype(np.int64))

    def where(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Return the pairs chosen by a mask (n_pairs,), with their values."""
        kept = Pairs.from_keys(self.keys()[chosen], self.n_users, self.n_items)
        values = {name: array[chosen] for name, array in self.values.items()}
        return replace(kept, **values)

    def without(self, *others: Pairs) -> Pairs:
        """Return the pairs that are in none of the others, with their values."""
        key = self.keys()
        gone = [np.isin(key, other.keys()) for other in others]
        return self.where(~np.logical_or.reduce(gone)) if gone else self

    def keys(self) -> NDArray[np.int64]:
        """Return (n_pairs,) ascending keys ``user · n_items + item``, for set operations."""
        return self.user_idx * self.n_items + self.indices

    def union(self, *others: Pairs) -> Pairs:
        """Return the union, with the values that all sets have; a pair of several sets has the largest of each."""
        every = [self, *others]
        key = np.concatenate([pairs.keys() for pairs in every])
        united = Pairs.from_keys(distinct(key), self.n_users, self.n_items)
        known = [name for name in VALUES if all(not len(pairs) or name in pairs.values for pairs in every)]
        order = np.argsort(key, kind="stable") if known else None
        values: dict[str, Any] = {}
        for name in known:
            parts = [pairs.values[name] for pairs in every if name in pairs.values]
            if parts and order is not None:
                ordered = np.concatenate(parts)[order]
                first = np.append(True, key[order][1:] != key[order][:-1])[: len(key)]
                values[name] = np.maximum.reduceat(ordered, np.flatnonzero(first)) if len(key) else ordered
        return replace(united, **values)

    def to_scipy(self, weight: NDArray[np.float32] | None = None) -> scipy.sparse.csr_matrix:
        """Return the matrix R, (n_users, n_items), float32: binary, or with a weight of each pair, (n_pairs,).

        A pair of weight 0 has no entry. R shares its memory with the pairs: do not change it in place.
        """
        from scipy.sparse import csr_matrix

        if weight is not None and not weight.all():
            return self.where(weight != 0).to_scipy(weight[weight != 0])
        entries = np.ones(len(self), dtype=np.float32) if weight is None else weight.astype(np.float32)
        return csr_matrix((entries, self.indices, self.indptr), shape=(self.n_users, self.n_items))

    def require_weights(self, setting: str) -> NDArray[np.float32]:
        """Return the weights; raise ``DataError`` that names the setting which needs them if there are none."""
        if self.weight is None:
            raise DataError(
                f"{setting} needs a weight of each pair, which this data does not have; prepare it with `dgcf data "
                f"prepare --weight-col …` or `--count-repeats`, or leave {setting} out."
            )
        if not self.weight.any():
            raise DataError(f"{setting} needs weights above 0, and all weights of this data are 0; correct them.")
        return self.weight
