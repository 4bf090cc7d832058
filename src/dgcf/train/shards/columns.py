"""The state of a training divided by columns: each process holds the graph and some columns of the embeddings.

Propagation treats columns alike and independently, so it needs no exchange. A step gathers the final rows of its
batch, computes the whole loss in every process, and propagates the gradient of its own columns. The gates of the nodes
are held by every process, and their gradients are added up.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from dgcf.errors import ConfigError
from dgcf.graph import Propagation
from dgcf.models.base import GraphModel
from dgcf.ranking.rankings import Embeddings
from dgcf.train.shards.base import LAYER0, belongs_to, stack_of
from dgcf.train.shards.world import Group


class Columns:
    """Columns of ``layer0``, (N, dim), in as many parts as ``world`` has processes."""

    def __init__(self, world: Group, dim: int) -> None:
        if dim < world.size:
            raise ConfigError(f"{world.size} processes cannot share {dim} columns; start at most {dim}, or raise dim.")
        self.world = world
        self.widths = [dim // world.size + (rank < dim % world.size) for rank in range(world.size)]
        start = sum(self.widths[: world.rank])
        self.own = slice(start, start + self.widths[world.rank])

    def take(self, model: GraphModel, propagation: Propagation | None) -> Propagation | None:
        stack_of(model)
        model.layer0 = nn.Parameter(model.layer0.detach()[:, self.own].clone())
        return propagation

    def give_back(self, model: GraphModel) -> None:
        model.layer0 = nn.Parameter(self.world.columns(model.layer0.detach(), self.widths))

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: self.world.columns(tensor.detach(), self.widths) if belongs_to(name, LAYER0) else tensor
            for name, tensor in tensors.items()
        }

    def part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor[:, self.own].contiguous() if belongs_to(name, LAYER0) else tensor
            for name, tensor in tensors.items()
        }

    def embed(self, model: GraphModel, propagation: Propagation | None) -> Embeddings[Tensor]:
        own = model.embed(propagation)
        users, items = (self.world.columns(rows, self.widths) for rows in (own.users, own.items))
        return Embeddings(users, items, own.user_rule)
