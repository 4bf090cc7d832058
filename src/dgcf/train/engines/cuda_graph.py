"""The CUDA graph engine: one recorded step per batch size, replayed without the host.

All that changes from step to step (batches, key words of dropout) is in device buffers that are filled once an epoch. A
counter on the device selects the next batch. The draws are those of the CPU, so both train on the same batches with the
same dropped edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgcf.graph import EdgeDrop, MessageDrop, draw_keys
from dgcf.train.engines.base import Training
from dgcf.train.engines.device_batches import DeviceBatches, EpochDraws
from dgcf.train.engines.seed_lanes import Lanes

WARM_UP = 2
"""Runs before a step is recorded, in which kernels are compiled and buffers allocated."""


class HostDraws(NamedTuple):
    """The host's draws of an epoch: the batches, and the key words of dropout, (lanes, batches, 2, layers, 2)."""

    batches: EpochDraws
    words: NDArray[np.int32] | None


class CudaGraphEngine:
    """Records the step of ``lanes``, once for each batch size, and replays it."""

    def __init__(self, trainings: Sequence[Training], lanes: Lanes) -> None:
        first = trainings[0]
        self.trainings, self.config, self.sampler = trainings, first.config, first.sampler
        self.device, self.n_users = first.model.layer0.device, first.model.n_users
        self.n_nodes = first.model.n_nodes
        self.lanes = lanes
        self.batches = DeviceBatches([training.sampler for training in trainings], self.device)
        n_lanes, number = len(trainings), self.sampler.batches_per_epoch
        width, layers = self._width(self.config.batch_size), first.model.config.layers
        self.nodes = torch.zeros(n_lanes, number, 3, width, dtype=torch.int64, device=self.device)
        self.words = torch.zeros(n_lanes, number, 2, layers, 2, dtype=torch.int32, device=self.device)
        # Edges are drawn for each layer or once a step; messages always for each layer.
        edges, messages = self.config.edge_dropout, first.model.config.message_dropout
        per_layer = self.config.dropout_draws == "layer"
        self.streams = [(EdgeDrop.stream, per_layer, edges > 0), (MessageDrop.stream, True, messages > 0)]
        self.number = torch.zeros(1, dtype=torch.int64, device=self.device)  # the next batch
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.epoch = -1
        self._ahead = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dgcf-draws")
        self._next: tuple[int, Future[HostDraws]] | None = None

    def begin_epoch(self, epoch: int, batch: int) -> None:
        """Write the batches of an epoch to the device, and select one of them."""
        if epoch != self.epoch:
            ready = self._next[1] if self._next is not None and self._next[0] == epoch else None
            draws = self._draw(epoch) if ready is None else ready.result()
            self._lay_out(*self.batches.lay_out(draws.batches))
            if draws.words is not None:
                self.words.copy_(torch.from_numpy(draws.words))
            self.epoch = epoch
            if epoch < self.config.epochs:  # while the device works on this epoch, the host draws the next one
                self._next = epoch + 1, self._ahead.submit(self._draw, epoch + 1)
        self.number.fill_(batch)

    def _draw(self, epoch: int) -> HostDraws:
        words = None
        if any(used for _, _, used in self.streams):
            words = np.stack([self._words(training.drop_seed, epoch) for training in self.trainings])
        return HostDraws(self.batches.draw(epoch), words)

    def _words(self, seed: int, epoch: int) -> NDArray[np.int32]:
        """Return the key words of one lane for every batch and layer of an epoch, (batches, 2, layers, 2)."""
        first, (_, number, _, layers, _) = epoch * self.sampler.batches_per_epoch, self.words.shape
        words = np.zeros((number, 2, layers, 2), dtype=np.uint32)
        for kind, (stream, per_layer, used) in enumerate(self.streams):
            for batch in range(number if used else 0):
                for layer in range(layers):
                    words[batch, kind, layer] = draw_keys(seed, stream, first + batch, layer if per_layer else 0)
        return words.view(np.int32)

    def _lay_out(self, users: Tensor, positives: Tensor, negatives: Tensor) -> None:
        """Write the nodes of each batch: users, positives, negatives; the same sorted; and their positions before."""
        lanes, number, _, width = self.nodes.shape
        size, n_nodes, shared = self.config.batch_size, self.n_nodes, self.sampler.shared is not None
        nodes = self.nodes[:, :, 0]
        nodes.fill_(n_nodes)  # pads the last batch with a node number that sorts to the end
        whole = number - 1
        for batches, count in ((slice(0, whole), size), (slice(whole, number), users.shape[1] - whole * size)):
            n = batches.stop - batches.start
            pairs = slice(batches.start * size, batches.start * size + n * count)
            others = negatives[:, batches] if shared else negatives[:, pairs]
            parts = (users[:, pairs], positives[:, pairs] + self.n_users, others + self.n_users)
            rows = [part.reshape(lanes, n, part.numel() // max(lanes * n, 1)) for part in parts]
            nodes[:, batches, : self._width(count)] = torch.cat(rows, dim=2)
        batch = torch.arange(lanes * number, device=self.device).view(lanes, number, 1)
        ranked, order = (batch * (n_nodes + 1) + nodes).flatten().sort(stable=True)
        self.nodes[:, :, 1] = ranked.view(nodes.shape) - batch * (n_nodes + 1)
        self.nodes[:, :, 2] = order.view(nodes.shape) - batch * width

    def _width(self, size: int) -> int:
        """Return the number of nodes, with repeats, of a batch of ``size`` pairs."""
        if self.sampler.shared is not None:
            return 2 * size + self.sampler.shared
        return (2 + self.sampler.per_pair) * size

    def step(self, batch: int) -> None:
        """Replay the next step, which must be that of ``batch``."""
        size = self.sampler.batch_sizes[batch]
        if size not in self.graphs:
            self.graphs[size] = self._record(size)
        self.graphs[size].replay()

    def _record(self, size: int) -> torch.cuda.CUDAGraph:
        """Record one step. The state is restored after the warm-up runs."""
        kept = [*self.lanes.state(), self.number]
        before = [tensor.clone() for tensor in kept]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._step(size)
                self.number -= 1  # the same batch again: the last one has no next
        torch.cuda.current_stream().wait_stream(side)
        for tensor, value in zip(kept, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(size)
        return graph

    def _step(self, size: int) -> None:
        """Take one step of each lane on its next ``size`` pairs, with the arithmetic of the eager engine."""
        from dgcf.graph.kernels.cuda.stack import BatchNodes

        chosen = self.nodes.index_select(1, self.number).squeeze(1)[..., : self._width(size)]
        words = self.words.index_select(1, self.number).squeeze(1)
        self.lanes.step(size, BatchNodes(*chosen.unbind(1)), words)
        self.number += 1
