"""Training steps on a CUDA device: one recorded graph per batch size, replayed without a word from the host.

Several trainings over one graph take their steps together, each in a *lane* of its own: their parameters are stacked,
and each lane's arithmetic is the same to the bit as if it were alone. Everything that changes from step to step (the
batches, the words of drop-edge) lies in device buffers that are filled once an epoch; a counter on the device says
which is next. The draws are those of the CPU path, so both train on the same batches with the same edges left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dgcf.graph import EdgeDrop, Propagation, draw_keys
from dgcf.models.base import GraphModel, Stack
from dgcf.train.config import TrainConfig
from dgcf.train.device_batches import DeviceBatches, Drawn
from dgcf.train.sampler import Sampler

WARM_UP = 2
"""Runs before a step is recorded: kernels are compiled and buffers found in them."""


class Lane(Protocol):
    """What is needed of a training: a trainer is one."""

    model: GraphModel
    propagation: Propagation | None
    config: TrainConfig
    sampler: Sampler
    optimizer: torch.optim.Adam
    drop_seed: int
    running_loss: Tensor


class HostDraws(NamedTuple):
    """What the host draws for an epoch: the batches, and each lane's words of drop-edge, (batches, layers, 2)."""

    batches: Drawn
    words: list[NDArray[np.int32]]


