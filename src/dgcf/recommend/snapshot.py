"""A trained model as NumPy arrays, as stored in an artefact and read by recommendation.

Nodes are numbered users first, then items, as in the graph: N = n_users + n_items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import DataError
from dgcf.ranking.arrays import Floats, Indices, Rows, Side
from dgcf.ranking.rankings import Embeddings, Ranking


@dataclass(frozen=True)
class GraphRule:
    """How the entries of ``M = L + Lc + I`` follow from the training pairs.

    ``cross``: whether Lc is part of M; ``epsilon``: the filter's threshold ε as a number, or None without a filter; the
    other fields are those of ``PropagationSpec``.
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
        """Return ``α⁽ˡ⁾ = σ(w⁽ˡ⁾)`` of some nodes, for l = 1 … L; ones if the model has no gates."""
        return np.asarray(self._gates[(layer - 1) % len(self._gates)][nodes])

    @cached_property
    def _gates(self) -> Floats:
        """(1 or L, N), computed once: a new user's list needs a few of them, but in every layer."""
        if self.gate_logits is None:
            return np.ones((1, self.embeddings.shape[1]))
        return sigmoid(self.gate_logits.astype(np.float64))


def sigmoid(logits: Floats) -> Floats:
    """Return ``1 / (1 + e^−x)``; where e^−x overflows the result is 0, as rounding would give."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A trained model.

    ``ranking`` holds NumPy arrays. ``train``: the training pairs, the edges of the graph; ``seen``: the pairs of all
    splits. ``rule`` is None for a model without a graph; ``load_layers`` is None unless the ranking's rule is
    ``LinearLayers``. ``about`` is JSON data: model, settings, seed, dataset, metrics.
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
            f"model {self.model} has no embeddings, which this needs, but weights between items; train one with "
            "embeddings, such as dgcf, lightgcn or ials."
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

    def require_no_weights(self, why: str) -> None:
        """Raise ``DataError``, with the reason ``why``, if the model uses weights of pairs to represent users."""
        settings = self.about.get("settings", {})
        for name in ("edge_weights", "weighted"):
            if settings.get(name) and not self.ranking.user_rule:
                raise DataError(
                    f"model {self.model} was trained with {name}, {why}; for that, train it without {name}."
                )

    @cached_property
    def layers(self) -> Layers | None:
        """The layers, read on first use; ranking does not need them."""
        return self.load_layers() if self.load_layers is not None else None

    def vocabulary(self, side: Side) -> Vocabulary:
        return self.users if side == "user" else self.items

    def of_users(self, user_idx: Indices) -> Snapshot:
        """Return the snapshot of some users alone, numbered anew in this order; all stored rows stay as they are."""
        return replace(
            self,
            users=self.users.take(user_idx),
            train=self.train.of_users(user_idx),
            seen=self.seen.of_users(user_idx),
            ranking=self.ranking.of_users(user_idx),
            load_layers=None if self.load_layers is None else partial(_layers_of, self, user_idx),
        )

    def hidden_items(self, users: Indices, exclude_seen: bool) -> Pairs:
        """Return a row of items to hide for each user: the seen ones, or none."""
        return self.seen.take(users) if exclude_seen else Pairs.empty(len(users), self.n_items)

    def layer_weights(self, depth: int) -> Floats:
        """Return w, (L + 1,): the weight of each layer in a ranked row, ``e = Σ_l w_l E⁽ˡ⁾``."""
        if self.readout == "last":
            return np.append(np.zeros(depth), 1.0)
        return np.full(depth + 1, 1.0 / (depth + 1))


def _layers_of(snapshot: Snapshot, user_idx: Indices) -> Layers:
    """Return the layers of some users and of all items."""
    layers = snapshot.layers
    assert layers is not None
    nodes = np.concatenate([user_idx, np.arange(snapshot.n_users, snapshot.n_users + snapshot.n_items)])
    gates = None if layers.gate_logits is None else layers.gate_logits.take(nodes, axis=1)
    return Layers(layers.embeddings.take(nodes, axis=1), gates)  # take: contiguous, as safetensors stores arrays
