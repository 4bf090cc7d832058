"""Training batches: positives from the interactions, negatives exactly uniform over what a user does not have.

Every draw is a pure function of (seed, epoch, batch), so a run that stops anywhere goes on with the batch that it
would have had, and no state of a generator needs to be saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgcf.data.pairs import Pairs, row_entries
from dgcf.errors import DataError
from dgcf.random import bits, permutation, uniform

Sampling = Literal["interaction", "user"]
SAMPLERS: tuple[Sampling, ...] = ("interaction", "user")
Ints = NDArray[np.int64]
TOP_BIT = np.uint64(1 << 63)
LAST = 1e-300
"""The weight of an item without training pairs, in place of 0: any other item comes before it in a race."""


@dataclass(frozen=True)
class Batch:
    """One step's pairs: ``users`` (B,), ``positives`` (B,), and the items they are compared with.

    ``negatives`` is (B, n), each row its user's own, or (K,) when the batch shares them. Shared ones may hold an
    item that a user has: ``hits`` (B, K) is true there.
    """

    users: Tensor
    positives: Tensor
    negatives: Tensor
    hits: Tensor | None = None

    def __len__(self) -> int:
        return len(self.users)

    def to(self, device: torch.device) -> Batch:
        hits = None if self.hits is None else self.hits.to(device)
        return Batch(self.users.to(device), self.positives.to(device), self.negatives.to(device), hits)


class NonItems:
    """For each user the items without a training pair, ascending: found by rank, in one binary search.

    Below the k-th positive p_k of a user (k from 0) lie p_k − k non-items. So the r-th non-item is r plus the number
    of positives with p_k − k ≤ r. Laid end to end, ``user · (n_items + 1) + p_k − k`` is ascending over all users,
    and one ``searchsorted`` answers a whole batch: exact, with one draw each, and nothing is ever rejected.
    """

    def __init__(self, pairs: Pairs) -> None:
        self.n_items, self.indptr = pairs.n_items, pairs.indptr
        self.count: Ints = pairs.n_items - pairs.user_degrees
        place = np.arange(len(pairs)) - np.repeat(pairs.indptr[:-1], pairs.user_degrees)
        self.keys: Ints = pairs.user_idx * (pairs.n_items + 1) + pairs.indices - place

    def at(self, users: Ints, rank: Ints) -> Ints:
        """The ``rank``-th (from 0) non-item of each user; shapes broadcast."""
        below = np.searchsorted(self.keys, users * (self.n_items + 1) + rank, side="right")
        return rank + below - self.indptr[users]

    def draw(self, users: Ints, per_user: int, seed: int, position: int) -> Ints:
        """(len(users), per_user): uniform non-items of each user, drawn with replacement."""
        drawn = uniform(seed, "negatives", len(users) * per_user, position).reshape(len(users), per_user)
        return self.at(users[:, None], (drawn * self.count[users][:, None]).astype(np.int64))


class Sampler:
    """The batches of an epoch, by number.

    ``interaction``: each training pair once an epoch, in a new random order (the paper: "each interaction a
    positive"). ``user``: each batch draws its users uniformly, without repeats while there are enough, and one
    positive of each; ``n_pairs // batch_size + 1`` batches an epoch (the authors' code).

    ``shared`` asks for that many distinct negatives for the whole batch in place of ``per_pair`` for each pair, drawn
    with weight ``d ** popularity``, d the training pairs of an item: 0 draws all items alike, 1 the next one as the
    positive of a random pair would be. Items without pairs come last, unless ``popularity`` is 0.
    With ``recency`` r, a pair counts ``(1 + k) ** -r`` where its user has k later ones: an epoch of ``interaction``
    then has as many pairs as before, drawn with replacement, every user as often as before on average; a user's
    positive in ``user`` is drawn likewise.
    A user who has every item has no negative: such users are left out, and ``skipped_users`` says how many.
    """

    def __init__(
        self,
        pairs: Pairs,
        batch_size: int,
        *,
        sampling: Sampling = "interaction",
        per_pair: int = 1,
        shared: int | None = None,
        popularity: float = 0.0,
        recency: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.pairs, self.batch_size, self.sampling, self.seed = pairs, batch_size, sampling, seed
        self.per_pair, self.shared = per_pair, None if shared is None else min(shared, pairs.n_items)
        self.weights = torch.from_numpy(_weights(pairs.item_degrees, popularity)) if popularity else None
        self.non_items = NonItems(pairs)
        full = self.non_items.count == 0
        self.skipped_users = int(np.count_nonzero(full & (pairs.user_degrees > 0)))
        self.users: Ints = np.flatnonzero(~full & (pairs.user_degrees > 0))
        if len(self.users) == 0:
            raise DataError(
                f"none of the {pairs.n_users:,} users has both an item and a missing item in training, so there is "
                "nothing to compare; give more data, or check that the split is not empty."
            )
        pair_user = pairs.user_idx
        kept = slice(None) if self.skipped_users == 0 else ~full[pair_user]
        self.pair_user: Ints = pair_user[kept]
        self.pair_item: Ints = pairs.indices[kept].astype(np.int64)
        self.ends: NDArray[np.float64] | None = None
        if recency:
            weights = _recent(pairs, recency)
            self.ends = np.cumsum(weights[kept] if sampling == "interaction" else weights)
        self._order: tuple[int, Ints] | None = None

    @property
    def n_pairs(self) -> int:
        return len(self.pair_user)

    @property
    def batches_per_epoch(self) -> int:
        if self.sampling == "user":
            return self.n_pairs // self.batch_size + 1
        return -(-self.n_pairs // self.batch_size)

    @property
    def batch_sizes(self) -> list[int]:
        """Pairs in each batch of an epoch; the last one of ``interaction`` sampling takes what is left."""
        if self.sampling == "user":
            return [self.batch_size] * self.batches_per_epoch
        return [min(self.batch_size, self.n_pairs - first) for first in range(0, self.n_pairs, self.batch_size)]

    @property
    def pairs_per_epoch(self) -> int:
        """Positives seen in one epoch."""
        return self.n_pairs if self.sampling == "interaction" else self.batches_per_epoch * self.batch_size

    def batch(self, epoch: int, number: int) -> Batch:
        """Batch ``number`` (from 0) of an epoch (from 1)."""
        position = epoch * self.batches_per_epoch + number
        users, positives = self._shuffled(epoch, number) if self.sampling == "interaction" else self._by_user(position)
        if self.shared is None:
            negatives, hits = self.non_items.draw(users, self.per_pair, self.seed, position), None
        else:
            negatives = self.shared_negatives(position)
            hits = torch.from_numpy(self._hits(users, negatives))
        return Batch(torch.from_numpy(users), torch.from_numpy(positives), torch.from_numpy(negatives), hits)

    def _shuffled(self, epoch: int, number: int) -> tuple[Ints, Ints]:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._drawn(epoch)
        chosen = self._order[1][number * self.batch_size : (number + 1) * self.batch_size]
        return self.pair_user[chosen], self.pair_item[chosen]

    def _drawn(self, epoch: int) -> Ints:
        """(n_pairs,) the numbers of an epoch's pairs, in the order in which they come."""
        if self.ends is None:
            return permutation(self.seed, "shuffle", self.n_pairs, epoch)
        at = uniform(self.seed, "recent", self.n_pairs, epoch) * self.n_pairs
        return np.minimum(np.searchsorted(self.ends, at, side="right"), self.n_pairs - 1)

    def _by_user(self, position: int) -> tuple[Ints, Ints]:
        n = len(self.users)
        if self.batch_size <= n:
            chosen = permutation(self.seed, "users", n, position)[: self.batch_size]
        else:
            chosen = (uniform(self.seed, "users", self.batch_size, position) * n).astype(np.int64)
        users = self.users[chosen]
        first, degree = self.pairs.indptr[users], self.pairs.user_degrees[users]
        chance = uniform(self.seed, "positives", len(users), position) * degree
        if self.ends is None:
            place = chance.astype(np.int64)
        else:
            place = np.searchsorted(self.ends, first + chance, side="right") - first
            place = np.clip(place, 0, degree - 1)  # sums are rounded, and a user's end may be at another's beginning
        return users, self.pairs.indices[first + place].astype(np.int64)

    def shared_negatives(self, position: int) -> Ints:
        """The distinct items that a batch shares, ascending; without weights every set is as likely as any other."""
        assert self.shared is not None
        words = in_order(bits(self.seed, "shared-negatives", self.pairs.n_items, position))
        return first_of(torch.from_numpy(words), self.weights, self.shared).numpy()

    def _hits(self, users: Ints, negatives: Ints) -> NDArray[np.bool_]:
        """(B, K): where a shared negative is one of the user's own items."""
        place = np.full(self.pairs.n_items, -1, dtype=np.int64)
        place[negatives] = np.arange(len(negatives))
        entries, counts = row_entries(self.pairs.indptr, users)
        owned = place[self.pairs.indices[entries]]
        hits = np.zeros((len(users), len(negatives)), dtype=np.bool_)
        hits[np.repeat(np.arange(len(users)), counts)[owned >= 0], owned[owned >= 0]] = True
        return hits


def require_order(pairs: Pairs) -> None:
    """What is recent needs an order."""
    if pairs.place is None:
        raise DataError(
            "recency needs the order of each user's pairs, which this data does not know; prepare it with "
            "`dgcf data prepare --keep-order`, or leave recency out."
        )


def _recent(pairs: Pairs, recency: float) -> NDArray[np.float64]:
    """(n_pairs,) how much each pair counts when positives are drawn: 1 on average for every user."""
    require_order(pairs)
    weights = (1.0 + pairs.count_later()) ** -recency
    totals = np.bincount(pairs.user_idx, weights, minlength=pairs.n_users)
    return np.asarray(weights * (pairs.user_degrees / np.where(totals > 0, totals, 1.0))[pairs.user_idx])


def _weights(degrees: Ints, popularity: float) -> NDArray[np.float64]:
    """(n_items,) how much each item counts when shared negatives are drawn."""
    return np.where(degrees > 0, degrees.astype(np.float64) ** popularity, LAST)


def in_order(words: NDArray[np.uint64]) -> Ints:
    """The same words as signed numbers in the same order, which is the kind that torch can sort."""
    return (words ^ TOP_BIT).view(np.int64)


def first_of(words: Tensor, weights: Tensor | None, count: int) -> Tensor:
    """(…, count): the first places in a race of n, drawn by words (…, n) that are ``in_order``; ascending.

    With ``weights`` (n,), place i arrives after ``−log(u) / w_i``, u in (0, 1) from its word: an exponential time, so
    that i is the first with chance ``w_i / Σ w``, and then the next of those that are left (Efraimidis and Spirakis,
    2006). Without weights the words themselves are the times. The same on every device: logarithms may differ there in
    their last bit, which no two times are near enough to notice.
    """
    if weights is not None:
        # 52 bits and a half, all exact in float64: never 0 and never 1, so that no time is infinite or 0.
        chances = (words >> 12).double().add_(2.0**51 + 0.5).mul_(2.0**-52)
        words = chances.log_().div_(-weights)
    return torch.topk(words, count, dim=-1, largest=False, sorted=False).indices.sort(dim=-1).values