class CapturedSteps:
    """The steps of some lanes, which are alike but for their seeds; ``begin`` an epoch, ``run`` its batches by number.

    From here on the lanes' parameters, Adam's state and running losses are views of what is stacked here.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        from dgcf.graph.gpustack import GpuStack

        first = lanes[0]
        self.lanes, self.config, self.sampler = lanes, first.config, first.sampler
        self.device, self.n_users = first.model.layer0.device, first.model.n_users
        stack = _stack_of(first.model)
        storage = torch.bfloat16 if self.config.storage == "bfloat16" else torch.float32
        matrix = None if first.propagation is None else first.propagation.gpu_matrix
        self.stack = GpuStack(matrix, stack.layers, stack.mean, storage)
        self.layer0 = self._stacked([lane.model.layer0 for lane in lanes])
        gates = [_stack_of(lane.model).logits for lane in lanes]
        self.logits = self._stacked([one for one in gates if one is not None]) if gates[0] is not None else None
        self.optimizer = self._joined_adam()
        self.total = torch.stack([lane.running_loss for lane in lanes])
        for lane, part in zip(lanes, self.total, strict=True):
            lane.running_loss = part
        self.batches = DeviceBatches([lane.sampler for lane in lanes], self.device)
        number, size = self.sampler.batches_per_epoch, self.config.batch_size
        self.nodes = torch.zeros(len(lanes), number, 3, self._width(size), dtype=torch.int64, device=self.device)
        self.words = torch.zeros(len(lanes), number, stack.layers, 2, dtype=torch.int32, device=self.device)
        self.number = torch.zeros(1, dtype=torch.int64, device=self.device)  # the next batch
        if self.sampler.shared is not None:
            pairs = self.sampler.pairs
            known = pairs.user_idx * pairs.n_items + pairs.indices
            self.known = torch.from_numpy(known.astype(np.int64)).to(self.device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.epoch = -1
        self._ahead = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dgcf-draws")
        self._next: tuple[int, Future[HostDraws]] | None = None

    @staticmethod
    def suit(model: GraphModel, propagation: Propagation | None, device: torch.device) -> bool:
        """Whether a model's steps can be captured: else ordinary ones run on the device."""
        if device.type != "cuda" or find_spec("triton") is None or model.stack() is None:
            return False
        return propagation is None or propagation.gpu_matrix is not None

    # -- what is stacked --------------------------------------------------------------------------------------------

    def _stacked(self, parameters: Sequence[nn.Parameter]) -> nn.Parameter:
        joined = torch.stack([parameter.detach() for parameter in parameters])
        for parameter, part in zip(parameters, joined, strict=True):
            parameter.data = part
        return nn.Parameter(joined)

    def _parameters(self) -> list[nn.Parameter]:
        return [self.layer0] if self.logits is None else [self.layer0, self.logits]

    def _joined_adam(self) -> torch.optim.Optimizer:
        """One optimizer for all lanes, in the state that theirs are in; they have stepped equally often."""
        settings = {"lr": self.config.learning_rate, "fused": True, "capturable": True}
        joined = torch.optim.Adam(self._parameters(), **settings)  # type: ignore[arg-type]
        own = [[lane.model.layer0, *_gates_of(lane.model)] for lane in self.lanes]
        for number, parameter in enumerate(self._parameters()):
            states = [lane.optimizer.state[mine[number]] for lane, mine in zip(self.lanes, own, strict=True)]
            before = states[0].get("step")
            state: dict[str, Any] = {
                "step": torch.zeros((), device=self.device) if before is None else before.clone().to(self.device)
            }
            for kind in ("exp_avg", "exp_avg_sq"):
                parts = [kept.get(kind, torch.zeros_like(part)) for kept, part in zip(states, parameter, strict=True)]
                state[kind] = torch.stack([part.detach() for part in parts])
            joined.state[parameter] = state
            for place, (lane, mine) in enumerate(zip(self.lanes, own, strict=True)):
                views = {kind: state[kind][place] for kind in ("exp_avg", "exp_avg_sq")}
                lane.optimizer.state[mine[number]] = {"step": state["step"], **views}
        return joined

    # -- an epoch ---------------------------------------------------------------------------------------------------

    def begin(self, epoch: int, batch: int) -> None:
        """Lay out the batches of an epoch, and go to one of them."""
        if epoch != self.epoch:
            ready = self._next[1] if self._next is not None and self._next[0] == epoch else None
            drawn = self._draw(epoch) if ready is None else ready.result()
            self._lay_out(*self.batches.lay_out(drawn.batches))
            if drawn.words:
                self.words.copy_(torch.from_numpy(np.stack(drawn.words)))
            self.epoch = epoch
            if epoch < self.config.epochs:  # while the device works on this epoch, the host draws the next one
                self._next = epoch + 1, self._ahead.submit(self._draw, epoch + 1)
        self.number.fill_(batch)

    def _draw(self, epoch: int) -> HostDraws:
        words = [self._drop_words(lane, epoch) for lane in self.lanes] if self.config.edge_dropout else []
        return HostDraws(self.batches.draw(epoch), words)

    def _drop_words(self, lane: Lane, epoch: int) -> NDArray[np.int32]:
        """The words of ``EdgeDrop`` for every batch and layer of an epoch."""
        first, (_, number, layers, _) = epoch * self.sampler.batches_per_epoch, self.words.shape
        anew = self.config.dropout_draws == "layer"
        drawn = [
            draw_keys(lane.drop_seed, EdgeDrop.stream, first + batch, layer if anew else 0)
            for batch in range(number)
            for layer in range(layers)
        ]
        return np.array(drawn, dtype=np.uint32).view(np.int32).reshape(number, layers, 2)

    def _lay_out(self, users: Tensor, positives: Tensor, negatives: Tensor) -> None:
        """The nodes of each batch: users, positives, negatives; the same ascending; and where each then stood."""
        lanes, number, _, width = self.nodes.shape
        size, n_nodes, shared = self.config.batch_size, self.layer0.shape[1], self.sampler.shared is not None
        nodes = self.nodes[:, :, 0]
        nodes.fill_(n_nodes)  # beyond the last batch's end there is a node that does not exist, sorted to the end
        whole = number - 1
        for batches, count in ((slice(0, whole), size), (slice(whole, number), users.shape[1] - whole * size)):
            n = batches.stop - batches.start
            pairs = slice(batches.start * size, batches.start * size + n * count)
            drawn = negatives[:, batches] if shared else negatives[:, pairs]
            parts = (users[:, pairs], positives[:, pairs] + self.n_users, drawn + self.n_users)
            rows = [part.reshape(lanes, n, part.numel() // max(lanes * n, 1)) for part in parts]
            nodes[:, batches, : self._width(count)] = torch.cat(rows, dim=2)
        batch = torch.arange(lanes * number, device=self.device).view(lanes, number, 1)
        ranked, order = (batch * (n_nodes + 1) + nodes).flatten().sort(stable=True)
        self.nodes[:, :, 1] = ranked.view(nodes.shape) - batch * (n_nodes + 1)
        self.nodes[:, :, 2] = order.view(nodes.shape) - batch * width

    def _width(self, size: int) -> int:
        """Nodes of a batch of ``size`` pairs."""
        if self.sampler.shared is not None:
            return 2 * size + self.sampler.shared
        return (2 + self.sampler.per_pair) * size

    def run(self, batch: int) -> None:
        """Take the next step, which must be that of ``batch``."""
        size = self.sampler.batch_sizes[batch]
        if size not in self.graphs:
            self.graphs[size] = self._record(size)
        self.graphs[size].replay()

    # -- one step ---------------------------------------------------------------------------------------------------

    def _record(self, size: int) -> torch.cuda.CUDAGraph:
        """Record one step. The runs that warm it up are undone: they must leave no trace in the training."""
        kept = self._changing()
        before = [tensor.clone() for tensor in kept]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._step(size)
                self.number -= 1  # the same batch again: after the last one there is no next
        torch.cuda.current_stream().wait_stream(side)
        for tensor, value in zip(kept, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(size)
        return graph

    def _changing(self) -> list[Tensor]:
        """All that a step writes, apart from gradients."""
        state = [value for kept in self.optimizer.state.values() for value in kept.values()]
        return [*(parameter.data for parameter in self._parameters()), *state, self.total, self.number]

    @torch.no_grad()
    def _step(self, size: int) -> None:
        """One Adam step of every lane on its next ``size`` pairs; the same arithmetic as the trainer's own step."""
        from dgcf.graph.gpu import Draw
        from dgcf.graph.gpustack import BatchNodes

        chosen = self.nodes.index_select(1, self.number).squeeze(1)[..., : self._width(size)]
        batch = BatchNodes(*chosen.unbind(1))
        draws = None
        if self.config.edge_dropout:
            words = self.words.index_select(1, self.number).squeeze(1)
            draws = [Draw(layer, int(self.config.edge_dropout * 2.0**32)) for layer in words.unbind(1)]
        alpha = None if self.logits is None else torch.sigmoid(self.logits)
        final, norms, passed = self.stack.forward(self.layer0, alpha, batch, draws)
        losses, grad = self._losses(final, norms, batch.nodes, size)
        self.layer0.grad, to_alpha = self.stack.backward(passed, grad, self.config.l2 / size)
        if self.logits is not None and alpha is not None and to_alpha is not None:
            self.logits.grad = to_alpha * alpha * (1 - alpha)
        self.optimizer.step()
        self.total += losses
        self.number += 1

    def _losses(self, final: Tensor, norms: Tensor, nodes: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The lanes' losses times the pairs of the batch, L2 included, and the gradient of the final rows."""
        if self.config.loss == "bpr":
            from dgcf.graph.gpu import bpr_step

            losses, grad = bpr_step(final, norms, size, self.config.l2)
            return losses.sum(dim=1), grad
        with torch.enable_grad():
            leaf = final.requires_grad_()
            values = torch.stack([self._value(leaf[lane], nodes[lane], size) for lane in range(len(leaf))])
            (grad,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach() * size + 0.5 * self.config.l2 * norms.sum(dim=1), grad

    def _value(self, rows: Tensor, nodes: Tensor, size: int) -> Tensor:
        """The loss of one lane, by the objective's own definition."""
        users, positives, negatives = rows[:size], rows[size : 2 * size], rows[2 * size :]
        if not self.config.objective.shared:
            own = negatives.view(size, self.sampler.per_pair, rows.shape[1])
            return self.config.score(users, positives, own)
        pair = nodes[:size, None] * self.sampler.pairs.n_items + (nodes[2 * size :] - self.n_users)
        place = torch.searchsorted(self.known, pair).clamp_max(len(self.known) - 1)
        return self.config.score(users, positives, negatives, hits=self.known[place] == pair)


def _stack_of(model: GraphModel) -> Stack:
    stack = model.stack()
    assert stack is not None
    return stack


def _gates_of(model: GraphModel) -> list[nn.Parameter]:
    logits = _stack_of(model).logits
    return [] if logits is None else [logits]
