"""The CPU engine: a propagation stack by strips of columns, with edge dropout drawn ahead by idle threads."""

from __future__ import annotations

import torch
from torch import Tensor

from dgcf.graph import EdgeDrop
from dgcf.graph.kernels.cpu.stack import Drawing, StripStack
from dgcf.train.engines.base import Training
from dgcf.train.engines.eager import EagerEngine


class CpuEngine(EagerEngine):
    """Takes the steps of one training of a ``PropagationStack`` over a stored matrix.

    While one step ends, idle threads draw the dropped edges of the next.
    """

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        stack, propagation = training.model.stack(), training.propagation
        assert stack is not None
        assert propagation is not None
        self.stack, self.matrix = stack, propagation.stored
        self._drawing: Drawing | None = None

    def rows(self, nodes: Tensor, step: int) -> tuple[Tensor, Tensor]:
        logits = self.stack.gate_logits
        alpha = None if logits is None else torch.sigmoid(logits)
        result: tuple[Tensor, Tensor] = StripStack.apply(  # type: ignore[no-untyped-call]
            self.training.model.layer0, alpha, self.matrix, self._drops(step), nodes, self.stack.mean, self._drawing
        )
        return result

    def prefetch(self, step: int, n_rows: int) -> None:
        cut = self.matrix.worth_cutting(n_rows)
        self._drawing = Drawing(self.matrix, self._drops(step), cut=cut, adjoint=False)

    def _drops(self, step: int) -> tuple[EdgeDrop | None, ...]:
        draws = self.draws(step)
        return tuple(draws.at(layer) for layer in range(self.stack.layers))
