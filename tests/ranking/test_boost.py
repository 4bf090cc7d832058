"""Joined queries and scores of all items, of each kind of index."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs
from dgcf.ranking.blend import BlendIndex, blend_queries
from dgcf.ranking.boost import join_queries, score_all, stacked, take_queries
from dgcf.ranking.topk import EmbeddingIndex, Subset, WeightIndex, top_k
from tests.ranking.test_weights import both

KINDS = ["embeddings", "dense weights", "sparse weights", "both"]


def pairs(rng: np.random.Generator, n: int, n_items: int) -> Pairs:
    rows, columns = np.nonzero(rng.random((n, n_items)) < 0.4)
    return Pairs.from_indices(rows, columns, n, n_items)


def case(kind: str, seed: int, n: int = 7, n_items: int = 9) -> tuple[Any, Any, Any]:
    """Return an index, n queries, and their scores (n, n_items) in float64."""
    rng = np.random.default_rng(seed)
    rows, users = (rng.normal(size=(size, 4)).astype(np.float32) for size in (n_items, n))
    W = np.where(rng.random((n_items, n_items)) < 0.5, rng.normal(size=(n_items, n_items)), 0).astype(np.float32)
    having = pairs(rng, n, n_items)
    dense = np.asarray(having.to_scipy().todense(), dtype=np.float64)
    products = users.astype(np.float64) @ rows.astype(np.float64).T
    sums = dense @ W.astype(np.float64)
    scale = 1 / np.sqrt(np.maximum(dense.sum(1), 1))
    weights = both(W)[kind != "dense weights"]
    match kind:
        case "embeddings":
            return EmbeddingIndex(rows), users, products
        case "both":
            queries = blend_queries(users, having)
            return BlendIndex(EmbeddingIndex(rows), WeightIndex(weights)), queries, products + scale[:, None] * sums
        case _:
            return WeightIndex(weights), having, sums


@given(st.sampled_from(KINDS), st.integers(0, 1000), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_joined_queries_are_ranked_as_the_parts_are(kind: str, seed: int, sizes: list[int]) -> None:
    index, queries, _ = case(kind, seed, sum(sizes))
    ends = np.cumsum([0, *sizes])
    parts = [take_queries(queries, np.arange(start, stop)) for start, stop in pairwise(ends.tolist())]
    hidden = Pairs.empty(sum(sizes), 9)
    together = top_k(index, join_queries(parts), hidden, 4)
    whole = top_k(index, queries, hidden, 4)
    np.testing.assert_array_equal(together.item_idx, whole.item_idx)
    np.testing.assert_array_equal(together.scores, whole.scores)


@given(st.sampled_from(KINDS), st.integers(0, 1000))
def test_scores_of_all_items_are_those_of_the_ranking(kind: str, seed: int) -> None:
    index, queries, expected = case(kind, seed)
    for number in range(len(expected)):
        query = take_queries(queries, np.array([number]))
        scores = score_all(index, query)
        assert scores.dtype == np.float64
        np.testing.assert_allclose(scores, expected[number], rtol=1e-12, atol=1e-12)
        best = top_k(index, query, Pairs.empty(1, 9), 9)
        np.testing.assert_array_equal(scores[best.item_idx[0]], best.scores[0])


def test_stacked_rows_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    parts = [pairs(rng, n, 5) for n in (3, 0, 1)]
    together = stacked(parts)
    expected = [part[row].tolist() for part in parts for row in range(part.n_users)]
    assert [together[row].tolist() for row in range(4)] == expected


def test_other_index_is_refused() -> None:
    index: Any = Subset(EmbeddingIndex(np.ones((2, 1), dtype=np.float32)), np.array([True, False]))
    with pytest.raises(TypeError, match="Subset"):
        score_all(index, None)
