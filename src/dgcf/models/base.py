"""What every model gives and takes: the contract between the graph, the training loop and whoever ranks items.

A graph model is parameters and ``forward(propagation)``. Nodes are numbered users first, then items:
N = n_users + n_items, and row ``n_users + i`` is item i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dgcf.graph import EdgeDrop, Propagation
from dgcf.random import uniform

if TYPE_CHECKING:
    from dgcf.graph.gpu import GpuMatrix


@dataclass(frozen=True)
class Embeddings:
    """What a graph model gives, and all that ranking needs: ``users`` (n_users, dim), ``items`` (n_items, dim)."""

    users: Tensor
    items: Tensor

    def normalised(self) -> Embeddings:
        """Rows of length one, so that inner products are cosines; a row of zeros stays one."""
        return Embeddings(nn.functional.normalize(self.users, dim=1), nn.functional.normalize(self.items, dim=1))


@dataclass(frozen=True)
class DropSchedule:
    """Which edges one training step leaves out, layer by layer.

    ``per_layer`` draws anew at each layer (the paper); otherwise all layers of a step share one draw (the authors'
    code). ``kind`` is ``entries`` (each entry of the matrix on its own) or ``edges`` (both directions together).
    """

    p: float
    seed: int
    step: int
    per_layer: bool = True
    kind: Literal["entries", "edges"] = "entries"

    def at(self, layer: int) -> EdgeDrop | None:
        """The draw of one layer, counted from 0."""
        if self.p == 0:
            return None
        return EdgeDrop(p=self.p, seed=self.seed, step=self.step, layer=layer if self.per_layer else 0, kind=self.kind)


@dataclass(frozen=True)
class Stack:
    """A model that is nothing but gated propagation and a read-out, in the terms of the fused GPU kernels.

    ``alpha``: (layers, N) gates, (1, N) if shared, or None; ``mean``: read out the mean of all layers, else the last.
    """

    layers: int
    alpha: Tensor | None
    mean: bool

    def rows(
        self, layer0: Tensor, matrix: GpuMatrix, rows: Tensor, words: Tensor | None, p: float, storage: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The final and the layer-0 rows of a batch, differentiable; ``words`` are the draws of drop-edge, if any."""
        from dgcf.graph.gpustack import DeviceDrop, FusedStack

        drop = None if words is None else DeviceDrop(words, int(p * 2.0**32))
        found: tuple[Tensor, Tensor] = FusedStack.apply(  # type: ignore[no-untyped-call]
            layer0, self.alpha, matrix, self.layers, rows, drop, self.mean, storage
        )
        return found


class GraphModel(nn.Module, ABC):
    """A trainable row per node, ``E⁽⁰⁾`` (N, dim), and a rule that turns them into what is ranked.

    ``E⁽⁰⁾`` starts from Glorot and Bengio's uniform law, for users and items apart as in the authors' code:
    U(−b, b) with b² = 6 / (rows + dim). A subclass adds its own parameters and ``forward``.
    """

    def __init__(self, n_users: int, n_items: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        self.n_users, self.n_items, self.dim = n_users, n_items, dim
        users = xavier_uniform("layer0.users", n_users, dim, seed)
        items = xavier_uniform("layer0.items", n_items, dim, seed)
        self.layer0 = nn.Parameter(torch.cat([users, items]))

    @property
    def n_nodes(self) -> int:
        return self.n_users + self.n_items

    def ego(self, rows: Tensor | None = None) -> Tensor:
        """Layer 0, which L2 regularises: (N, dim), or its rows (n_rows, dim)."""
        return self.layer0 if rows is None else self.layer0.index_select(0, rows)

    @abstractmethod
    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        """The nodes' final rows: (N, dim), or (n_rows, dim) with exactly the values those rows have in the whole.

        ``rows``: (n_rows,) int64 node numbers; ``drop``: the edges left out of this training step.
        """

    def stack(self) -> Stack | None:
        """The model as a ``Stack``, with gradients to its parameters; None for a model that is more than that."""
        return None

    @torch.no_grad()
    def embed(self, propagation: Propagation | None) -> Embeddings:
        """All users and items, as they are ranked: every edge in place and no gradient."""
        nodes = self(propagation).detach().clone()  # a model without layers gives its very parameter
        return Embeddings(nodes[: self.n_users], nodes[self.n_users :])


def xavier_uniform(name: str, rows: int, columns: int, seed: int) -> Tensor:
    """(rows, columns) float32 from U(−b, b), b² = 6 / (rows + columns), drawn from the stream ``init/name``."""
    bound = np.sqrt(6.0 / (rows + columns))
    drawn = uniform(seed, f"init/{name}", rows * columns) * (2.0 * bound) - bound
    return torch.from_numpy(drawn.astype(np.float32).reshape(rows, columns))
