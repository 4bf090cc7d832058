"""Each metric against plain loops, an outside library, and stored reference values."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.metrics import METRICS, coverage, hit_matrix, parse_metric, popularity

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "metrics.json").read_text())


def naive(items, relevant, k):
    """All six metrics of one list, rank by rank."""
    n_hits, gain, precisions, first = 0, 0.0, 0.0, None
    for rank, item in enumerate(items[:k], start=1):
        if item in relevant:
            n_hits += 1
            gain += 1 / log2(rank + 1)
            precisions += n_hits / rank
            first = first or rank
    reachable = min(k, len(relevant))
    return {
        "recall": n_hits / len(relevant),
        "precision": n_hits / k,
        "hit": float(n_hits > 0),
        "mrr": 1 / first if first else 0.0,
        "ndcg": gain / sum(1 / log2(rank + 1) for rank in range(1, reachable + 1)),
        "map": precisions / reachable,
    }


@st.composite
def rankings(draw):
    """Lists of distinct items, some short (−1 at the end), and relevant sets of every size from 1 on."""
    seed, n_items = draw(st.integers(0, 2**32)), draw(st.integers(1, 60))
    n_users, longest = draw(st.integers(1, 8)), draw(st.integers(1, 70))
    rng = np.random.default_rng(seed)
    lists = np.full((n_users, longest), -1)
    relevant = []
    for user in range(n_users):
        length = rng.integers(0, min(longest, n_items) + 1)
        lists[user, :length] = rng.permutation(n_items)[:length]
        relevant.append(np.sort(rng.permutation(n_items)[: rng.integers(1, n_items + 1)]))
    return lists, relevant, n_items, draw(st.integers(1, longest))


def as_pairs(relevant, n_items):
    users = np.repeat(np.arange(len(relevant)), [len(items) for items in relevant])
    return Pairs.from_indices(users, np.concatenate([*relevant, []]).astype(int), len(relevant), n_items)


@settings(max_examples=200, deadline=None)
@given(rankings())
def test_metrics_equal_plain_loops(case):
    lists, relevant, n_items, k = case
    pairs = as_pairs(relevant, n_items)
    hits = hit_matrix(lists, np.arange(len(lists)), pairs)
    for user, items in enumerate(lists):
        wanted = naive(items.tolist(), set(relevant[user].tolist()), k)
        for name, metric in METRICS.items():
            assert metric(hits, pairs.user_degrees, k).dtype == np.float64
            assert metric(hits, pairs.user_degrees, k)[user] == pytest.approx(wanted[name], abs=1e-12), name


def test_metrics_agree_with_trec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(3)
    n_users, n_items, ks = 60, 120, (1, 5, 10, 20)
    relevant = [np.sort(rng.permutation(n_items)[: rng.integers(1, 50)]) for _ in range(n_users)]
    scores = rng.permuted(np.tile(np.arange(n_items, dtype=float), (n_users, 1)), axis=1)  # no ties
    lists = np.argsort(-scores, axis=1)
    pairs = as_pairs(relevant, n_items)
    hits = hit_matrix(lists, np.arange(n_users), pairs)
    qrel = {str(u): {str(i): 1 for i in items} for u, items in enumerate(relevant)}
    for k in ks:
        run = {str(u): {str(i): scores[u, i] for i in lists[u, :k]} for u in range(n_users)}
        theirs = {"recall": f"recall.{k}", "precision": f"P.{k}", "ndcg": f"ndcg_cut.{k}"}
        theirs |= {"hit": f"success.{k}", "mrr": "recip_rank", "map": f"map_cut.{k}"}
        by_user = pytrec_eval.RelevanceEvaluator(qrel, set(theirs.values())).evaluate(run)
        for name, measure in theirs.items():
            expected = np.array([by_user[str(u)][measure.replace(".", "_")] for u in range(n_users)])
            if name == "map":  # trec_eval divides by all relevant items, reachable or not
                expected = expected * pairs.user_degrees / np.minimum(pairs.user_degrees, k)
            np.testing.assert_allclose(METRICS[name](hits, pairs.user_degrees, k), expected, atol=1e-6)


@pytest.mark.parametrize("k", [int(k) for k in GOLDEN["metrics"]])
def test_golden_values(k):
    scores = np.array(GOLDEN["scores"])
    pairs = as_pairs([np.array(items) for items in GOLDEN["relevant"]], scores.shape[1])
    for user, seen in enumerate(GOLDEN["seen"]):
        scores[user, seen] = -np.inf
    users = np.flatnonzero(pairs.user_degrees)
    hits = hit_matrix(np.argsort(-scores, axis=1)[users], users, pairs)
    reference = GOLDEN["metrics"][str(k)]
    assert [row["user"] for row in reference["per_user"]] == users.tolist()
    for name, metric in METRICS.items():
        value = metric(hits, pairs.user_degrees[users], k)
        np.testing.assert_allclose(value, [row[name] for row in reference["per_user"]], atol=1e-12)
        assert value.mean() == pytest.approx(reference["mean"][name], abs=1e-12)


def test_perfect_list_scores_one_and_empty_list_zero():
    relevant = np.array([3, 30])
    hits = np.zeros((2, 20), dtype=bool)
    hits[0, :3] = hits[1] = True
    for name in ("ndcg", "map", "hit", "mrr"):
        assert METRICS[name](hits, relevant, 20).tolist() == [1.0, 1.0], name
    for metric in METRICS.values():
        assert metric(np.zeros_like(hits), relevant, 20).tolist() == [0.0, 0.0]


def test_missing_item_is_never_a_hit():
    """−1 must not be read as the last item of the user before."""
    pairs = Pairs.from_indices(np.array([0, 1]), np.array([4, 0]), 2, 5)
    assert not hit_matrix(np.array([[-1], [-1]]), np.array([0, 1]), pairs).any()
    nothing = hit_matrix(np.array([[0, 1]]), np.array([0]), Pairs.empty(1, 5))
    assert nothing.dtype == bool
    assert not nothing.any()


def test_popularity_and_coverage_count_ranked_items_only():
    lists = np.array([[2, 0, -1], [2, -1, -1], [-1, -1, -1]])
    degrees = np.array([1, 100, 7, 3])
    assert popularity(lists, degrees, 3).tolist() == [4.0, 7.0, 0.0]
    assert popularity(lists, degrees, 1).tolist() == [7.0, 7.0, 0.0]
    assert coverage(lists, 4, 3) == 0.5
    assert coverage(lists, 4, 1) == 0.25


def test_undefined_metric_is_refused():
    hits = np.zeros((2, 5), dtype=bool)
    for metric in METRICS.values():
        with pytest.raises(ConfigError, match="5 items were ranked"):
            metric(hits, np.array([1, 1]), 6)
        for k in (0, -1):
            with pytest.raises(ConfigError, match=f"k is {k}.*give k from 1"):
                metric(hits, np.array([1, 1]), k)
        with pytest.raises(DataError, match="no relevant item"):
            metric(hits, np.array([1, 0]), 5)


def test_metric_names():
    for metric in (*METRICS, "popularity", "coverage"):
        assert parse_metric(f"{metric}@10") == (metric, 10)
        assert parse_metric(f"{metric}@1") == (metric, 1)
    with pytest.raises(ConfigError, match="did you mean 'recall'"):
        parse_metric("recal@20")
    for name in ("recall", "recall@", "recall@0", "recall@x", "recall@-1"):
        with pytest.raises(ConfigError, match="recall@20"):
            parse_metric(name)
