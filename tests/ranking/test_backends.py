"""Both kinds of ranking with both backends against a full sort of float64 scores."""

from __future__ import annotations

import numpy as np
import pytest

from dgcf.data.pairs import Pairs
from dgcf.ranking.rankings import Embeddings, ItemWeights, Ranking
from dgcf.ranking.topk import Backend, NumpyBackend, Subset, top_k
from dgcf.ranking.torch_backend import TorchBackend, top_k_by_scores
from dgcf.ranking.weights import DenseWeights, SparseWeights
from tests.recommend.conftest import random_pairs

N_USERS, N_ITEMS, K = 12, 700, 15


def embeddings(rng: np.random.Generator) -> Ranking:
    users, items = (np.round(rng.normal(size=(n, 4)), 1).astype(np.float32) for n in (N_USERS, N_ITEMS))
    return Embeddings(users, items)


def weights(rng: np.random.Generator, *, sparse: bool) -> Ranking:
    W = np.where(rng.random((N_ITEMS, N_ITEMS)) < 0.05, np.round(rng.random((N_ITEMS, N_ITEMS)), 1), 0).astype("f4")
    train = random_pairs(N_USERS, N_ITEMS, 0.1, 3)
    if not sparse:
        return ItemWeights(train, DenseWeights(W))
    row, column = np.nonzero(W)
    indptr = np.searchsorted(row, np.arange(N_ITEMS + 1))
    return ItemWeights(train, SparseWeights(indptr, column.astype(np.int32), W[row, column], N_ITEMS))


KINDS = {
    "embeddings": embeddings,
    "dense weights": lambda rng: weights(rng, sparse=False),
    "sparse weights": lambda rng: weights(rng, sparse=True),
}


@pytest.mark.parametrize("backend", [NumpyBackend(), TorchBackend()], ids=["numpy", "torch"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_top_k_is_a_full_sort_of_exact_scores(kind: str, backend: Backend, share: float) -> None:
    rng = np.random.default_rng(0)
    ranking, users = KINDS[kind](rng), np.arange(N_USERS)
    hidden = random_pairs(N_USERS, N_ITEMS, 0.3, 5)
    allowed = rng.random(N_ITEMS) < share
    best = top_k(Subset(ranking.index(), allowed), ranking.queries(users), hidden, K, backend)
    for user in users:
        scores = ranking.pair_scores(np.full(N_ITEMS, user), np.arange(N_ITEMS))
        items = np.setdiff1d(np.flatnonzero(allowed), hidden[user])
        order = items[np.lexsort((items, -scores[items]))][:K]
        np.testing.assert_array_equal(best.item_idx[user], order)
        np.testing.assert_array_equal(best.scores[user], scores[order])


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_and_recommendation_rank_alike(kind: str) -> None:
    ranking, users = KINDS[kind](np.random.default_rng(1)), np.arange(N_USERS)
    hidden = Pairs.empty(N_USERS, N_ITEMS)
    exact = top_k(ranking.index(), ranking.queries(users), hidden, K)
    by_scores = top_k_by_scores(ranking, users, hidden, K)
    np.testing.assert_allclose(by_scores.scores.numpy(), exact.scores, rtol=1e-5, atol=1e-6)
