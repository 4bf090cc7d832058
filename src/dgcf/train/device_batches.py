"""A sampler's epochs as whole tensors on a device: the batches of ``Sampler.batch``, laid end to end.

The host gives raw random bits, which may be drawn ahead in a thread of their own; all that is derived from them
(orders, positives, negatives) is computed on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgcf.random import bits, uniform
from dgcf.train.sampler import Sampler

TOP_BIT = np.uint64(1 << 63)


class Drawn(NamedTuple):
    """What the host draws for an epoch.

    ``order``: words whose order is that of the pairs, (n_pairs,), or of each batch's users, (batches, n_users); or
    chances, (n,), where a batch is larger than its users are many. ``positives``: (n,) chances, for sampling by user.
    ``negatives``: (n · per_pair,) chances, or words (batches, n_items) of which the least name the shared items.
    """

    order: NDArray[np.int64] | NDArray[np.float64]
    positives: NDArray[np.float64]
    negatives: NDArray[np.float64] | NDArray[np.int64]


class DeviceBatches:
    """Whole epochs of one sampler."""

    def __init__(self, sampler: Sampler, device: torch.device) -> None:
        self.sampler, self.device = sampler, device
        non_items, pairs = sampler.non_items, sampler.pairs
        arrays = (sampler.pair_user, sampler.pair_item, non_items.count, non_items.keys, non_items.indptr)
        self.user, self.item, self.count, self.keys, self.indptr = (self._there(array) for array in arrays)
        if sampler.sampling == "user":
            self.users, self.degrees = self._there(sampler.users), self._there(pairs.user_degrees)
            self.items = self._there(pairs.indices.astype(np.int64))

    def draw(self, epoch: int) -> Drawn:
        """The host's part of an epoch."""
        sampler, seed = self.sampler, self.sampler.seed
        first, sizes = epoch * sampler.batches_per_epoch, sampler.batch_sizes
        positives = np.empty(0)
        order: NDArray[np.int64] | NDArray[np.float64]
        if sampler.sampling == "interaction":
            order = _ordered_words(bits(seed, "shuffle", sampler.n_pairs, epoch))
        else:
            n = len(sampler.users)
            if sampler.batch_size <= n:
                words = [bits(seed, "users", n, first + number) for number in range(len(sizes))]
                order = _ordered_words(np.stack(words))
            else:
                order = self._chances("users", first, sizes)
            positives = self._chances("positives", first, sizes)
        if sampler.shared is not None:
            n = sampler.pairs.n_items
            words = [bits(seed, "shared-negatives", n, first + number) for number in range(len(sizes))]
            return Drawn(order, positives, _ordered_words(np.stack(words)))
        own = [size * sampler.per_pair for size in sizes]
        return Drawn(order, positives, self._chances("negatives", first, own))

    def lay_out(self, drawn: Drawn) -> tuple[Tensor, Tensor, Tensor]:
        """The device's part: ``users`` (n,), ``positives`` (n,), ``negatives`` (n, per_pair) or shared (batches, K)."""
        sampler = self.sampler
        order = self._there(drawn.order)
        if sampler.sampling == "interaction":
            order = torch.sort(order, stable=True).indices
            users, positives = self.user[order], self.item[order]
        else:
            if order.ndim == 2:
                order = torch.sort(order, dim=1, stable=True).indices[:, : sampler.batch_size].flatten()
            else:
                order = (order * len(self.users)).long()
            users = self.users[order]
            place = (self._there(drawn.positives) * self.degrees[users]).long()
            positives = self.items[self.indptr[users] + place]
        if sampler.shared is not None:
            least = torch.topk(self._there(drawn.negatives), sampler.shared, dim=1, largest=False).indices
            return users, positives, least.sort(dim=1).values
        rank = (self._there(drawn.negatives).view(len(users), sampler.per_pair) * self.count[users][:, None]).long()
        below = torch.searchsorted(self.keys, users[:, None] * (sampler.pairs.n_items + 1) + rank, right=True)
        return users, positives, rank + below - self.indptr[users][:, None]

    def _chances(self, name: str, first: int, sizes: list[int]) -> NDArray[np.float64]:
        drawn = [uniform(self.sampler.seed, name, size, first + number) for number, size in enumerate(sizes)]
        return np.concatenate(drawn)

    def _there(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _ordered_words(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The same words as signed numbers in the same order."""
    return (words ^ TOP_BIT).view(np.int64)
