"""The ranking against a full sort in float64, and its promise: the same to the bit however it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs
from dgcf.ranking import topk
from dgcf.ranking.topk import EmbeddingIndex, NumpyBackend, TopK, top_k
from dgcf.ranking.torch_backend import TorchBackend
from tests.recommend.conftest import random_pairs


def sorted_in_full(rows: Any, queries: Any, hidden: Pairs, k: int) -> TopK:
    """Every score by itself, every item sorted: larger first, then smaller index."""
    item_idx, scores = np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf)
    for number, query in enumerate(queries.astype(np.float64)):
        exact = (rows.astype(np.float64) * query).sum(1)
        left = [item for item in range(len(rows)) if item not in set(hidden[number].tolist())]
        best = sorted(left, key=lambda item: (-exact[item], item))[:k]
        item_idx[number, : len(best)] = best
        scores[number, : len(best)] = exact[best]
    return TopK(item_idx, scores)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Any, Any, Pairs, int]:
    """Items, queries, hidden items and k; with exact ties (few whole numbers) or near ties (noise in the last bits)."""
    n_items, n_queries = draw(st.integers(1, 700)), draw(st.integers(1, 6))
    dim, k = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["whole", "near", "normal", "zero"]))
    rows, queries = rng.normal(size=(n_items, dim)), rng.normal(size=(n_queries, dim))
    if kind == "whole":
        rows, queries = np.round(rows), np.round(queries)
    elif kind == "near":
        rows = 1 + rng.integers(-3, 4, rows.shape) * 2.0**-23
    elif kind == "zero":
        queries[:] = 0
    hidden = random_pairs(n_queries, n_items, draw(st.sampled_from([0.0, 0.4, 1.0])), int(rng.integers(1000)))
    return rows.astype(np.float32), queries.astype(np.float32), hidden, k


@given(questions())
def test_ranking_equals_full_sort_of_exact_scores(question: tuple[Any, Any, Pairs, int]) -> None:
    rows, queries, hidden, k = question
    ranked = top_k(EmbeddingIndex(rows), queries, hidden, k)
    expected = sorted_in_full(rows, queries, hidden, min(k, len(rows)))  # no more columns than items
    np.testing.assert_array_equal(ranked.item_idx, expected.item_idx)
    np.testing.assert_array_equal(ranked.scores, expected.scores)


@given(questions())
def test_numpy_and_torch_give_the_same_ranking(question: tuple[Any, Any, Pairs, int]) -> None:
    rows, queries, hidden, k = question
    ours, theirs = (
        top_k(EmbeddingIndex(rows), queries, hidden, k, backend) for backend in (NumpyBackend(), TorchBackend())
    )
    np.testing.assert_array_equal(ours.item_idx, theirs.item_idx)
    np.testing.assert_array_equal(ours.scores, theirs.scores)


@pytest.mark.parametrize("block", [1, 5000, 2**22])
def test_batch_equals_single_calls_for_any_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, queries = (rng.normal(size=(n, 24)).astype(np.float32) for n in (3000, 7))
    hidden = random_pairs(7, 3000, 0.3, 0)
    whole = top_k(EmbeddingIndex(rows), queries, hidden, 20)
    monkeypatch.setattr(topk, "_BLOCK_SCORES", block)
    again = top_k(EmbeddingIndex(rows), queries, hidden, 20)
    np.testing.assert_array_equal(again.scores, whole.scores)
    for number in range(7):
        one = Pairs(np.array([0, len(hidden[number])]), hidden[number], 3000)
        single = top_k(EmbeddingIndex(rows), queries[number : number + 1], one, 20)
        np.testing.assert_array_equal(single.item_idx[0], whole.item_idx[number])
        np.testing.assert_array_equal(single.scores[0], whole.scores[number])


def test_candidates_are_few() -> None:
    """The threshold does its work: what is scored again is a few times k, not the catalogue."""
    rng = np.random.default_rng(1)
    rows, queries = (rng.normal(size=(n, 32)).astype(np.float32) for n in (20_000, 10))
    candidates = topk.NumpyBackend().candidates(EmbeddingIndex(rows), queries, Pairs.empty(10, 20_000), 20)
    assert 200 <= len(candidates.query) < 10 * 60


def test_no_query_and_no_item() -> None:
    none = np.zeros((0, 4), dtype=np.float32)
    assert top_k(EmbeddingIndex(np.ones((3, 4), np.float32)), none, Pairs.empty(0, 3), 2).item_idx.shape == (0, 2)
    assert (top_k(EmbeddingIndex(none), np.ones((1, 4), np.float32), Pairs.empty(1, 0), 2).item_idx == -1).all()
