"""Seed lanes: one step of several trainings on a CUDA device, in operations that can be recorded.

A training is a *lane*. Lanes share a graph and differ in their seeds alone; each has the bits that it would have alone.
A model that is a ``PropagationStack`` is computed by fused kernels for all lanes at once. Lanes of any other model run
on parallel streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dgcf.graph import EdgeDrop
from dgcf.models.base import DropSchedule, GraphModel
from dgcf.train.config import TrainConfig
from dgcf.train.engines.base import Training
from dgcf.train.losses import l2_term
from dgcf.train.sampler import Sampler

if TYPE_CHECKING:
    from dgcf.graph.kernels.cuda.stack import BatchNodes


TABLE = 1 << 31
"""The most bytes of a table of all users and items; beyond that, pairs are found by binary search."""
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Adam's averages of the gradient and of its square."""


class Lanes(Protocol):
    """The state of several trainings on the device, and their common step."""

    def state(self) -> list[Tensor]:
        """Return all tensors that a step writes, except gradients."""

    def step(self, size: int, batch: BatchNodes, words: Tensor) -> None:
        """Take one Adam step of each lane on ``size`` pairs.

        ``words`` (lanes, 2, layers, 2): the key words of edge dropout and of message dropout.
        """


class FusedLoss(torch.autograd.Function):
    """``Objective.fused`` for the rows (R, dim) of one lane, without L2: the kernel computes value and gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, size: int, fused: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
        norms = torch.zeros(1, len(rows), device=rows.device)
        losses, grad = fused(rows.contiguous()[None], norms, size, 0.0)
        ctx.save_for_backward(grad[0])
        return losses.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sent: Tensor) -> tuple[Tensor, None, None]:
        return sent * ctx.saved_tensors[0], None, None


class BatchLoss:
    """The loss of a batch's final rows, for one lane or, if the objective has a fused form, for all."""

    def __init__(self, config: TrainConfig, sampler: Sampler, device: torch.device) -> None:
        self.config, self.sampler, pairs = config, sampler, sampler.pairs
        self.n_users, self.n_items = pairs.n_users, pairs.n_items
        fused = config.objective.fused
        self.fused = None if fused is None else partial(fused, **config.loss_settings)
        if sampler.shared is not None:
            keys = pairs.user_idx * pairs.n_items + pairs.indices
            self.keys = torch.from_numpy(keys.astype(np.int64)).to(device)
            self.table: Tensor | None = None
            if self.n_users * self.n_items <= TABLE:
                self.table = torch.zeros(self.n_users, self.n_items, dtype=torch.bool, device=device)
                self.table.view(-1)[self.keys] = True

    def value(self, rows: Tensor, nodes: Tensor, size: int) -> Tensor:
        """Return the loss, a scalar; ``rows`` (R, dim) of ``nodes`` (R,): the users, the positives, the negatives."""
        if self.fused is not None:
            value: Tensor = FusedLoss.apply(rows, size, self.fused)  # type: ignore[no-untyped-call]
            return value
        users, positives, negatives = rows[:size], rows[size : 2 * size], rows[2 * size :]
        if not self.config.objective.shared:
            own = negatives.view(size, self.sampler.per_pair, rows.shape[1])
            return self.config.score(users, positives, own)
        hits = self._hits(nodes[:size, None], nodes[2 * size :] - self.n_users)
        return self.config.score(users, positives, negatives, hits)

    def _hits(self, users: Tensor, items: Tensor) -> Tensor:
        """Return where ``users`` (B, 1) and ``items`` (K,) are a training pair, (B, K) bool."""
        if self.table is not None:
            return self.table[users, items]
        pair = users * self.n_items + items
        position = torch.searchsorted(self.keys, pair).clamp_max(len(self.keys) - 1)
        return self.keys[position] == pair


