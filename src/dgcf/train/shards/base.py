"""How the state of a training is divided among processes: not at all, by columns or by rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from torch import Tensor

from dgcf.errors import ConfigError
from dgcf.graph import Propagation
from dgcf.models.base import GraphModel, PropagationStack
from dgcf.ranking.rankings import Embeddings
from dgcf.train.shards.world import ALONE, World

Mode = Literal["columns", "rows"]
MODES: tuple[Mode, ...] = ("columns", "rows")
LAYER0, GATES = "layer0", "gates.logits"


class Sharding(Protocol):
    """A division of a model, its optimizer's state and its graph among the processes of ``world``.

    Tensors have the names of the model's parameters, such as ``layer0``, or those of the optimizer's state, such as
    ``layer0.exp_avg``.
    """

    @property
    def world(self) -> World:
        """The processes; a single one is ``ALONE``."""

    def take(self, model: GraphModel, propagation: Propagation | None) -> Propagation | None:
        """Leave in a model only what this process holds; return the propagation, if this process needs all of it."""

    def give_back(self, model: GraphModel) -> None:
        """Make a model whole again in every process."""

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors with the parts of all processes."""

    def part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what this process holds of whole tensors."""

    def embed(self, model: GraphModel, propagation: Propagation | None) -> Embeddings[Tensor]:
        """Return the whole embeddings of the present weights in every process."""


class Undivided:
    """The sharding of a single process, which holds everything."""

    world = ALONE

    def take(self, model: GraphModel, propagation: Propagation | None) -> Propagation | None:
        return propagation

    def give_back(self, model: GraphModel) -> None:
        pass

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(tensors)

    def part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(tensors)

    def embed(self, model: GraphModel, propagation: Propagation | None) -> Embeddings[Tensor]:
        return model.embed(propagation)


def stack_of(model: GraphModel) -> PropagationStack:
    """Return the model as a stack of propagations; refuse one that is more than that."""
    stack = model.stack()
    if stack is None:
        raise ConfigError(
            "this model cannot be trained by several processes; choose one that only propagates, such as dgcf or "
            "lightgcn, or start one process."
        )
    return stack


def belongs_to(name: str, parameter: str) -> bool:
    """Return whether a tensor is a parameter or has its shape, as the moments of the optimizer have."""
    return name in (parameter, f"{parameter}.exp_avg", f"{parameter}.exp_avg_sq")
