"""Training batches: positives from the training pairs, negatives exactly uniform over a user's other items.

Every draw is a pure function of (seed, epoch, batch). A resumed run gets the batches that it would have had, and no
generator state is saved.
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
"""The weight of an item without training pairs, in place of 0: it is drawn after all other items."""


@dataclass(frozen=True)
class Batch:
    """The pairs of one step: ``users`` (B,), ``positives`` (B,) and ``negatives``.

    ``negatives`` is (B, n), n for each pair, or (K,) if the batch shares them. Shared ones may include items of a user:
    ``hits`` (B, K) is true for these.
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
    """For each user the items without a training pair, ascending, accessed by rank.

    Below the k-th positive p_k of a user (k from 0) are p_k − k non-items. So the r-th non-item is r plus the number of
    positives with p_k − k ≤ r. The keys ``user · (n_items + 1) + p_k − k`` ascend over all users, so one
    ``searchsorted`` serves a whole batch, exactly and without rejection.
    """

    def __init__(self, pairs: Pairs) -> None:
        self.n_items, self.indptr = pairs.n_items, pairs.indptr
        self.count: Ints = pairs.n_items - pairs.user_degrees
        place = np.arange(len(pairs)) - np.repeat(pairs.indptr[:-1], pairs.user_degrees)
        self.keys: Ints = pairs.user_idx * (pairs.n_items + 1) + pairs.indices - place

    def at(self, users: Ints, rank: Ints) -> Ints:
        """Return the ``rank``-th (from 0) non-item of each user; shapes broadcast."""
        below = np.searchsorted(self.keys, users * (self.n_items + 1) + rank, side="right")
        return rank + below - self.indptr[users]

    def draw(self, users: Ints, per_user: int, seed: int, position: int) -> Ints:
        """Return uniform non-items of each user, (len(users), per_user), drawn with replacement."""
        chances = uniform(seed, "negatives", len(users) * per_user, position).reshape(len(users), per_user)
        return self.at(users[:, None], (chances * self.count[users][:, None]).astype(np.int64))


class Sampler:
    """The batches of an epoch, by number.

    ``interaction``: each training pair once an epoch, in a new random order (the paper: "each interaction a
    positive"). ``user``: each batch draws users uniformly, without repeats if there are enough, and one positive of
    each; ``n_pairs // batch_size + 1`` batches an epoch (the authors' code).

    ``shared``: the number of distinct negatives of the whole batch, in place of ``per_pair`` for each pair. They are
    drawn with weight ``d ** popularity``, d the training pairs of an item: 0 draws all items alike, 1 as the positives
    of random pairs. Items without pairs come last, unless ``popularity`` is 0.
    With ``recency`` r, a pair has weight ``(1 + k) ** -r`` if its user has k later ones. An epoch of ``interaction``
    then has the same number of pairs, drawn with replacement, each user as often on average; ``user`` draws positives
    with the same weights. ``weighted``: ``interaction`` draws pairs with replacement, in proportion to their weights in
    the data.
    Users who have every item have no negatives and are skipped; ``skipped_users`` counts them.
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
        weighted: bool = False,
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
        self.n_pairs = len(self.pair_user)
        self.pair_item: Ints = pairs.indices[kept].astype(np.int64)
        self.ends: NDArray[np.float64] | None = None
        if recency:
            weights = _recent(pairs, recency)
            self.ends = np.cumsum(weights[kept] if sampling == "interaction" else weights)
        if weighted:
            self.ends = _by_weight(pairs.require_weights("weighted_sampling")[kept])
        self._order: tuple[int, Ints] | None = None

    @property
    def batches_per_epoch(self) -> int:
        if self.sampling == "user":
            return self.n_pairs // self.batch_size + 1
        return -(-self.n_pairs // self.batch_size)

    @property
    def batch_sizes(self) -> list[int]:
        """Pairs in each batch of an epoch; the last batch of ``interaction`` has the rest."""
        if self.sampling == "user":
            return [self.batch_size] * self.batches_per_epoch
        return [min(self.batch_size, self.n_pairs - first) for first in range(0, self.n_pairs, self.batch_size)]

    @property
    def pairs_per_epoch(self) -> int:
        """Positives of one epoch."""
        return self.n_pairs if self.sampling == "interaction" else self.batches_per_epoch * self.batch_size

    def batch(self, epoch: int, number: int) -> Batch:
        """Return batch ``number`` (from 0) of an epoch (from 1)."""
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
        """Return the numbers of an epoch's pairs in their order, (n_pairs,)."""
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
            place = np.clip(place, 0, degree - 1)  # rounded sums may fall into another user's range
        return users, self.pairs.indices[first + place].astype(np.int64)

    def shared_negatives(self, position: int) -> Ints:
        """Return the distinct items that a batch shares, ascending; without weights all sets are equally likely."""
        assert self.shared is not None
        words = in_order(bits(self.seed, "shared-negatives", self.pairs.n_items, position))
        return first_of(torch.from_numpy(words), self.weights, self.shared).numpy()

    def _hits(self, users: Ints, negatives: Ints) -> NDArray[np.bool_]:
        """Return where a shared negative is an item of the user, (B, K) bool."""
        place = np.full(self.pairs.n_items, -1, dtype=np.int64)
        place[negatives] = np.arange(len(negatives))
        entries, counts = row_entries(self.pairs.indptr, users)
        owned = place[self.pairs.indices[entries]]
        hits = np.zeros((len(users), len(negatives)), dtype=np.bool_)
        hits[np.repeat(np.arange(len(users)), counts)[owned >= 0], owned[owned >= 0]] = True
        return hits


