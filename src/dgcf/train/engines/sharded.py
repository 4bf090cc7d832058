"""The engines of a training that several processes share."""

from __future__ import annotations

import torch
from torch import Tensor

from dgcf.train.engines.base import Training
from dgcf.train.engines.eager import EagerEngine
from dgcf.train.losses import l2_term
from dgcf.train.shards.base import LAYER0
from dgcf.train.shards.columns import Columns
from dgcf.train.shards.rows import Rows


class ColumnEngine(EagerEngine):
    """Takes the steps of a training divided by columns; ``engine`` computes the rows of its own columns."""

    def __init__(self, engine: EagerEngine, columns: Columns) -> None:
        super().__init__(engine.training)
        self.engine, self.columns = engine, columns

    def rows(self, nodes: Tensor, step: int) -> tuple[Tensor, Tensor]:
        own, squares = self.engine.rows(nodes, step)
        world = self.columns.world
        return world.columns(own, self.columns.widths), world.sum(squares)

    def add_up_gradients(self) -> None:
        """Add up the gradients of the gates: each process has that of its own columns."""
        for name, parameter in self.training.model.named_parameters():
            if name != LAYER0 and parameter.grad is not None:
                self.columns.world.add_up(parameter.grad)

    def prefetch(self, step: int, n_rows: int) -> None:
        self.engine.prefetch(step, n_rows)


class RowEngine(EagerEngine):
    """Takes the steps of a training divided by rows."""

    def __init__(self, training: Training, rows: Rows) -> None:
        super().__init__(training)
        self.shard = rows
        rows.matrix.release(draws=training.config.edge_dropout > 0)

    def rows(self, nodes: Tensor, step: int) -> tuple[Tensor, Tensor]:
        shard, model = self.shard, self.training.model
        final = shard.forward(model, self.draws(step))
        _, local = shard.held(nodes)
        times = torch.bincount(local, minlength=len(model.layer0))
        rows = times.nonzero().squeeze(1)
        squares = l2_term(model.ego(rows), times[rows], 1)
        return shard.batch_rows(final, nodes), shard.world.sum(squares)
