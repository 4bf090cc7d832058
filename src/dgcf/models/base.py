"""The base classes of models: what a model gives to training, evaluation and recommendation.

A ``GraphModel`` has parameters and ``forward(propagation)``, and the training loop updates the parameters in epochs. A
``SolvedModel`` computes its state from the training pairs in one call. Both give a *ranking* and declare how it
represents users. Nodes are numbered users first, then items: N = n_users + n_items; row ``n_users + i`` is item i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dgcf.data.pairs import Pairs
from dgcf.graph import EdgeDrop, MessageDrop, NeighbourDraw, Propagation
from dgcf.models.config import GraphModelConfig, ModelConfig
from dgcf.random import uniform
from dgcf.ranking.rankings import Embeddings, Ranking
from dgcf.ranking.user_rules import LinearLayers, UserRule


@dataclass(frozen=True)
class DropSchedule:
    """The random draws of one training step: edge dropout, message dropout and neighbour sampling, for each layer.

    ``per_layer`` draws edges anew for each layer, as the paper does. Otherwise all layers of a step share one draw, as
    the authors' code does.
    """

    p: float
    seed: int
    step: int
    per_layer: bool = True
    edge_words: Tensor | None = None
    """(layers, 2): the key words of edge dropout on a device, for a recorded step. Replaces seed and step."""
    message_words: Tensor | None = None
    """(layers, 2): the same for message dropout."""

    def at(self, layer: int) -> EdgeDrop | None:
        """Return the edge dropout of a layer, counted from 0, or None if no edges are dropped."""
        if self.p == 0:
            return None
        words = None if self.edge_words is None else self.edge_words[layer]
        return EdgeDrop(p=self.p, seed=self.seed, step=self.step, layer=layer if self.per_layer else 0, words=words)

    def messages(self, layer: int, p: float, rows: Tensor, width: int) -> Tensor:
        """Return the mask of message dropout, (n_rows, width) bool: True where a number of ``rows`` is kept.

        A draw depends on (seed, step, layer, node, column) alone. It is the same on every device and for any choice
        of rows.
        """
        words = None if self.message_words is None else self.message_words[layer]
        return MessageDrop(p=p, seed=self.seed, step=self.step, layer=layer, words=words).kept_at(rows, width)

    def neighbours(self, layer: int, fanout: int) -> NeighbourDraw:
        """Return the draw of ``fanout`` neighbours per node at a layer."""
        return NeighbourDraw(fanout=fanout, seed=self.seed, step=self.step, layer=layer)


@dataclass(frozen=True)
class PropagationStack:
    """Declares that a model is only gated propagation and a readout, so that an engine may compute it by fused kernels.

    ``E⁽ˡ⁾ = M (σ(w⁽ˡ⁾) ⊙ E⁽ˡ⁻¹⁾)`` for l = 1 … layers. ``gate_logits``: w, (layers, N), or (1, N) if the layers share
    it; None without gates. ``mean``: the readout is the mean of all layers, otherwise the last one.
    """

    layers: int
    gate_logits: nn.Parameter | None
    mean: bool


class GraphModel(nn.Module, ABC):
    """A trainable embedding per node, ``E⁽⁰⁾`` (N, dim), and a ``forward`` that computes the ranked embeddings.

    ``E⁽⁰⁾`` is initialised by Glorot and Bengio's uniform distribution, separately for users and items as in the
    authors' code: U(−b, b) with b² = 6 / (rows + dim). A subclass adds its parameters and ``forward``.
    """

    seeded: ClassVar[bool] = True
    """Whether another seed gives another model."""
    has_embeddings: ClassVar[bool] = True
    """Whether the ranking has embeddings, to which item weights can be added (``dgcf.train.blend``)."""
    recordable: ClassVar[bool] = True
    """Whether a step can be recorded on a GPU and replayed: all its draws use the words of ``DropSchedule``."""

    config: GraphModelConfig

    def __init__(self, n_users: int, n_items: int, config: GraphModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.n_users, self.n_items, self.dim = n_users, n_items, config.dim
        users = xavier_uniform("layer0.users", n_users, self.dim, seed)
        items = xavier_uniform("layer0.items", n_items, self.dim, seed)
        self.layer0 = nn.Parameter(torch.cat([users, items]))

    @property
    def n_nodes(self) -> int:
        return self.n_users + self.n_items

    @property
    def width(self) -> int:
        """Columns of the final embeddings: ``dim``, unless the readout concatenates layers."""
        return self.dim

    def ego(self, rows: Tensor | None = None) -> Tensor:
        """Return layer 0, which L2 regularises: (N, dim), or its ``rows``, (n_rows, dim)."""
        return self.layer0 if rows is None else self.layer0.index_select(0, rows)

    @abstractmethod
    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        """Return the final embeddings of all nodes, (N, width), or of ``rows`` alone, (n_rows, width).

        ``rows``: (n_rows,) int64 node numbers. ``drop``: the dropout of this training step, None when ranking.
        """

    def stack(self) -> PropagationStack | None:
        """Return the model as a ``PropagationStack``; None for a model that is more than that."""
        return None

    @property
    def user_rule(self) -> UserRule | None:
        """How the ranking represents users; None if new users cannot be folded in and scores not be explained."""
        return None if self.stack() is None else LinearLayers()

    @torch.no_grad()
    def embed(self, propagation: Propagation | None) -> Embeddings[Tensor]:
        """Return the ranked embeddings of all users and items, without dropout or gradients."""
        nodes = self(propagation).detach().clone()  # a model without layers returns its parameter itself
        return Embeddings(nodes[: self.n_users], nodes[self.n_users :], self.user_rule)


class SolvedModel(nn.Module, ABC):
    """A model whose state is computed from the training pairs by ``solve`` and kept in buffers, on the CPU.

    A subclass is built by ``(n_users, n_items, config)`` with buffers of their final shapes, so that a stored state can
    be loaded without solving again.
    """

    seeded: ClassVar[bool] = True
    """Whether another seed gives another model."""
    has_embeddings: ClassVar[bool] = False
    """Whether the ranking has embeddings; the others have weights between items."""
    config: ModelConfig

    def __init__(self, n_users: int, n_items: int, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def notes(self) -> list[str]:
        """Remarks on settings that the data changes."""
        return []

    @abstractmethod
    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        """Compute the state on ``device`` if the model can use it; the same pairs and seed give the same bits."""

    @abstractmethod
    def ranking(self, pairs: Pairs) -> Ranking:
        """Return the ranking of the state; ``pairs`` are those that it was solved for."""


class SolvedEmbeddings(SolvedModel):
    """A solved model whose state is embeddings: ``users`` (n_users, dim) and ``items`` (n_items, dim)."""

    has_embeddings = True
    users: Tensor
    items: Tensor
    user_rule: UserRule | None = None
    """How the ranking represents users; None if new users cannot be folded in and scores not be explained."""

    def __init__(self, n_users: int, n_items: int, config: ModelConfig, dim: int) -> None:
        super().__init__(n_users, n_items, config)
        self.register_buffer("users", torch.zeros(n_users, dim))
        self.register_buffer("items", torch.zeros(n_items, dim))

    def ranking(self, pairs: Pairs) -> Embeddings[Tensor]:
        return Embeddings(self.users, self.items, self.user_rule)


Model = GraphModel | SolvedModel


def xavier_uniform(name: str, rows: int, columns: int, seed: int) -> Tensor:
    """Return (rows, columns) float32 from U(−b, b), b² = 6 / (rows + columns), drawn from the stream ``init/name``."""
    bound = np.sqrt(6.0 / (rows + columns))
    values = uniform(seed, f"init/{name}", rows * columns) * (2.0 * bound) - bound
    return torch.from_numpy(values.astype(np.float32).reshape(rows, columns))