def require_order(pairs: Pairs) -> None:
    """Raise ``DataError`` if the pairs have no order."""
    if pairs.place is None:
        raise DataError(
            "recency needs the order of each user's pairs, which this data does not have; prepare it with "
            "`dgcf data prepare --keep-order`, or leave recency out."
        )


def _recent(pairs: Pairs, recency: float) -> NDArray[np.float64]:
    """Return the weight of each pair, (n_pairs,), when positives are drawn: 1 on average for every user."""
    require_order(pairs)
    weights = (1.0 + pairs.count_later()) ** -recency
    totals = np.bincount(pairs.user_idx, weights, minlength=pairs.n_users)
    return np.asarray(weights * (pairs.user_degrees / np.where(totals > 0, totals, 1.0))[pairs.user_idx])


def _by_weight(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the ends of the pairs' shares of ``n_pairs``, (n_pairs,), in proportion to their weights."""
    ends = np.cumsum(weights.astype(np.float64))
    if not ends[-1] > 0:
        raise DataError("weighted_sampling has no pair with a weight above 0 to draw; correct the weights.")
    return np.asarray(ends * (len(ends) / ends[-1]))


def _weights(degrees: Ints, popularity: float) -> NDArray[np.float64]:
    """Return the weight of each item, (n_items,), when shared negatives are drawn."""
    return np.where(degrees > 0, degrees.astype(np.float64) ** popularity, LAST)


def in_order(words: NDArray[np.uint64]) -> Ints:
    """Return the same words as signed numbers in the same order, which torch can sort."""
    return (words ^ TOP_BIT).view(np.int64)


def first_of(words: Tensor, weights: Tensor | None, count: int) -> Tensor:
    """Return a random sample of ``count`` of n numbers without replacement, (…, count), ascending.

    ``words`` (…, n) are random and ``in_order``. With ``weights`` (n,), number i has the time ``−log(u) / w_i``, u in
    (0, 1) from its word, and the smallest times win: i is the first with probability ``w_i / Σ w``, and likewise the
    next of the rest (Efraimidis and Spirakis, 2006). Without weights the words are the times. The result is the same on
    every device: logarithms may differ in their last bit, but no two times are that close.
    """
    if weights is not None:
        # 52 bits plus one half, exact in float64: never 0 or 1, so that no time is infinite or 0.
        chances = (words >> 12).double().add_(2.0**51 + 0.5).mul_(2.0**-52)
        words = chances.log_().div_(-weights)
    return torch.topk(words, count, dim=-1, largest=False, sorted=False).indices.sort(dim=-1).values
