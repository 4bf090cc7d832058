"""User-item pairs in compressed sparse rows: the in-memory form of interactions used by all other packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import scipy.sparse

ReadArray = Callable[[str, str], NDArray[Any]]
"""Returns a stored one-dimensional array by name and NumPy dtype (``<i8``)."""


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sorted distinct keys. (``np.unique`` of NumPy 2.3 and later hashes first: five times slower here.)"""
    keys = np.sort(keys)
    return keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys


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
    ``place``: (n_pairs,) int32, the chronological rank of a pair among its user's pairs (0 is the earliest, equal times
    share a rank), or None if no order is known. Equality ignores it.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    n_items: int
    place: NDArray[np.int32] | None = None

    @classmethod
    def from_indices(
        cls, user_idx: NDArray[np.integer], item_idx: NDArray[np.integer], n_users: int, n_items: int
    ) -> Pairs:
        """Return the distinct pairs of two index columns."""
        return cls.from_keys(distinct(user_idx.astype(np.int64) * n_items + item_idx), n_users, n_items)

    def with_places(self, key: NDArray[np.int64], place: NDArray[np.integer]) -> Pairs:
        """Return these pairs with their places, given for distinct pairs (by ``key``) that include all of them."""
        order = np.argsort(key)
        match = np.searchsorted(key, self.keys(), sorter=order)
        if not np.array_equal(key[order[np.minimum(match, len(key) - 1)]], self.keys()):
            raise ValueError("some pairs have no place")
        return replace(self, place=place[order[match]].astype(np.int32))

    @classmethod
    def from_keys(cls, key: NDArray[np.int64], n_users: int, n_items: int) -> Pairs:
        """Return the pairs of ascending, distinct keys ``user · n_items + item``."""
        user_idx, item_idx = np.divmod(key, max(n_items, 1))
        indptr = np.zeros(n_users + 1, dtype=np.int64)
        np.cumsum(np.bincount(user_idx, minlength=n_users), out=indptr[1:])
        return cls(indptr, item_idx.astype(np.int32), n_items)

    def to_arrays(self, name: str, *, with_place: bool = False) -> dict[str, NDArray[Any]]:
        """Return the arrays to store, their names prefixed by ``name``."""
        arrays: dict[str, NDArray[Any]] = {f"{name}indptr": self.indptr, f"{name}indices": self.indices}
        if with_place and self.place is not None:
            arrays[f"{name}place"] = self.place
        return arrays

    @classmethod
    def from_arrays(cls, name: str, read: ReadArray, n_users: int, n_items: int, *, with_place: bool = False) -> Pairs:
        """Return the pairs that ``to_arrays`` stored; raise ValueError if the arrays are not valid."""
        indptr, indices = read(f"{name}indptr", "<i8"), read(f"{name}indices", "<i4")
        place = read(f"{name}place", "<i4") if with_place else None
        # Neighbours are compared, not subtracted: a difference of two int64 may wrap around.
        falls = bool((indptr[1:] < indptr[:-1]).any())
        if len(indptr) != n_users + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or falls:
            raise ValueError(f"{name}indptr does not give each row a place in {name}indices")
        if len(indices) and not (indices.min() >= 0 and indices.max() < n_items):
            raise ValueError(f"{name}indices are not item indices below {n_items}")
        pairs = cls(indptr, indices, n_items, place)
        if (np.diff(pairs.keys()) <= 0).any():
            raise ValueError(f"{name}indices are not ascending")
        if place is not None and (len(place) != len(indices) or (place < 0).any()):
            raise ValueError(f"{name}place has {len(place)} numbers for {len(indices)} pairs, or negative ones")
        return pairs

    @classmethod
    def empty(cls, n_users: int, n_items: int) -> Pairs:
        """Return an empty set of pairs; its (empty) order is known."""
        nothing = np.zeros(0, dtype=np.int32)
        return cls(np.zeros(n_users + 1, dtype=np.int64), nothing, n_items, nothing)

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
        """Return the pairs chosen by a mask (n_pairs,), with their places."""
        kept = Pairs.from_keys(self.keys()[chosen], self.n_users, self.n_items)
        return kept if self.place is None else replace(kept, place=self.place[chosen])

    def keys(self) -> NDArray[np.int64]:
        """Return (n_pairs,) ascending keys ``user · n_items + item``, for set operations."""
        return self.user_idx * self.n_items + self.indices

    def union(self, *others: Pairs) -> Pairs:
        """Return the union; with places if all sets have them, the largest place for a pair of several sets."""
        every = [self, *others]
        key = np.concatenate([pairs.keys() for pairs in every])
        places = [pairs.place for pairs in every if pairs.place is not None]
        if not places or sum(map(len, places)) < len(key):
            return Pairs.from_keys(distinct(key), self.n_users, self.n_items)
        place = np.concatenate(places)
        order = np.lexsort((place, key))
        kept = order[np.append(key[order][1:] != key[order][:-1], True)] if len(key) else order
        return replace(Pairs.from_keys(key[kept], self.n_users, self.n_items), place=place[kept])

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """Return the binary matrix R, (n_users, n_items), float32."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(self), dtype=np.float32)
        return csr_matrix((ones, self.indices, self.indptr), shape=(self.n_users, self.n_items))
