"""What every model gives and takes: the contract between the graph, the training loop and whoever ranks items.

A model is trained in epochs or at once. In epochs: a graph model is parameters and ``forward(propagation)``, and the
training loop moves the parameters. At once: a ``SolvedModel`` computes its state from the training pairs. Either way a
*ranking* comes out. Nodes are numbered users first, then items: N = n_users + n_items; row ``n_users + i`` is item i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dgcf.data.pairs import Pairs
from dgcf.graph import EdgeDrop, MessageDrop, NeighbourDraw, Propagation
from dgcf.graph.kernels.cpu.stack import Drawing, StripStack
from dgcf.models.config import GraphModelConfig, ModelConfig
from dgcf.random import uniform
from dgcf.ranking.rankings import Embeddings, Ranking

if TYPE_CHECKING:
    from dgcf.graph.operators.stored import StoredMatrix


@dataclass(frozen=True)
class DropSchedule:
    """What one training step leaves out, layer by layer: edges here, and numbers of what nodes pass on (``messages``).

    ``per_layer`` draws anew at each layer (the paper); otherwise all layers of a step share one draw (the authors'
    code). ``kind`` is ``entries`` (each entry of the matrix on its own) or ``edges`` (both directions together).
    """

    p: float
    seed: int
    step: int
    per_layer: bool = True
    kind: Literal["entries", "edges"] = "entries"
    edge_words: Tensor | None = None
    """The words of the draws of edges on a device, (layers, 2), for a recorded step; likewise of messages."""
    message_words: Tensor | None = None

    def at(self, layer: int) -> EdgeDrop | None:
        """The draw of one layer, counted from 0."""
        if self.p == 0:
            return None
        words = None if self.edge_words is None else self.edge_words[layer]
        drawn = layer if self.per_layer else 0
        return EdgeDrop(p=self.p, seed=self.seed, step=self.step, layer=drawn, kind=self.kind, words=words)

    def messages(self, layer: int, p: float, rows: Tensor, width: int) -> Tensor:
        """Message dropout: which numbers of the nodes ``rows`` stay at a layer, each with probability 1−p.

        (n_rows, width), True or False. A draw depends on (seed, step, layer, node, column) alone: it is the same on
        every device and for any choice of rows.
        """
        words = None if self.message_words is None else self.message_words[layer]
        return MessageDrop(p=p, seed=self.seed, step=self.step, layer=layer, words=words).kept_at(rows, width)

    def neighbours(self, layer: int, fanout: int) -> NeighbourDraw:
        """Which neighbours a node hears at a layer, for a model that hears but a few."""
        return NeighbourDraw(fanout=fanout, seed=self.seed, step=self.step, layer=layer)


@dataclass(frozen=True)
class Stack:
    """A model that is nothing but gated propagation and a read-out, which a batch's rows can be had of in one step.

    ``logits``: (layers, N), (1, N) if shared, of the gates ``α = σ(w)``, or None; ``mean``: read out the mean of all
    layers, else the last.
    """

    layers: int
    logits: nn.Parameter | None
    mean: bool

    @property
    def alpha(self) -> Tensor | None:
        """The gates, with gradients to their logits."""
        return None if self.logits is None else torch.sigmoid(self.logits)

    def rows_on_cpu(
        self, layer0: Tensor, matrix: StoredMatrix, rows: Tensor, drop: DropSchedule, begun: Drawing | None = None
    ) -> tuple[Tensor, Tensor]:
        """The final rows of a batch on a CPU and ``½ Σ ‖e‖²`` of its layer-0 rows, differentiable.

        Repeated rows count as often as they are there; ``drop``: what each layer leaves out; ``begun``: the drawing
        of that, where it has begun already.
        """
        found: tuple[Tensor, Tensor] = StripStack.apply(  # type: ignore[no-untyped-call]
            layer0, self.alpha, matrix, self._drops(drop), rows, self.mean, begun
        )
        return found

    def begin_on_cpu(self, matrix: StoredMatrix, n_rows: int, drop: DropSchedule) -> Drawing:
        """Let idle threads draw what a coming step leaves out, for a batch of about so many rows."""
        return Drawing(matrix, self._drops(drop), cut=matrix.worth_cutting(n_rows), adjoint=False)

    def _drops(self, drop: DropSchedule) -> tuple[EdgeDrop | None, ...]:
        return tuple(drop.at(layer) for layer in range(self.layers))


class GraphModel(nn.Module, ABC):
    """A trainable row per node, ``E⁽⁰⁾`` (N, dim), and a rule that turns them into what is ranked.

    ``E⁽⁰⁾`` starts from Glorot and Bengio's uniform law, for users and items apart as in the authors' code:
    U(−b, b) with b² = 6 / (rows + dim). A subclass adds its own parameters and ``forward``.
    """

    seeded: ClassVar[bool] = True
    """Whether another seed gives another model."""
    recordable: ClassVar[bool] = True
    """Whether a training step can be recorded on a GPU and replayed: all that is drawn comes from ``DropSchedule``."""

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
        """Columns of the final rows: ``dim``, unless the read-out puts layers side by side."""
        return self.dim

    def ego(self, rows: Tensor | None = None) -> Tensor:
        """Layer 0, which L2 regularises: (N, dim), or its rows (n_rows, dim)."""
        return self.layer0 if rows is None else self.layer0.index_select(0, rows)

    @abstractmethod
    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        """The nodes' final rows: (N, width), or (n_rows, width) with the values that those rows have in the whole.

        ``rows``: (n_rows,) int64 node numbers; ``drop``: what this training step leaves out, None when ranking.
        """

    def stack(self) -> Stack | None:
        """The model as a ``Stack``, with gradients to its parameters; None for a model that is more than that."""
        return None

    @torch.no_grad()
    def embed(self, propagation: Propagation | None) -> Embeddings:
        """All users and items, as they are ranked: every edge in place and no gradient."""
        nodes = self(propagation).detach().clone()  # a model without layers gives its very parameter
        return Embeddings(nodes[: self.n_users], nodes[self.n_users :])


class SolvedModel(nn.Module, ABC):
    """A model that is computed from the training pairs at once: its state is buffers, and ``solve`` fills them.

    A subclass is built by ``(n_users, n_items, config)`` with buffers of their final shapes, so that a stored state can
    be put back without solving again. It lives on the CPU.
    """

    seeded: ClassVar[bool] = True
    """Whether the seed changes what ``solve`` computes."""
    config: ModelConfig

    def __init__(self, n_users: int, n_items: int, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def solve(self, pairs: Pairs, seed: int) -> None:
        """Compute the state; the same pairs and seed give the same bits."""

    @abstractmethod
    def ranking(self, pairs: Pairs) -> Ranking:
        """What the state ranks with; ``pairs`` are those it was solved for."""


class SolvedEmbeddings(SolvedModel):
    """One whose state is embeddings: ``users`` (n_users, dim) and ``items`` (n_items, dim), zeros until solved."""

    users: Tensor
    items: Tensor

    def __init__(self, n_users: int, n_items: int, config: ModelConfig, dim: int) -> None:
        super().__init__(n_users, n_items, config)
        self.register_buffer("users", torch.zeros(n_users, dim))
        self.register_buffer("items", torch.zeros(n_items, dim))

    def ranking(self, pairs: Pairs) -> Embeddings:
        return Embeddings(self.users, self.items)


Model = GraphModel | SolvedModel


def xavier_uniform(name: str, rows: int, columns: int, seed: int) -> Tensor:
    """(rows, columns) float32 from U(−b, b), b² = 6 / (rows + columns), drawn from the stream ``init/name``."""
    bound = np.sqrt(6.0 / (rows + columns))
    drawn = uniform(seed, f"init/{name}", rows * columns) * (2.0 * bound) - bound
    return torch.from_numpy(drawn.astype(np.float32).reshape(rows, columns))
