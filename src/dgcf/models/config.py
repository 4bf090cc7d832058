"""The settings of a model as a typed base class, and the bounds that its fields share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dgcf.config import Between, OneOf, require_range, tunable
from dgcf.graph import PropagationSpec
from dgcf.memory import require_memory

MAX_DIM = 8192
MAX_LAYERS = 64
WIDTHS = OneOf((32, 64, 128))
"""The widths that the paper searched."""
DEPTHS = Between(1, 4)
"""The depths that the paper searched."""

LayerReadout = Literal["mean", "last", "concat"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of a model.

    A subclass is a frozen dataclass: a field with a default and a docstring for every setting, whose values
    ``__post_init__`` checks. The methods below answer what other packages need to know; override those that differ.
    """

    @property
    def readout(self) -> LayerReadout:
        """How the layers are combined into the ranked embeddings."""
        return "mean"

    def spec(self) -> PropagationSpec | None:
        """Return the operator that the model propagates with, or None for a model without a graph."""
        return None

    @property
    def drops_edges(self) -> bool:
        """Whether ``edge_dropout`` has an effect on the model."""
        return self.spec() is not None

    @property
    def weight_setting(self) -> str | None:
        """The setting by which the model uses the weights of pairs; None if it does not use them."""
        return None

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Return the peak memory in bytes beyond that of embeddings and edges."""
        return 0

    @property
    def memory_advice(self) -> str:
        """What to do where that memory is not free: the end of a sentence, such as ``lower rank with --set rank=…``."""
        return "choose a smaller model"

    def require_memory(self, name: str, n_users: int, n_items: int, n_pairs: int) -> None:
        """Raise ``ConfigError`` if the model called ``name`` needs more memory than is free."""
        if needed := self.memory(n_users, n_items, n_pairs):
            size = f"{n_users:,} users, {n_items:,} items and {n_pairs:,} pairs"
            require_memory(needed, f"model {name}", self.memory_advice, size=size)


@dataclass(frozen=True)
class GraphModelConfig(ModelConfig):
    """Settings of a model that is trained in epochs."""

    dim: int = tunable(64, WIDTHS)
    """Width of the embeddings."""

    def __post_init__(self) -> None:
        require_range("dim", self.dim, 1, MAX_DIM)

    @property
    def layers(self) -> int:
        """Number of propagation layers."""
        return 0

    @property
    def message_dropout(self) -> float:
        """Share of each layer's output that a training step sets to zero."""
        return 0.0


@dataclass(frozen=True)
class LayeredConfig(GraphModelConfig):
    """Settings of a graph model with a choice of depth."""

    layers: int = tunable(3, DEPTHS)
    """Number of propagation layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("layers", self.layers, 1, MAX_LAYERS)
