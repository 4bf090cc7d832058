"""Whole epochs of samplers as tensors on a device: the batches of ``Sampler.batch``, end to end.

The host draws raw random bits, possibly ahead in a separate thread. Orders, positives and negatives are computed from
them on the device, for all samplers at once. Where each pair has many negatives, the device draws their bits, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgcf.random import bits, uniform
from dgcf.train.engines.device_random import device_uniform
from dgcf.train.sampler import Batch, Sampler, first_of, in_order

LAID_OUT = 1 << 23
"""The most numbers of an epoch that a CPU computes at once: 64 MiB."""
HOST_DRAWS = 1 << 23
"""The most negatives of an epoch that the host draws for a GPU; beyond, the GPU draws as many at a time."""


class EpochDraws(NamedTuple):
    """The host's random draws of an epoch, a row for each of s samplers.

    ``order``: words that sort to the order of the pairs, (s, n_pairs), or of each batch's users, (s, batches, n_users);
    or numbers in [0, 1), (s, n), if recent pairs have more weight or a batch has more pairs than there are users.
    ``positives``: (s, n) numbers in [0, 1), for sampling by user. ``negatives``: (s, n · per_pair) numbers in [0, 1),
    or words (s, batches, n_items) for shared items; None if the device draws them itself, from the ``epoch``.
    """

    order: NDArray[np.int64] | NDArray[np.float64]
    positives: NDArray[np.float64]
    negatives: NDArray[np.float64] | NDArray[np.int64] | None
    epoch: int


class DeviceBatches:
    """Whole epochs of samplers that differ in their seeds alone."""

    def __init__(self, samplers: Sequence[Sampler], device: torch.device) -> None:
        sampler = samplers[0]
        self.sampler, self.seeds, self.device = sampler, [sampler.seed for sampler in samplers], device
        non_items, pairs = sampler.non_items, sampler.pairs
        arrays = (sampler.pair_user, sampler.pair_item, non_items.count, non_items.keys, non_items.indptr)
        self.user, self.item, self.count, self.keys, self.indptr = (self._on_device(array) for array in arrays)
        self.weights = None if sampler.weights is None else sampler.weights.to(device)
        self.ends = None if sampler.ends is None else self._on_device(sampler.ends)
        if sampler.sampling == "user":
            self.users, self.degrees = self._on_device(sampler.users), self._on_device(pairs.user_degrees)
            self.items = self._on_device(pairs.indices.astype(np.int64))

    def draw(self, epoch: int) -> EpochDraws:
        """Return the host's draws of an epoch."""
        sampler = self.sampler
        first, sizes = epoch * sampler.batches_per_epoch, sampler.batch_sizes
        positives = np.empty((len(self.seeds), 0))
        order: NDArray[np.int64] | NDArray[np.float64]
        if sampler.sampling == "interaction" and sampler.ends is not None:
            order = np.stack([uniform(seed, "recent", sampler.n_pairs, epoch) for seed in self.seeds])
        elif sampler.sampling == "interaction":
            words = np.stack([bits(seed, "shuffle", sampler.n_pairs, epoch) for seed in self.seeds])
            order = in_order(words)
        else:
            whole = sampler.batch_size <= len(sampler.users)
            order = self._words("users", first, len(sampler.users)) if whole else self._chances("users", first, sizes)
            positives = self._chances("positives", first, sizes)
        if sampler.shared is not None:
            return EpochDraws(order, positives, self._words("shared-negatives", first, sampler.pairs.n_items), epoch)
        if self.device.type == "cuda" and sampler.pairs_per_epoch * sampler.per_pair > HOST_DRAWS:
            return EpochDraws(order, positives, None, epoch)
        own = [size * sampler.per_pair for size in sizes]
        return EpochDraws(order, positives, self._chances("negatives", first, own), epoch)

    def lay_out(self, draws: EpochDraws) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``users`` (s, n), ``positives`` (s, n) and negatives, (s, n, per_pair) or shared (s, batches, K)."""
        sampler = self.sampler
        order = self._on_device(draws.order)
        if sampler.sampling == "interaction":
            if self.ends is None:
                order = torch.sort(order, dim=-1, stable=True).indices
            else:
                order = torch.searchsorted(self.ends, order * sampler.n_pairs, right=True)
                order = order.clamp_(max=sampler.n_pairs - 1)
            users, positives = self.user[order], self.item[order]
        else:
            if order.ndim == 3:
                order = torch.sort(order, dim=-1, stable=True).indices[..., : sampler.batch_size].flatten(1)
            else:
                order = (order * len(self.users)).long()
            users = self.users[order]
            first, degree = self.indptr[users], self.degrees[users]
            chance = self._on_device(draws.positives) * degree
            if self.ends is None:
                place = chance.long()
            else:
                place = torch.searchsorted(self.ends, first + chance, right=True) - first
                place = torch.minimum(place.clamp_(min=0), degree - 1)
            positives = self.items[first + place]
        chance = self._own_chances(draws.epoch) if draws.negatives is None else self._on_device(draws.negatives)
        if sampler.shared is not None:
            return users, positives, first_of(chance, self.weights, sampler.shared)
        rank = (chance.reshape(*users.shape, sampler.per_pair) * self.count[users][..., None]).long()
        below = torch.searchsorted(self.keys, users[..., None] * (sampler.pairs.n_items + 1) + rank, right=True)
        return users, positives, rank + below - self.indptr[users][..., None]

    def _words(self, name: str, first: int, n: int) -> NDArray[np.int64]:
        """Return (s, batches, n) words, of which only the order matters."""
        batches = range(first, first + self.sampler.batches_per_epoch)
        return in_order(np.stack([[bits(seed, name, n, batch) for batch in batches] for seed in self.seeds]))

    def _chances(self, name: str, first: int, sizes: list[int]) -> NDArray[np.float64]:
        """Return (s, n) numbers in [0, 1), batch after batch."""
        rows = [[uniform(seed, name, size, first + at) for at, size in enumerate(sizes)] for seed in self.seeds]
        return np.stack([np.concatenate(row) for row in rows])

    def _own_chances(self, epoch: int) -> Tensor:
        """Return (s, n · per_pair) numbers in [0, 1) for negatives, drawn on the device, some batches at a time."""
        sampler = self.sampler
        first, wide = epoch * sampler.batches_per_epoch, sampler.batch_size * sampler.per_pair
        last, some = first + sampler.batches_per_epoch, max(1, HOST_DRAWS // wide)
        shape = (len(self.seeds), sampler.batches_per_epoch * wide)
        chances = torch.empty(shape, dtype=torch.float64, device=self.device)
        for lane, seed in zip(chances, self.seeds, strict=True):
            for at in range(first, last, some):
                part = device_uniform(seed, "negatives", wide, range(at, min(at + some, last)), self.device)
                lane[(at - first) * wide :][: part.numel()] = part.flatten()
        return chances[:, : sampler.pairs_per_epoch * sampler.per_pair]

    def _on_device(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


class LaidOutEpochs:
    """``Sampler.batch`` on a CPU, as slices of an epoch that is computed in a few large operations.

    Not for batches by user or with shared negatives, nor for epochs that need much memory: see ``suit``.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.size, self.batches = sampler.batch_size, DeviceBatches([sampler], torch.device("cpu"))
        self.epoch = -1
        self._parts: tuple[Tensor, Tensor, Tensor]

    @staticmethod
    def suit(sampler: Sampler) -> bool:
        """Return whether a sampler's epochs can be computed at once in little memory."""
        plain = sampler.sampling == "interaction" and sampler.shared is None
        return plain and sampler.n_pairs * (2 + sampler.per_pair) <= LAID_OUT

    def batch(self, epoch: int, number: int) -> Batch:
        """Return batch ``number`` (from 0) of an epoch (from 1)."""
        if epoch != self.epoch:
            users, positives, negatives = self.batches.lay_out(self.batches.draw(epoch))
            self._parts, self.epoch = (users[0], positives[0], negatives[0]), epoch
        pairs = slice(number * self.size, (number + 1) * self.size)
        return Batch(*(part[pairs] for part in self._parts))
