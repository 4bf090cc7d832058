"""The protocol that every trained model's ranking follows, and its two kinds: embeddings and item weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError
from dgcf.ranking.arrays import Floats, Indices, Rows, Side
from dgcf.ranking.similarity import CosineSimilarity, Similarity, WeightSimilarity
from dgcf.ranking.topk import Candidates, EmbeddingIndex, ItemIndex, WeightIndex, exact_scores
from dgcf.ranking.user_rules import ItemSums, UserRule
from dgcf.ranking.weights import WeightMatrix

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", Rows, "Tensor")


class Ranking(Protocol):
    """What a trained model gives, and all that evaluation and recommendation need of it."""

    @property
    def user_rule(self) -> UserRule | None:
        """How users are represented, from which fold-in and explanations follow; None allows neither."""

    @property
    def embeddings(self) -> Embeddings[Rows] | None:
        """The embeddings that items and users have, as NumPy arrays, or None."""

    @property
    def item_weights(self) -> WeightMatrix | None:
        """The weights between items that make or are added to the scores, or None."""

    def scores(self, user_idx: Any) -> Any:
        """Return the scores of all items, (batch, n_items), for users (batch,) int64; larger is better."""

    def pair_scores(self, user_idx: Indices, item_idx: Indices) -> Floats:
        """Return the exact score of each pair, (n,)."""

    def index(self) -> ItemIndex[Any]:
        """Return the items, ready for the exact top-k (``dgcf.ranking.topk``) of ``queries``."""

    def queries(self, user_idx: Indices) -> Any:
        """Return what the index is searched with for these users."""

    def similarity(self, side: Side) -> Similarity | None:
        """Return how alike two users or two items are; None if the ranking cannot tell."""

    def of_users(self, user_idx: Indices) -> Ranking:
        """Return the ranking of some users alone, numbered anew in this order; their scores have the same bits."""

    def to_numpy(self) -> Ranking:
        """Return the same ranking in NumPy arrays, for an artefact or for serving."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the NumPy arrays that determine the scores, by name and in a fixed order."""


@dataclass(frozen=True, eq=False)
class Embeddings(Generic[Array]):
    """A ranking by inner products, ``s(u, i) = ⟨e_u, e_i⟩``: ``users`` (n_users, dim), ``items`` (n_items, dim).

    They are tensors on any device after training, and float32 arrays for serving.
    """

    users: Array
    items: Array
    user_rule: UserRule | None = None

    def __post_init__(self) -> None:
        if self.users.ndim != 2 or self.items.ndim != 2 or self.users.shape[1] != self.items.shape[1]:
            raise DataError(
                f"the embeddings have shapes {tuple(self.users.shape)} and {tuple(self.items.shape)}; "
                "give (n_users, dim) and (n_items, dim) with one dim."
            )

    @property
    def dim(self) -> int:
        return int(self.users.shape[1])

    @property
    def embeddings(self) -> Embeddings[Rows]:
        return self.to_numpy()

    @property
    def item_weights(self) -> None:
        return None

    def rows(self, side: Side) -> Array:
        """Return the rows of the users or of the items."""
        return self.users if side == "user" else self.items

    def scores(self, user_idx: Any) -> Array:
        """Return the scores (batch, n_items) of users (batch,) int64, on the device of the embeddings."""
        # As an array: NumPy would take a tensor of one index for a number.
        scores: Array = self.users[np.asarray(user_idx)] @ self.items.T
        return scores

    def pair_scores(self, user_idx: Indices, item_idx: Indices) -> Floats:
        arrays = self.to_numpy()
        return exact_scores(arrays.users, arrays.items, Candidates(user_idx, item_idx))

    def index(self) -> EmbeddingIndex:
        return EmbeddingIndex(self.to_numpy().items)

    def queries(self, user_idx: Indices) -> Rows:
        return self.to_numpy().users[user_idx]

    def similarity(self, side: Side) -> CosineSimilarity:
        return CosineSimilarity(self.to_numpy().rows(side))

    def of_users(self, user_idx: Indices) -> Embeddings[Array]:
        return replace(self, users=self.users[user_idx])

    def to_numpy(self) -> Embeddings[Rows]:
        return Embeddings(float32_rows(self.users), float32_rows(self.items), self.user_rule)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        arrays = self.to_numpy()
        return {"users": arrays.users, "items": arrays.items}


def float32_rows(rows: Rows | Tensor) -> Rows:
    """Return rows as a contiguous float32 array on the CPU."""
    host = rows if isinstance(rows, np.ndarray) else rows.detach().cpu().numpy()
    return np.ascontiguousarray(host, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class ItemWeights:
    """A ranking by weights between items, ``s(u, i) = Σ_j W[j, i]`` over the training items j of u.

    ``pairs``: the training pairs; ``weights``: W (n_items, n_items), dense or sparse. Scores are float64 and always
    added in the order of the items, so a user's scores have the same bits in any batch.
    """

    pairs: Pairs
    weights: WeightMatrix

    @property
    def user_rule(self) -> ItemSums:
        return ItemSums(self.weights)

    @property
    def embeddings(self) -> None:
        return None

    @property
    def item_weights(self) -> WeightMatrix:
        return self.weights

    def scores(self, user_idx: Any) -> Floats:
        """Return the scores (batch, n_items) float64 of users (batch,) int64, on the CPU."""
        return np.stack([self.weights.sum_rows(self.pairs[user]) for user in user_idx.tolist()])

    def some_scores(self, user_idx: Any, rows: Indices) -> Floats:
        """Return what ``scores`` returns, with the same bits in ``rows`` (n,) and zeros in the other rows."""
        scores = np.zeros((len(user_idx), self.weights.shape[1]))
        for row in rows.tolist():
            scores[row] = self.weights.sum_rows(self.pairs[int(user_idx[row])])
        return scores

    def pair_scores(self, user_idx: Indices, item_idx: Indices) -> Floats:
        scores = {user: self.weights.sum_rows(self.pairs[user]) for user in set(user_idx.tolist())}
        return np.array([scores[user][item] for user, item in zip(user_idx, item_idx, strict=True)])

    def index(self) -> WeightIndex:
        return WeightIndex(self.weights)

    def queries(self, user_idx: Indices) -> Pairs:
        return self.pairs.take(user_idx)

    def similarity(self, side: Side) -> WeightSimilarity | None:
        return WeightSimilarity(self.weights) if side == "item" else None

    def of_users(self, user_idx: Indices) -> ItemWeights:
        return ItemWeights(self.pairs.of_users(user_idx), self.weights)

    def to_numpy(self) -> ItemWeights:
        return self

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return {**self.weights.arrays(), "user_indptr": self.pairs.indptr, "user_items": self.pairs.indices}
