"""Who has what, in compressed rows: the one in-memory form of interactions that every later room reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import scipy.sparse


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ascending, each once. (``np.unique`` of NumPy 2.3 and later hashes first, which is five times slower here.)"""
    keys = np.sort(keys)
    return keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys


def earlier(user_idx: NDArray[np.integer], time: NDArray[Any]) -> NDArray[np.int64]:
    """(n,) how many of the same user's rows have a smaller time."""
    n = len(user_idx)
    order = np.lexsort((time, user_idx))
    user, at, rank = user_idx[order], time[order], np.arange(n)
    new_user = np.append(True, user[1:] != user[:-1])[:n]
    new_time = new_user | np.append(True, at[1:] != at[:-1])[:n]
    first_of_time, first_of_user = (np.maximum.accumulate(np.where(new, rank, 0)) for new in (new_time, new_user))
    found = np.empty(n, dtype=np.int64)
    found[order] = first_of_time - first_of_user
    return found


@dataclass(frozen=True, eq=False)
class Pairs:
    """A set of (user, item) pairs; each pair once, items ascending within a user.

    ``indptr``: (n_users + 1,) int64; ``indices``: (n_pairs,) int32; user u has ``indices[indptr[u]:indptr[u + 1]]``.
    ``place``: (n_pairs,) int32, where a pair stands among its user's, the earliest first and equal ones together, or
    None where no order is known. Which pairs there are, and so equality, is not about that.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    n_items: int
    place: NDArray[np.int32] | None = None

    @classmethod
    def from_indices(
        cls, user_idx: NDArray[np.integer], item_idx: NDArray[np.integer], n_users: int, n_items: int
    ) -> Pairs:
        """Sort, and keep each pair once."""
        return cls.from_keys(distinct(user_idx.astype(np.int64) * n_items + item_idx), n_users, n_items)

    def placed(self, key: NDArray[np.int64], place: NDArray[np.integer]) -> Pairs:
        """The same pairs in an order: ``place`` of each of some distinct pairs, by ``key``; all of these are there."""
        order = np.argsort(key)
        found = np.searchsorted(key, self.keys(), sorter=order)
        if not np.array_equal(key[order[np.minimum(found, len(key) - 1)]], self.keys()):
            raise ValueError("some pairs have no place")
        return replace(self, place=place[order[found]].astype(np.int32))

    @classmethod
    def from_keys(cls, key: NDArray[np.int64], n_users: int, n_items: int) -> Pairs:
        """From ascending, distinct numbers ``user · n_items + item``."""
        user_idx, item_idx = np.divmod(key, max(n_items, 1))
        indptr = np.zeros(n_users + 1, dtype=np.int64)
        np.cumsum(np.bincount(user_idx, minlength=n_users), out=indptr[1:])
        return cls(indptr, item_idx.astype(np.int32), n_items)

    @classmethod
    def checked(
        cls,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        n_users: int,
        n_items: int,
        place: NDArray[np.int32] | None = None,
        *,
        name: str = "",
    ) -> Pairs:
        """From stored arrays; a ValueError says which of them is not what it should be, ``name`` what it is of."""
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
        """No pair, which is in any order."""
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
        """The items of one user, ascending."""
        return self.indices[self.indptr[user_idx] : self.indptr[user_idx + 1]]

    def take(self, user_idx: NDArray[np.integer]) -> Pairs:
        """The items of some users, in the order given: row n has those of ``user_idx[n]``."""
        counts = self.user_degrees[user_idx]
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        place = np.arange(indptr[-1]) + np.repeat(self.indptr[user_idx] - indptr[:-1], counts)
        return Pairs(indptr, self.indices[place], self.n_items)

    @property
    def n_users(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def user_degrees(self) -> NDArray[np.int64]:
        """(n_users,) how many items each user has."""
        return np.diff(self.indptr)

    @cached_property
    def item_degrees(self) -> NDArray[np.int64]:
        """(n_items,) how many users each item has."""
        return np.bincount(self.indices, minlength=self.n_items)

    @property
    def user_idx(self) -> NDArray[np.int64]:
        """(n_pairs,) the user of each pair; with ``indices``, the pairs as two columns."""
        return np.repeat(np.arange(self.n_users), self.user_degrees)

    def later(self) -> NDArray[np.int64]:
        """(n_pairs,) how many of the same user's pairs come after each one; only with ``place``."""
        assert self.place is not None
        return earlier(self.user_idx, -self.place.astype(np.int64))

    def where(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Some of the pairs, in the same order."""
        kept = Pairs.from_keys(self.keys()[chosen], self.n_users, self.n_items)
        return kept if self.place is None else replace(kept, place=self.place[chosen])

    def keys(self) -> NDArray[np.int64]:
        """Ascending numbers ``user · n_items + item``, one per pair: set operations on pairs are those on keys."""
        return self.user_idx * self.n_items + self.indices

    def union(self, *others: Pairs) -> Pairs:
        """All pairs of some sets; in their order, if all have one. A pair that is in several has its last place."""
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
        """The binary matrix R, (n_users, n_items), float32."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(self), dtype=np.float32)
        return csr_matrix((ones, self.indices, self.indptr), shape=(self.n_users, self.n_items))