class StackLanes:
    """Lanes of a ``PropagationStack``: their parameters are stacked in one tensor, and each kernel computes all lanes.

    The parameters, Adam states and running losses of the trainings become views of the stacked tensors.
    """

    def __init__(self, lanes: Sequence[Training]) -> None:
        from dgcf.graph.kernels.cuda.stack import GpuStack

        first, stack = lanes[0], lanes[0].model.stack()
        assert stack is not None
        self.lanes, self.config, self.device = lanes, first.config, first.model.layer0.device
        self.loss = BatchLoss(first.config, first.sampler, self.device)
        matrix = None if first.propagation is None else first.propagation.gpu_matrix
        storage = torch.bfloat16 if self.config.storage == "bfloat16" else torch.float32
        self.stack = GpuStack(matrix, stack.layers, stack.mean, storage)
        by_parameter = list(zip(*(_parameters(lane.model) for lane in lanes), strict=True))
        self.parameters = [_stacked(parts) for parts in by_parameter]
        self.layer0, self.logits = self.parameters[0], self.parameters[1] if len(self.parameters) == 2 else None
        self.optimizer = self._joined_adam(by_parameter)
        self.total = torch.stack([lane.running_loss for lane in lanes])
        for lane, part in zip(lanes, self.total, strict=True):
            lane.running_loss = part

    def _joined_adam(self, by_parameter: Sequence[Sequence[nn.Parameter]]) -> torch.optim.Optimizer:
        """Return one optimizer for all lanes with the state of theirs; all have taken the same number of steps."""
        joined = torch.optim.Adam(self.parameters, lr=self.config.learning_rate, fused=True, capturable=True)
        for parameter, own in zip(self.parameters, by_parameter, strict=True):
            states = [lane.optimizer.state[part] for lane, part in zip(self.lanes, own, strict=True)]
            state = {"step": states[0].get("step", torch.zeros(())).clone().to(self.device)}
            for kind in MOMENTS:
                parts = [kept.get(kind, torch.zeros_like(part)) for kept, part in zip(states, parameter, strict=True)]
                state[kind] = torch.stack([part.detach() for part in parts])
            joined.state[parameter] = state
            for number, (lane, part) in enumerate(zip(self.lanes, own, strict=True)):
                lane.optimizer.state[part] = {**state, **{kind: state[kind][number] for kind in MOMENTS}}
        return joined

    def state(self) -> list[Tensor]:
        state = [value for kept in self.optimizer.state.values() for value in kept.values()]
        return [*(parameter.data for parameter in self.parameters), *state, self.total]

    @torch.no_grad()
    def step(self, size: int, batch: BatchNodes, words: Tensor) -> None:
        p, drops = self.config.edge_dropout, None
        if p:
            drops = [EdgeDrop(p, 0, 0, words=layer) for layer in words[:, 0].unbind(1)]
        alpha = None if self.logits is None else torch.sigmoid(self.logits)
        final, norms, passed = self.stack.forward(self.layer0, alpha, batch, drops)
        losses, grad = self._losses(final, norms, batch.nodes, size)
        self.layer0.grad, to_alpha = self.stack.backward(passed, grad, self.config.l2 / size)
        if self.logits is not None and alpha is not None and to_alpha is not None:
            self.logits.grad = to_alpha * alpha * (1 - alpha)
        self.optimizer.step()
        self.total += losses

    def _losses(self, final: Tensor, norms: Tensor, nodes: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return the lanes' losses times ``size``, L2 included, and the gradient of the final rows."""
        if self.loss.fused is not None:
            losses, grad = self.loss.fused(final, norms, size, self.config.l2)
            return losses.sum(dim=1), grad
        with torch.enable_grad():
            leaf = final.requires_grad_()
            values = torch.stack([self.loss.value(*lane, size) for lane in zip(leaf, nodes, strict=True)])
            (grad,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach() * size + 0.5 * self.config.l2 * norms.sum(dim=1), grad


class ModelLanes:
    """Lanes of any other model: each has its own parameters, optimizer and stream."""

    def __init__(self, lanes: Sequence[Training]) -> None:
        self.lanes, first = lanes, lanes[0]
        self.config, self.device = first.config, first.model.layer0.device
        self.loss = BatchLoss(first.config, first.sampler, self.device)
        self.streams = [torch.cuda.Stream() for _ in lanes]  # type: ignore[no-untyped-call]
        for lane in lanes:
            for parameter in lane.model.parameters():
                if not lane.optimizer.state[parameter]:
                    moments = {kind: torch.zeros_like(parameter) for kind in MOMENTS}
                    lane.optimizer.state[parameter] = {"step": torch.zeros((), device=self.device), **moments}

    def state(self) -> list[Tensor]:
        tensors = []
        for lane in self.lanes:
            for parameter in lane.model.parameters():
                tensors += [parameter.data, *lane.optimizer.state[parameter].values()]
            tensors.append(lane.running_loss)
        return tensors

    def step(self, size: int, batch: BatchNodes, words: Tensor) -> None:
        current = torch.cuda.current_stream()
        for number, (lane, stream) in enumerate(zip(self.lanes, self.streams, strict=True)):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                self._step(lane, size, type(batch)(*(part[number : number + 1] for part in batch)), words[number])
        for stream in self.streams:
            current.wait_stream(stream)

    @torch.enable_grad()
    def _step(self, lane: Training, size: int, batch: BatchNodes, words: Tensor) -> None:
        """Take the eager engine's step with all rows of the last layer: a recorded step has fixed shapes."""
        from dgcf.graph.kernels.cuda.stack import NodeRows

        config, model = self.config, lane.model
        drop = DropSchedule(config.edge_dropout, 0, 0, edge_words=words[0], message_words=words[1])
        lane.optimizer.zero_grad(set_to_none=True)
        rows: Tensor = NodeRows.apply(model(lane.propagation, drop=drop), batch)  # type: ignore[no-untyped-call]
        value = self.loss.value(rows, batch.nodes[0], size)
        if config.l2:
            ones = torch.ones_like(batch.nodes[0], dtype=torch.float32)
            times = torch.zeros(model.n_nodes, device=self.device).scatter_add_(0, batch.nodes[0], ones)
            value = value + config.l2 * l2_term(model.ego(), times, size)
        value.backward()  # type: ignore[no-untyped-call]
        lane.optimizer.step()
        lane.running_loss += value.detach() * size


def _stacked(parameters: Sequence[nn.Parameter]) -> nn.Parameter:
    joined = torch.stack([parameter.detach() for parameter in parameters])
    for parameter, part in zip(parameters, joined, strict=True):
        parameter.data = part
    return nn.Parameter(joined)


def _parameters(model: GraphModel) -> list[nn.Parameter]:
    """Return layer 0 and the gate logits, if there are any, of a propagation stack."""
    stack = model.stack()
    assert stack is not None
    return [model.layer0] if stack.gate_logits is None else [model.layer0, stack.gate_logits]
