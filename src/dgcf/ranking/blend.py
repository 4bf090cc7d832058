"""The composed ranking: the inner products of embeddings, plus weights between items and a prior of each item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError
from dgcf.ranking.arrays import Floats, Indices, Rows, Side
from dgcf.ranking.rankings import Array, Embeddings, ItemWeights
from dgcf.ranking.scratch import SCRATCH
from dgcf.ranking.similarity import Among, Similarity, cosines_among, hide_itself, unit_rows, weights_among
from dgcf.ranking.topk import (
    Backend,
    Candidates,
    EmbeddingIndex,
    TopK,
    WeightIndex,
    candidates_above,
    exact_scores,
    fewest_left,
    groups,
    hide,
    padded,
    rows_at_once,
    top_k,
)
from dgcf.ranking.user_rules import BlendedRule
from dgcf.ranking.weights import SparseWeights

_ROUNDING = 2.0**-22  # a bound on casting a sum of weights to float32 and adding it there, relative to the terms


class BlendQueries(NamedTuple):
    """Users as rows (n, dim), the items that they have, and the factor of their sums of weights (n,)."""

    rows: Rows
    items: Pairs
    scale: Floats


def blend_queries(rows: Rows, items: Pairs) -> BlendQueries:
    """Return the queries of users with these rows and items; the factor is ``d^-½`` of a user with d items."""
    return BlendQueries(rows, items, item_sum_scale(items.user_degrees))


def item_sum_scale(degrees: NDArray[np.integer]) -> Floats:
    """Return ``d^-½`` of users with d items, and 0 for a user without any."""
    return np.where(degrees > 0, 1.0 / np.sqrt(np.maximum(degrees, 1)), 0.0)


def with_column(rows: Rows, column: NDArray[Any]) -> Rows:
    """Return rows (n, dim) with one more column, (n, dim + 1) float32."""
    return np.column_stack([rows, column]).astype(np.float32, copy=False)


@dataclass(frozen=True, eq=False)
class Blend(Generic[Array]):
    """A composed ranking, ``s(u, i) = ⟨e_u, e_i⟩ + d_u^-½ Σ_j W[j, i] + p_i`` over the d_u training items j of u.

    ``base``: the embeddings, as tensors on any device after training and as float32 arrays for serving; ``weights``: W
    (n_items, n_items), which contains the factors of its parts; ``pairs``: the training pairs; ``prior``: p (n_items,)
    float32, the same for every user, or None. In the index, p is one more column of the items' rows.
    """

    base: Embeddings[Array]
    pairs: Pairs
    weights: SparseWeights
    prior: Rows | None = None

    def __post_init__(self) -> None:
        n_items = self.base.items.shape[0]
        if self.prior is not None and self.prior.shape != (n_items,):
            raise DataError(f"the prior has the shape {self.prior.shape}, but there are {n_items} items.")
        if self.weights.shape != (n_items, n_items) or self.pairs.n_items != n_items:
            raise DataError(
                f"the weights have the shape {self.weights.shape} and the pairs {self.pairs.n_items} items, but "
                f"{n_items} items have embeddings; give weights between these items."
            )

    @property
    def user_rule(self) -> BlendedRule | None:
        """The rule of the embeddings together with that of the weights; None if the embeddings have none."""
        return None if self.base.user_rule is None else BlendedRule(self.base.user_rule, self.weights)

    @property
    def embeddings(self) -> Embeddings[Rows]:
        return self.base.to_numpy()

    @property
    def item_weights(self) -> SparseWeights:
        return self.weights

    def scores(self, user_idx: Any) -> Array:
        """Return the scores (batch, n_items) of users (batch,) int64, on the device of the embeddings."""
        return self.some_scores(user_idx, np.arange(len(user_idx)))

    def some_scores(self, user_idx: Any, rows: NDArray[np.integer]) -> Array:
        """Return what ``scores`` returns, with the same bits in ``rows`` (n,); others may lack the weights."""
        scores = self.base.scores(user_idx)
        if not isinstance(scores, np.ndarray) and scores.device.type != "cpu":
            rows = np.arange(len(user_idx))  # the bits of its products depend on their shape
        items = self.pairs.take(np.asarray(user_idx)[rows])
        scale = item_sum_scale(items.user_degrees)
        if isinstance(scores, np.ndarray):
            for row, sums, factor in zip(rows.tolist(), self.weights.each_sum(items), scale, strict=True):
                scores[row] += sums * factor
        else:
            from dgcf.ranking.torch_backend import item_sums

            sums = item_sums(scores.device, self.weights, items, scale)
            if len(rows) == len(scores):
                scores += sums
            else:
                scores[rows] += sums
        if self.prior is not None:
            scores += self.prior if isinstance(scores, np.ndarray) else scores.new_tensor(self.prior)
        return scores

    def pair_scores(self, user_idx: Indices, item_idx: Indices) -> Floats:
        users, place = np.unique(user_idx, return_inverse=True)
        queries, rows = self.queries(users), self.base.to_numpy().items[item_idx]
        if self.prior is not None:
            rows = with_column(rows, self.prior[item_idx])
        sums = np.zeros(len(user_idx))
        for number, row in enumerate(self.weights.each_sum(queries.items)):
            chosen = place == number
            sums[chosen] = row[item_idx[chosen]] * queries.scale[number]
        return exact_scores(queries.rows, rows, Candidates(place, np.arange(len(rows)))) + sums

    def index(self) -> BlendIndex:
        rows = self.base.to_numpy().items
        rows = rows if self.prior is None else with_column(rows, self.prior)
        return BlendIndex(EmbeddingIndex(rows), WeightIndex(self.weights))

    def queries(self, user_idx: Indices) -> BlendQueries:
        return self.queries_of(self.base.queries(user_idx), self.pairs.take(user_idx))

    def queries_of(self, rows: Rows, items: Pairs) -> BlendQueries:
        """Return the queries of users with these rows (n, dim) and items."""
        return blend_queries(rows if self.prior is None else with_column(rows, np.ones(len(rows))), items)

    def similarity(self, side: Side) -> Similarity:
        """Return cosines of users; of items, cosines plus the weights between them."""
        if side == "user":
            return self.base.similarity(side)
        arrays = self.base.to_numpy()
        lengths = (np.linalg.norm(rows, axis=1).mean(dtype=np.float64) for rows in (arrays.users, arrays.items))
        return BlendSimilarity(arrays.items, self.weights, float(np.prod(list(lengths))))

    def of_users(self, user_idx: Indices) -> Blend[Array]:
        return replace(self, base=self.base.of_users(user_idx), pairs=self.pairs.of_users(user_idx))

    def to_numpy(self) -> Blend[Rows]:
        return Blend(self.base.to_numpy(), self.pairs, self.weights, self.prior)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        own = ItemWeights(self.pairs, self.weights).arrays()
        prior = {} if self.prior is None else {"prior": self.prior}
        return {**self.base.arrays(), **{f"blend_{name}": array for name, array in {**own, **prior}.items()}}


@dataclass(frozen=True, eq=False)
class BlendIndex:
    """Items by embeddings and by weights; queries are ``BlendQueries``."""

    rows: EmbeddingIndex
    weights: WeightIndex

    def __len__(self) -> int:
        return len(self.rows)

    def restrict(self, items: Indices) -> BlendIndex:
        return BlendIndex(self.rows.restrict(items), self.weights.restrict(items))

    def search(self, queries: BlendQueries, hidden: Pairs, k: int, backend: Backend) -> tuple[Candidates, Floats]:
        """Return candidates and their exact scores, computed on the CPU by any ``backend``.

        Candidates are chosen by float32 scores with a bound on their error, as for embeddings. The sums of weights are
        float64 and added in the order of the items, so a pair's score has the same bits in any batch.
        """
        n, n_items = hidden.n_users, len(self)
        block = rows_at_once(n_items)
        scores = SCRATCH.array("scores", (min(block, n), padded(n_items)), np.float32)
        sums = SCRATCH.array("sums", (min(block, n), n_items), np.float64)
        narrow = np.empty(n_items, dtype=np.float32)
        candidates: list[Candidates] = []
        exact: list[Floats] = []
        for start in range(0, n, block):
            stop = min(start + block, n)
            part, added = scores[: stop - start], sums[: stop - start]
            self.rows.scores(queries.rows[start:stop], part)
            for row, query in enumerate(range(start, stop)):
                np.multiply(self.weights.scores(queries.items[query]), queries.scale[query], out=added[row])
                narrow[...] = added[row]
                part[row, :n_items] += narrow
            hide(part, hidden, start, stop)
            above = candidates_above(part, groups(n_items), k, self._slack(queries, slice(start, stop)))
            candidates.append(Candidates(above.query + start, above.item))
            products = exact_scores(queries.rows[start:stop], self.rows.rows, above)
            exact.append(products + added[above.query, above.item])
        return Candidates(*(np.concatenate(column) for column in zip(*candidates, strict=True))), np.concatenate(exact)

    def _slack(self, queries: BlendQueries, part: slice) -> Floats:
        """Bound how far the float32 scores of some queries may lie from exact ones, (n,)."""
        rows = queries.rows[part]
        lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(1)) * self.rows.longest
        largest = queries.scale[part] * self._largest(queries.items.take(np.arange(part.start, part.stop)))
        return np.asarray(self.rows.slack(rows) + _ROUNDING * (lengths + largest))

    def _largest(self, items: Pairs) -> Floats:
        """Bound the absolute value of any sum of weights of each query's items, (n,)."""
        ends = np.concatenate([[0.0], np.cumsum(self.weights.weights.largest[items.indices])])
        return np.asarray(np.diff(ends[items.indptr]))


class BlendSimilarity:
    """``cos(e_j, e_i) + W[j, i] / ℓ``: what having item j alone adds, in units of a cosine.

    ℓ is the product of the mean lengths of the users' and the items' rows, by which an inner product exceeds a cosine.
    """

    def __init__(self, rows: Rows, weights: SparseWeights, length: float) -> None:
        self.index = BlendIndex(EmbeddingIndex(unit_rows(rows)), WeightIndex(weights))
        self.scale = 1.0 / max(length, 1e-12)

    def nearest(self, idx: Indices, k: int) -> tuple[TopK, int]:
        itself = hide_itself(idx, len(self.index))
        queries = BlendQueries(self.index.rows.rows[idx], itself, np.full(len(idx), self.scale))
        return top_k(self.index, queries, itself, k), fewest_left(itself)

    def among(self, candidates: Indices) -> Among:
        cosines = cosines_among(self.index.rows.rows, candidates)
        weights = weights_among(self.index.weights.weights, candidates)
        return lambda place: cosines(place) + self.scale * weights(place)
