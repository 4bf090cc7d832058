"""One step of several trainings on a CUDA device, in operations that can be recorded: nothing waits for the host.

A training is a *lane*. Lanes over one graph differ in their seeds alone, and each one's arithmetic is the same to the
bit as if it were alone. Models that are a stack of layers take their step as one, by the fused kernels; any other
takes its own, on a stream of its own beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dgcf.models.base import DropSchedule, GraphModel, PropagationStack
from dgcf.train.config import TrainConfig
from dgcf.train.engines.base import Training
from dgcf.train.losses import l2_term
from dgcf.train.sampler import Sampler

if TYPE_CHECKING:
    from dgcf.graph.kernels.cuda.stack import BatchNodes


TABLE = 1 << 31
"""Bytes of the table that says at once whether a user has an item; beyond them it is searched among the pairs."""


PAIRWISE = {"bpr": False, "bpr-hardest": True}
"""The losses that one kernel computes, and whether the hardest negative alone counts."""


class Lanes(Protocol):
    """The state of some lanes on the device, and how they take a step."""

    def changing(self) -> list[Tensor]:
        """All that a step writes, apart from gradients."""

    def step(self, size: int, batch: BatchNodes, words: Tensor) -> None:
        """One Adam step of every lane on ``size`` pairs; ``words`` (lanes, 2, layers, 2): of edges, of messages."""


class Scorer:
    """The loss of a batch's final rows, by the objective's own definition."""

    def __init__(self, config: TrainConfig, sampler: Sampler, device: torch.device) -> None:
        self.config, self.sampler, pairs = config, sampler, sampler.pairs
        self.n_users, self.n_items = pairs.n_users, pairs.n_items
        if sampler.shared is not None:
            known = pairs.user_idx * pairs.n_items + pairs.indices
            self.known = torch.from_numpy(known.astype(np.int64)).to(device)
            self.table: Tensor | None = None
            if self.n_users * self.n_items <= TABLE:
                self.table = torch.zeros(self.n_users, self.n_items, dtype=torch.bool, device=device)
                self.table.view(-1)[self.known] = True

    def value(self, rows: Tensor, nodes: Tensor, size: int) -> Tensor:
        """A scalar; ``rows`` (R, dim) are those of ``nodes`` (R,): the users, the positives, the negatives."""
        if self.config.loss in PAIRWISE:
            from dgcf.graph.kernels.cuda.stack import PairwiseLoss

            value: Tensor = PairwiseLoss.apply(rows, size, PAIRWISE[self.config.loss])  # type: ignore[no-untyped-call]
            return value
        users, positives, negatives = rows[:size], rows[size : 2 * size], rows[2 * size :]
        if not self.config.objective.shared:
            own = negatives.view(size, self.sampler.per_pair, rows.shape[1])
            return self.config.score(users, positives, own)
        hits = self._hits(nodes[:size, None], nodes[2 * size :] - self.n_users)
        return self.config.score(users, positives, negatives, hits)

    def _hits(self, users: Tensor, items: Tensor) -> Tensor:
        """Where ``users`` (B, 1) and ``items`` (K,) are a training pair."""
        if self.table is not None:
            return self.table[users, items]
        pair = users * self.n_items + items
        place = torch.searchsorted(self.known, pair).clamp_max(len(self.known) - 1)
        return self.known[place] == pair


class StackLanes:
    """Models that are stacks of layers: their parameters lie one upon the other, and one kernel serves all lanes.

    From here on the lanes' parameters, Adam's state and running losses are views of what is stacked here.
    """

    def __init__(self, lanes: Sequence[Training]) -> None:
        from dgcf.graph.kernels.cuda.stack import GpuStack

        first, stack = lanes[0], _stack_of(lanes[0].model)
        self.lanes, self.config, self.device = lanes, first.config, first.model.layer0.device
        self.scorer = Scorer(first.config, first.sampler, self.device)
        matrix = None if first.propagation is None else first.propagation.gpu_matrix
        storage = torch.bfloat16 if self.config.storage == "bfloat16" else torch.float32
        self.stack = GpuStack(matrix, stack.layers, stack.mean, storage)
        self.layer0 = _stacked([lane.model.layer0 for lane in lanes])
        gates = [_stack_of(lane.model).gate_logits for lane in lanes]
        self.logits = _stacked([one for one in gates if one is not None]) if gates[0] is not None else None
        self.optimizer = self._joined_adam()
        self.total = torch.stack([lane.running_loss for lane in lanes])
        for lane, part in zip(lanes, self.total, strict=True):
            lane.running_loss = part

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

    def changing(self) -> list[Tensor]:
        state = [value for kept in self.optimizer.state.values() for value in kept.values()]
        return [*(parameter.data for parameter in self._parameters()), *state, self.total]

    @torch.no_grad()
    def step(self, size: int, batch: BatchNodes, words: Tensor) -> None:
        from dgcf.graph.kernels.cuda.sparse import Draw

        draws = None
        if self.config.edge_dropout:
            draws = [Draw(layer, int(self.config.edge_dropout * 2.0**32)) for layer in words[:, 0].unbind(1)]
        alpha = None if self.logits is None else torch.sigmoid(self.logits)
        final, norms, passed = self.stack.forward(self.layer0, alpha, batch, draws)
        losses, grad = self._losses(final, norms, batch.nodes, size)
        self.layer0.grad, to_alpha = self.stack.backward(passed, grad, self.config.l2 / size)
        if self.logits is not None and alpha is not None and to_alpha is not None:
            self.logits.grad = to_alpha * alpha * (1 - alpha)
        self.optimizer.step()
        self.total += losses

    def _losses(self, final: Tensor, norms: Tensor, nodes: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The lanes' losses times the pairs of the batch, L2 included, and the gradient of the final rows."""
        if self.config.loss in PAIRWISE:
            from dgcf.graph.kernels.cuda.sparse import bpr_step

            losses, grad = bpr_step(final, norms, size, self.config.l2, hardest=PAIRWISE[self.config.loss])
            return losses.sum(dim=1), grad
        with torch.enable_grad():
            leaf = final.requires_grad_()
            values = torch.stack([self.scorer.value(*lane, size) for lane in zip(leaf, nodes, strict=True)])
            (grad,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach() * size + 0.5 * self.config.l2 * norms.sum(dim=1), grad


class ModelLanes:
    """Any other model: each lane has its own parameters and optimizer, and a stream beside the others."""

    def __init__(self, lanes: Sequence[Training]) -> None:
        self.lanes, first = lanes, lanes[0]
        self.config, self.device = first.config, first.model.layer0.device
        self.scorer = Scorer(first.config, first.sampler, self.device)
        self.streams = [torch.cuda.Stream() for _ in lanes]  # type: ignore[no-untyped-call]
        for lane in lanes:
            for parameter in lane.model.parameters():
                if not lane.optimizer.state[parameter]:
                    lane.optimizer.state[parameter] = {
                        "step": torch.zeros((), device=self.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }

    def changing(self) -> list[Tensor]:
        found = []
        for lane in self.lanes:
            for parameter in lane.model.parameters():
                found += [parameter.data, *lane.optimizer.state[parameter].values()]
            found.append(lane.running_loss)
        return found

    def step(self, size: int, batch: BatchNodes, words: Tensor) -> None:
        here = torch.cuda.current_stream()
        for number, (lane, stream) in enumerate(zip(self.lanes, self.streams, strict=True)):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                self._step(lane, size, type(batch)(*(part[number : number + 1] for part in batch)), words[number])
        for stream in self.streams:
            here.wait_stream(stream)

    @torch.enable_grad()
    def _step(self, lane: Training, size: int, batch: BatchNodes, words: Tensor) -> None:
        """The trainer's own step with all rows of the last layer: how many a batch has is not known beforehand."""
        from dgcf.graph.kernels.cuda.stack import NodeRows

        config, model = self.config, lane.model
        drop = DropSchedule(config.edge_dropout, 0, 0, edge_words=words[0], message_words=words[1])
        lane.optimizer.zero_grad(set_to_none=True)
        rows: Tensor = NodeRows.apply(model(lane.propagation, drop=drop), batch)  # type: ignore[no-untyped-call]
        value = self.scorer.value(rows, batch.nodes[0], size)
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


def _stack_of(model: GraphModel) -> PropagationStack:
    stack = model.stack()
    assert stack is not None
    return stack


def _gates_of(model: GraphModel) -> list[nn.Parameter]:
    logits = _stack_of(model).gate_logits
    return [] if logits is None else [logits]
