"""A trained model as NumPy arrays: what an artefact stores and recommending reads.

Nodes are numbered users first, then items, as in the graph: N = n_users + n_items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import DataError
from dgcf.ranking.arrays import Floats, Rows, Side
from dgcf.ranking.rankings import Embeddings, Ranking


@dataclass(frozen=True)
class GraphRule:
    """How the entries of ``M = L + Lc + I`` follow from the pairs, with ε as a number (``None``: nothing is filtered).

    ``cross`` says whether Lc is part of M; the other fields are those of ``PropagationSpec``.
    """

    direct: bool
    cross: bool
    epsilon: float | None
    self_loop: bool
    cross_diagonal: bool
    cross_below_one: bool


@dataclass(frozen=True, eq=False)
class Layers:
    """``embeddings``: E⁽⁰⁾ … E⁽ᴸ⁾, (L + 1, N, dim) float32. ``gate_logits``: w, (1 or L, N), or None without gates."""

    embeddings: Rows
    gate_logits: Rows | None

    @property
    def depth(self) -> int:
        """L, the number of propagation layers."""
        return len(self.embeddings) - 1

    def gate(self, layer: int, nodes: Any = slice(None)) -> Floats:
        """``α⁽ˡ⁾ = σ(w⁽ˡ⁾)`` of some nodes, for l = 1 … L; ones where the model has no gates."""
        if self.gate_logits is None:
            return np.asarray(np.ones(self.embeddings.shape[1])[nodes])
        return sigmoid(self.gate_logits[(layer - 1) % len(self.gate_logits)][nodes].astype(np.float64))


def sigmoid(logits: Floats) -> Floats:
    """``1 / (1 + e^−x)``; a logit so low that e^−x overflows would round to 0 anyway."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A trained model.

    ``ranking`` holds NumPy arrays. ``train`` holds the training pairs, the edges of the graph; ``seen`` all known pairs
    of every split. ``rule`` is None for a model without a graph, ``load_layers`` unless the ranking's rule is
    ``LinearLayers``. ``about`` is plain JSON data: model, settings, seed, dataset, metrics.
    """

    about: Mapping[str, Any]
    users: Vocabulary
    items: Vocabulary
    train: Pairs
    seen: Pairs
    ranking: Ranking
    rule: GraphRule | None = None
    readout: Literal["mean", "last"] = "mean"
    cosine: bool = False
    load_layers: Callable[[], Layers] | None = None

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def embeddings(self) -> Embeddings[Rows]:
        """The embeddings; raises ``DataError`` for a model that has none."""
        embeddings = self.ranking.embeddings
        if embeddings is None:
            raise self.no_embeddings()
        return embeddings

    def no_embeddings(self) -> DataError:
        """Return the error for a model without embeddings."""
        return DataError(
            f"model {self.model} weighs items by items and has no embeddings, which this needs; train one that "
            "has, such as dgcf, lightgcn or ials."
        )

    @property
    def user_rows(self) -> Rows:
        return self.embeddings.users

    @property
    def item_rows(self) -> Rows:
        return self.embeddings.items

    @property
    def model(self) -> str:
        return str(self.about["model"])

    @cached_property
    def layers(self) -> Layers | None:
        """The layers, read on first use; ranking does not need them."""
        return self.load_layers() if self.load_layers is not None else None

    def vocabulary(self, side: Side) -> Vocabulary:
        return self.users if side == "user" else self.items

    def layer_weights(self, depth: int) -> Floats:
        """w, (L + 1,): how much of each layer is in a ranked row, ``e = Σ_l w_l E⁽ˡ⁾``."""
        if self.readout == "last":
            return np.append(np.zeros(depth), 1.0)
        return np.full(depth + 1, 1.0 / (depth + 1))
