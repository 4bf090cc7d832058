"""Training steps on a CUDA device: one recorded graph per batch size, replayed without a word from the host.

Everything that changes from step to step (the batch, the words of drop-edge) lies in device buffers that are filled
once an epoch; a counter on the device says which slice is next. The draws are those of the CPU path, so both train on
the same batches with the same edges left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dgcf.graph import EdgeDrop, Propagation
from dgcf.models.base import GraphModel, Stack
from dgcf.random import bits, uniform
from dgcf.train.config import TrainConfig
from dgcf.train.losses import bpr, l2_term
from dgcf.train.sampler import Sampler

WARM_UP = 2
"""Runs before a step is recorded: kernels are compiled and buffers found in them."""


class DeviceSampler:
    """A sampler's epochs as whole tensors on a device: the same batches as ``Sampler.batch``, end to end.

    For ``interaction`` sampling the host gives random bits and the device does the rest; batches by ``user`` are drawn
    on the host and sent together. A pair's own negatives only, not shared ones.
    """

    def __init__(self, sampler: Sampler, device: torch.device) -> None:
        self.sampler, self.device = sampler, device
        non_items = sampler.non_items
        arrays = (sampler.pair_user, sampler.pair_item, non_items.count, non_items.keys, non_items.indptr)
        self.user, self.item, self.count, self.keys, self.indptr = (
            torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays
        )

    def epoch(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """``users`` (n,), ``positives`` (n,) and ``negatives`` (n, per_pair) of an epoch, batch after batch."""
        sampler = self.sampler
        if sampler.sampling == "user":
            drawn_here = [sampler.batch(epoch, number) for number in range(sampler.batches_per_epoch)]
            columns = ("users", "positives", "negatives")
            users, positives, negatives = (torch.cat([getattr(b, name) for b in drawn_here]) for name in columns)
            return users.to(self.device), positives.to(self.device), negatives.to(self.device)
        words = bits(sampler.seed, "shuffle", sampler.n_pairs, epoch) ^ np.uint64(1 << 63)  # unsigned order, signed
        order = torch.sort(torch.from_numpy(words.view(np.int64)).to(self.device), stable=True).indices
        users, positives = self.user[order], self.item[order]
        first = epoch * sampler.batches_per_epoch
        drawn = [
            uniform(sampler.seed, "negatives", size * sampler.per_pair, first + number)
            for number, size in enumerate(sampler.batch_sizes)
        ]
        chance = torch.from_numpy(np.concatenate(drawn)).to(self.device).view(-1, sampler.per_pair)
        rank = (chance * self.count[users][:, None]).long()
        below = torch.searchsorted(self.keys, users[:, None] * (sampler.pairs.n_items + 1) + rank, right=True)
        return users, positives, rank + below - self.indptr[users][:, None]


class CapturedSteps:
    """The training steps of a ``Stack`` model with BPR; ``begin`` an epoch, then ``run`` its batches by number.

    ``total`` and ``healthy`` are the trainer's own running loss and state of health, on the device.
    """

    def __init__(
        self,
        model: GraphModel,
        propagation: Propagation,
        sampler: Sampler,
        config: TrainConfig,
        optimizer: torch.optim.Optimizer,
        *,
        drop_of: Callable[[int, int], EdgeDrop | None],
        total: Tensor,
        healthy: Tensor,
    ) -> None:
        self.model, self.config, self.sampler, self.optimizer = model, config, sampler, optimizer
        self.matrix, self.drop_of, self.total, self.healthy = propagation.gpu_matrix(), drop_of, total, healthy
        self.batches = DeviceSampler(sampler, total.device)
        n, device = sum(sampler.batch_sizes), total.device
        self.users = torch.zeros(n, dtype=torch.int64, device=device)
        self.positives = torch.zeros(n, dtype=torch.int64, device=device)
        self.negatives = torch.zeros(n, sampler.per_pair, dtype=torch.int64, device=device)
        self.words = torch.zeros(sampler.batches_per_epoch, self._stack().layers, 2, dtype=torch.int32, device=device)
        self.first = torch.zeros(1, dtype=torch.int64, device=device)  # the first pair of the next batch
        self.number = torch.zeros(1, dtype=torch.int64, device=device)  # the next batch
        self.storage = torch.bfloat16 if config.storage == "bfloat16" else torch.float32
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.epoch = -1

    @staticmethod
    def suits(model: GraphModel, propagation: Propagation | None, config: TrainConfig, device: torch.device) -> bool:
        """Whether these steps can be captured: else the ordinary ones run on the device."""
        return (
            device.type == "cuda"
            and propagation is not None
            and propagation.has_gpu_matrix
            and model.stack() is not None
            and config.loss == "bpr"
        )

    def _stack(self) -> Stack:
        stack = self.model.stack()
        assert stack is not None
        return stack

    def begin(self, epoch: int, batch: int) -> None:
        """Lay out the batches of an epoch, and go to one of them."""
        if epoch != self.epoch:
            for buffer, drawn in zip(
                (self.users, self.positives, self.negatives), self.batches.epoch(epoch), strict=True
            ):
                buffer.copy_(drawn)
            self._draw_edges(epoch)
            self.epoch = epoch
        self.first.fill_(batch * self.config.batch_size)
        self.number.fill_(batch)

    def _draw_edges(self, epoch: int) -> None:
        first, layers = epoch * self.sampler.batches_per_epoch, self.words.shape[1]
        drops = [[self.drop_of(first + n, layer) for layer in range(layers)] for n in range(len(self.words))]
        if drops[0][0] is None:
            return
        words = np.array([[drop.keys for drop in row if drop is not None] for row in drops], dtype=np.uint32)
        self.words.copy_(torch.from_numpy(words.view(np.int32)))

    def run(self, batch: int) -> int:
        """Take the next step, which must be that of ``batch``; its number of pairs."""
        size = self.sampler.batch_sizes[batch]
        if size not in self.graphs:
            self.graphs[size] = self._record(size)
        self.graphs[size].replay()
        return size

    def _record(self, size: int) -> torch.cuda.CUDAGraph:
        """Record one step. The runs that warm it up are undone: they must leave no trace in the training."""
        kept = self._changing()
        before = [tensor.clone() for tensor in kept]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._step(size)
                self.first -= size  # the same batch again: after the last one there is no next
                self.number -= 1
        torch.cuda.current_stream().wait_stream(side)
        known = {tensor.data_ptr() for tensor in kept}
        for tensor in self._changing():
            if tensor.data_ptr() not in known:
                tensor.zero_()  # Adam's state was made by the warm-up; it starts from zero
        for tensor, value in zip(kept, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(size)
        return graph

    def _changing(self) -> list[Tensor]:
        """All that a step writes, apart from gradients."""
        weights = [parameter.data for parameter in self.model.parameters()]
        state = [value for kept in self.optimizer.state.values() for value in kept.values()]
        return [*weights, *state, self.total, self.healthy, self.first, self.number]

    @torch.enable_grad()
    def _step(self, size: int) -> None:
        """One Adam step on the next ``size`` pairs; the same arithmetic as the trainer's own step."""
        here = self.first + torch.arange(size, device=self.first.device)
        users, positives, negatives = (part[here] for part in (self.users, self.positives, self.negatives))
        items = torch.cat([positives, negatives.flatten()]) + self.model.n_users
        words = self.words[self.number].squeeze(0) if self.config.edge_dropout else None
        self.optimizer.zero_grad(set_to_none=True)
        final, ego = self._stack().rows(
            self.model.layer0, self.matrix, torch.cat([users, items]), words, self.config.edge_dropout, self.storage
        )
        value = bpr(final[:size], final[size : 2 * size], final[2 * size :].view(size, -1, final.shape[1]))
        if self.config.l2:
            value = value + self.config.l2 * l2_term(ego, torch.ones_like(ego[:, 0]), size)
        value.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.total += value.detach() * size
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            self.healthy &= torch.isfinite(parameter.grad.sum())
        self.first += size
        self.number += 1
