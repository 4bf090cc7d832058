"""Ranking under rules against plain loops over a full sort of float64 scores, for every kind of ranking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.ranking import topk
from dgcf.ranking.rankings import ItemWeights, Ranking
from dgcf.ranking.similarity import unit_rows
from dgcf.ranking.topk import Backend, NumpyBackend, TopK
from dgcf.ranking.torch_backend import TorchBackend
from dgcf.ranking.weights import DenseWeights
from dgcf.recommend import rerank
from dgcf.recommend.rerank import ItemRules, Limit, Ranker
from tests.ranking.test_backends import KINDS, N_ITEMS, N_USERS
from tests.ranking.test_blend import Case, cases, pairs_of, sparse

Floats = NDArray[np.float64]
BACKENDS: list[Backend] = [NumpyBackend(), TorchBackend()]


def kinds_of(case: Case) -> dict[str, tuple[Ranking, Floats, Floats]]:
    """Every kind of ranking, and all its products and sums of weights in float64, (n_users, n_items)."""
    products = case.users.astype(np.float64) @ case.items.astype(np.float64).T
    sums = case.having.astype(np.float64) @ case.W.astype(np.float64)
    return {
        "embeddings": (case.ranking.base, products, 0 * sums),
        "dense weights": (ItemWeights(case.pairs, DenseWeights(case.W)), 0 * products, sums),
        "sparse weights": (ItemWeights(case.pairs, sparse(case.W)), 0 * products, sums),
        "composed": (case.ranking, products + (0.0 if case.prior is None else case.prior), case.sums),
    }


def similarities(kind: str, case: Case) -> Floats:
    """The similarity of item j to item i at [j, i]."""
    W = case.W.astype(np.float64)
    if "weights" in kind:
        return W
    rows = unit_rows(case.items).astype(np.float64)
    cosines = np.array([[(a * b).sum() for b in rows] for a in rows])
    if kind == "embeddings":
        return cosines
    lengths = [float(np.linalg.norm(side, axis=1).mean(dtype=np.float64)) for side in (case.users, case.items)]
    return np.asarray(cosines + 1.0 / max(lengths[0] * lengths[1], 1e-12) * W)


# -- the oracle -----------------------------------------------------------------------------------------------------


def boosts(scores: Floats, hidden: NDArray[np.bool_], boost: NDArray[np.float32], unit_rank: int) -> Floats:
    """The boosts of one user, in units of the difference between the best and the ``unit_rank``-th best score."""
    best = sorted(scores[~hidden], reverse=True)[:unit_rank]
    spread = best[0] - best[-1] if len(best) else 0.0
    return np.asarray(float(np.float32(spread if spread > 0 else 1.0)) * boost.astype(np.float64))


def walk(scores: Floats, left: NDArray[np.bool_], limits: tuple[Limit, ...], k: int) -> list[int]:
    """Take the items in the order of their scores; pass over those of full groups."""
    chosen: list[int] = []
    for item in sorted(np.flatnonzero(left).tolist(), key=lambda item: (-scores[item], item)):
        groups = [[limit.group[other] for other in chosen].count(limit.group[item]) for limit in limits]
        full = [limit.group[item] >= 0 and count >= limit.n for limit, count in zip(limits, groups, strict=True)]
        if not any(full) and len(chosen) < k:
            chosen.append(item)
    return chosen


def marginal(ranked: list[int], scores: Floats, similar: Floats, weight: float, k: int) -> list[int]:
    """Choose by maximal marginal relevance, one item after the other."""
    if not ranked:
        return []
    worst, spread = scores[ranked].min(), scores[ranked].max() - scores[ranked].min()
    relevance = {item: (scores[item] - worst) / spread if spread > 0 else 0.0 for item in ranked}
    chosen: list[int] = []
    while len(chosen) < min(k, len(ranked)):

        def value(item: int) -> float:
            closest = max((similar[other, item] for other in chosen), default=0.0)
            return float((1 - weight) * relevance[item] - weight * closest)

        rest = [item for item in ranked if item not in chosen]
        chosen.append(max(rest, key=value))  # the first of equal ones
    return chosen


def expected(
    rules: ItemRules, products: Floats, sums: Floats, hidden: NDArray[np.bool_], similar: Floats, k: int, unit: int
) -> TopK:
    width = min(k, int(rules.allowed.sum()))
    best = TopK(np.full((len(hidden), width), -1), np.full((len(hidden), width), -np.inf))
    for row, out in enumerate(hidden):
        final = products[row] + sums[row]
        if rules.boost is not None:
            final = products[row] + boosts(final, out, rules.boost, unit) + sums[row]
        chosen = walk(final, rules.allowed & ~out, rules.limits, max(k, rules.mmr_candidates) if rules.mmr else k)
        if rules.mmr:
            chosen = marginal(chosen, final, similar, rules.mmr, k)
        best.item_idx[row, : len(chosen)], best.scores[row, : len(chosen)] = chosen, final[chosen]
    return best


# -- properties -----------------------------------------------------------------------------------------------------


@st.composite
def rules(draw: st.DrawFn) -> Callable[[int, np.random.Generator], ItemRules]:
    """Any combination of rules, to be made for a number of items."""
    share, sizes = draw(st.sampled_from([0.4, 1.0])), draw(st.lists(st.integers(1, 5), max_size=2))
    most, boosts = draw(st.integers(1, 3)), draw(st.booleans())
    mmr = draw(st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0]))
    candidates = draw(st.integers(1, 9))

    def make(n_items: int, rng: np.random.Generator) -> ItemRules:
        limits = tuple(Limit(rng.integers(-1, size, n_items), most) for size in sizes)
        boost = (rng.integers(-3, 4, n_items) / 4).astype(np.float32) if boosts else None
        return ItemRules(rng.random(n_items) < share, limits, boost, mmr, candidates)

    return make


@pytest.mark.parametrize("kind", ["embeddings", "dense weights", "sparse weights", "composed"])
@given(cases(), rules(), st.integers(1, 16), st.sampled_from([1, 30, 2**22]), st.integers(2, 6))
def test_lists_equal_plain_loops(
    kind: str,
    drawn: tuple[Case, np.random.Generator],
    make: Callable[[int, np.random.Generator], ItemRules],
    k: int,
    at_once: int,
    unit: int,
) -> None:
    """Equal items and scores to the bit, many users or one at a time, any blocks, either backend; ties by index."""
    case, rng = drawn
    n_users, n_items = case.having.shape
    ranking, products, sums = kinds_of(case)[kind]
    given_rules, users = make(n_items, rng), rng.integers(n_users, size=rng.integers(1, 12))
    hidden: NDArray[np.bool_] = rng.random((len(users), n_items)) < float(rng.choice([0.0, 0.4, 1.0]))
    wanted = expected(given_rules, products[users], sums[users], hidden, similarities(kind, case), k, unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topk, "_BLOCK_SCORES", at_once)
        patch.setattr(rerank, "_CANDIDATES", at_once)
        patch.setattr(rerank, "UNIT_RANK", unit)
        ranker = Ranker(ranking.index(), given_rules, ranking.similarity("item"))
        lists = [ranker.top_k(ranking.queries(users), pairs_of(hidden), k, backend) for backend in BACKENDS]
        singles = [
            ranker.top_k(ranking.queries(users[row : row + 1]), pairs_of(hidden[row : row + 1]), k)
            for row in range(len(users))
        ]
    for best in (*lists, topk.joined(singles)):
        np.testing.assert_array_equal(best.item_idx, wanted.item_idx)
        np.testing.assert_array_equal(best.scores, wanted.scores)


@pytest.mark.parametrize("backend", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_limits_in_a_long_ranking(kind: str, backend: Backend) -> None:
    """Few large groups fill up at once, so that the ranking is searched again and again."""
    rng = np.random.default_rng(2)
    ranking, users = KINDS[kind](rng), np.arange(N_USERS)
    hidden = pairs_of(rng.random((N_USERS, N_ITEMS)) < 0.1)
    group = np.where(rng.random(N_ITEMS) < 0.97, rng.integers(3, size=N_ITEMS), -1)
    limits = (Limit(group, 2), Limit(rng.integers(-1, 40, N_ITEMS), 1))
    given_rules = ItemRules(rng.random(N_ITEMS) < 0.9, limits)
    best = Ranker(ranking.index(), given_rules).top_k(ranking.queries(users), hidden, 20, backend)
    assert (best.item_idx[:, 6:] >= 0).any()
    for user in users.tolist():
        scores = ranking.pair_scores(np.full(N_ITEMS, user), np.arange(N_ITEMS))
        left = given_rules.allowed.copy()
        left[hidden[user]] = False
        wanted = walk(scores, left, limits, 20)
        assert best.item_idx[user].tolist() == wanted + [-1] * (20 - len(wanted))


def test_unit_of_equal_scores_is_one() -> None:
    ranking, rng = KINDS["embeddings"](np.random.default_rng(0)), np.random.default_rng(1)
    boost = rng.permutation(N_ITEMS).astype(np.float32)
    nobody: Any = np.zeros((1, 4), dtype=np.float32)
    ranker = Ranker(ranking.index(), ItemRules(np.ones(N_ITEMS, dtype=bool), boost=boost))
    best = ranker.top_k(nobody, Pairs.empty(1, N_ITEMS), 5)
    np.testing.assert_array_equal(best.item_idx[0], np.argsort(-boost)[:5])
    np.testing.assert_array_equal(best.scores[0], np.sort(boost)[::-1][:5])
