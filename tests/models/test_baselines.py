"""Solved models against dense implementations of their definitions."""

from __future__ import annotations

import builtins
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.models import CATALOG, Embeddings, ItemWeights, SolvedModel, entry, itemknn
from dgcf.models.ease import EASE, EASEConfig, gram_matrix
from dgcf.models.ials import IALS, IALSConfig
from dgcf.models.itemknn import ItemKNN, ItemKNNConfig, largest
from dgcf.models.popularity import Popularity, PopularityConfig
from dgcf.models.random_order import RandomOrder, RandomOrderConfig
from dgcf.random import uniform

SOLVED = [name for name in CATALOG if entry(name).solved]


def random_pairs(seed: int, n_users: int = 30, n_items: int = 12, density: float = 0.3) -> Pairs:
    """A random graph; its last item has no user, and its last user no item."""
    met = uniform(seed, "test/pairs", n_users * n_items).reshape(n_users, n_items) < density
    met[-1], met[:, -1], met[0, 0] = False, False, True
    return Pairs.from_indices(*np.nonzero(met), n_users, n_items)


def solved(name: str, pairs: Pairs, seed: int = 0, **given: Any) -> SolvedModel:
    config = type(entry(name).config)(**given)
    model = entry(name).build(pairs.n_users, pairs.n_items, config)
    assert isinstance(model, SolvedModel)
    model.solve(pairs, seed)
    return model


def all_scores(model: SolvedModel, pairs: Pairs) -> NDArray[np.float64]:
    return np.asarray(model.ranking(pairs).scores(torch.arange(pairs.n_users)), dtype=np.float64)


def dense(pairs: Pairs) -> NDArray[np.float64]:
    return np.asarray(pairs.to_scipy().todense(), dtype=np.float64)


@pytest.mark.parametrize("name", SOLVED)
class TestContract:
    def test_every_user_and_item_has_a_score(self, name: str) -> None:
        pairs = random_pairs(0)
        scores = all_scores(solved(name, pairs), pairs)
        assert scores.shape == (30, 12)
        assert np.isfinite(scores).all()

    def test_the_same_seed_gives_the_same_bits(self, name: str) -> None:
        pairs = random_pairs(1, 60, 40)
        states = [solved(name, pairs, seed).state_dict() for seed in (5, 5, 6)]
        assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
        other = [torch.equal(states[0][key], states[2][key]) for key in states[0]]
        assert not any(other) if entry(name).seeded else all(other)

    def test_state_dict_restores_the_model(self, name: str) -> None:
        pairs = random_pairs(2)
        model = solved(name, pairs)
        again = entry(name).build(30, 12, entry(name).config)
        again.load_state_dict(model.state_dict())
        np.testing.assert_array_equal(all_scores(again, pairs), all_scores(model, pairs))

    def test_solving_again_replaces_the_state(self, name: str) -> None:
        first, second = random_pairs(3), random_pairs(4, density=0.1)
        model = solved(name, first)
        model.solve(second, 0)
        np.testing.assert_array_equal(all_scores(model, second), all_scores(solved(name, second), second))


def test_scores_of_a_user_do_not_depend_on_the_batch() -> None:
    pairs = random_pairs(5, 80, 33)
    for name in ("ease", "item-knn"):
        found = solved(name, pairs).ranking(pairs)
        assert isinstance(found, ItemWeights)
        whole = found.scores(torch.arange(80))
        for user in (0, 17, 79):
            assert np.array_equal(found.scores(torch.tensor([user]))[0], whole[user])
        assert np.array_equal(found.scores(torch.tensor([17, 3, 17])), whole[[17, 3, 17]])


# -- popularity and chance ------------------------------------------------------------------------------------------


def test_popularity_is_the_number_of_users() -> None:
    pairs = random_pairs(6)
    scores = all_scores(solved("popularity", pairs), pairs)
    np.testing.assert_array_equal(scores, np.tile(dense(pairs).sum(0), (30, 1)))
    assert isinstance(Popularity(2, 3, PopularityConfig()).ranking(pairs), Embeddings)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.2, 3.0]))
def test_recent_popularity_halves_with_the_share_of_later_pairs(seed: int, halflife: float) -> None:
    """By plain loops, in any unit of time; pairs of the same time have the same age."""
    pairs = random_pairs(seed)
    times = np.random.default_rng(seed).integers(0, 25, len(pairs)).astype(np.float64)
    expected = np.zeros(pairs.n_items)
    for item, time in zip(pairs.indices, times, strict=True):
        later = sum(other > time for other in times) / len(pairs)
        expected[item] += 0.5 ** (later / halflife)
    for unit in (1.0, 1e9):
        model = Popularity(30, pairs.n_items, PopularityConfig(halflife=halflife))
        model.solve(replace(pairs, time=times * unit), 0)
        np.testing.assert_allclose(model.items[:, 0], expected, rtol=1e-6)


def test_recent_popularity_needs_times() -> None:
    with pytest.raises(
        ConfigError, match="halflife of popularity needs the time of every pair, which this data does not"
    ):
        Popularity(30, 20, PopularityConfig(halflife=0.1)).solve(random_pairs(6), 0)


def test_random_orders_are_uniform_and_differ_between_users() -> None:
    """Of 4 items there are 24 orders; 24,000 users over many seeds see each about equally often."""
    pairs = Pairs.empty(600, 4)
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for seed in range(40):
        model = RandomOrder(600, 4, RandomOrderConfig(dim=8))
        model.solve(pairs, seed)
        orders = np.argsort(-all_scores(model, pairs), axis=1)
        assert len({tuple(order) for order in orders.tolist()}) > 10
        for order in orders.tolist():
            counts[tuple(order)] += 1
    expected = 24_000 / 24
    # Users of one seed share the items' rows, so counts spread wider than independent ones would: by a factor, no more.
    assert max(abs(count - expected) for count in counts.values()) < 0.35 * expected


# -- EASE -----------------------------------------------------------------------------------------------------------


def regression_without_itself(X: NDArray[np.float64], l2: float) -> NDArray[np.float64]:
    """Column by column: ridge regression of each item on all the others, which is what diag(B) = 0 means."""
    n_items = X.shape[1]
    B = np.zeros((n_items, n_items))
    for item in range(n_items):
        others = np.delete(np.arange(n_items), item)
        A = X[:, others]
        B[others, item] = np.linalg.solve(A.T @ A + l2 * np.eye(n_items - 1), A.T @ X[:, item])
    return B


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 3.0, 200.0]))
def test_ease_is_the_regression_with_a_zero_diagonal(seed: int, l2: float) -> None:
    pairs = random_pairs(seed)
    weights = solved("ease", pairs, l2=l2).get_buffer("weights").numpy()
    assert not weights.diagonal().any()
    np.testing.assert_allclose(weights, regression_without_itself(dense(pairs), l2), rtol=1e-5, atol=1e-7)


def test_ease_scores_are_the_users_items_times_the_weights() -> None:
    pairs = random_pairs(7)
    expected = dense(pairs) @ regression_without_itself(dense(pairs), 4.0)
    np.testing.assert_allclose(all_scores(solved("ease", pairs, l2=4.0), pairs), expected, rtol=1e-5, atol=1e-6)


def test_gram_matrix_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs(8, 40, 25)
    monkeypatch.setattr("dgcf.models.ease._BLOCK", 60)
    np.testing.assert_array_equal(gram_matrix(pairs), dense(pairs).T @ dense(pairs))
    np.testing.assert_allclose(
        solved("ease", pairs, l2=2.0).get_buffer("weights").numpy(),
        regression_without_itself(dense(pairs), 2.0),
        rtol=1e-5,
        atol=1e-7,
    )


def test_ease_refuses_two_million_items_before_allocating() -> None:
    with pytest.raises(ConfigError, match=r"model ease needs about 48,000.0 GB .* 2,000,000 items .* train item-knn"):
        EASEConfig().require_memory("ease", 10, 2_000_000, 20)


def test_l2_that_leaves_the_matrix_singular_is_refused() -> None:
    twins = Pairs.from_indices(np.array([0, 0]), np.array([0, 1]), 1, 2)
    with pytest.raises(ConfigError, match=r"l2 is 1e-300, so small that .* raise it with --set l2"):
        solved("ease", twins, l2=1e-300)
    with pytest.raises(ConfigError, match="l2 is 0"):
        EASEConfig(l2=0)


# -- item-kNN -------------------------------------------------------------------------------------------------------


def nearest_by_brute_force(X: NDArray[np.float64], k: int, shrinkage: float) -> NDArray[np.float64]:
    """W[j, i] by plain loops: the cosine of i and j where j is one of i's k nearest."""
    n_items = X.shape[1]
    W = np.zeros((n_items, n_items))
    for item in range(n_items):
        near = {}
        for other in range(n_items):
            shared = X[:, item] @ X[:, other]
            if other != item and shared:
                near[other] = shared / (np.sqrt(X[:, item].sum() * X[:, other].sum()) + shrinkage)
        for other in sorted(near, key=lambda other: (-near[other], other))[:k]:
            W[other, item] = near[other]
    return W


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 14), st.sampled_from([0.0, 1.5, 50.0]), st.sampled_from([3, 10**9]))
def test_item_knn_equals_brute_force(seed: int, k: int, shrinkage: float, work: int) -> None:
    """Whatever the blocks; few users and so many ties, which go to the smaller index."""
    pairs = random_pairs(seed, n_users=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(itemknn, "_BLOCK_WORK", work)
        model = solved("item-knn", pairs, neighbours=k, shrinkage=shrinkage)
    W = nearest_by_brute_force(dense(pairs), k, shrinkage)
    np.testing.assert_allclose(all_scores(model, pairs), dense(pairs) @ W, rtol=1e-6, atol=1e-7)
    found = model.ranking(pairs)
    assert isinstance(found, ItemWeights)
    kept = np.stack([found.weights.sum_rows(np.array([item])) for item in range(12)])
    np.testing.assert_array_equal(kept > 0, W > 0)


def test_largest_prefers_the_first_of_equal_values() -> None:
    assert largest(np.array([1.0, 3.0, 1.0, 2.0, 1.0]), 3).tolist() == [0, 1, 3]
    assert largest(np.array([1.0, 2.0]), 5).tolist() == [0, 1]


def test_item_knn_memory_is_linear_in_items() -> None:
    """50,000 items: an item-by-item matrix would be 10 GB."""
    pairs = Pairs.from_indices(np.arange(3000) % 50, np.arange(3000) * 16, 50, 50_000)
    model = ItemKNN(50, 50_000, ItemKNNConfig(neighbours=5))
    model.solve(pairs, 0)
    assert sum(buffer.numel() for buffer in model.buffers()) == 2 * 5 * 50_000
    assert int((model.likeness > 0).sum()) == 5 * 3000


# -- iALS -----------------------------------------------------------------------------------------------------------


def weighted_loss(model: IALS, pairs: Pairs) -> float:
    X, config = dense(pairs), model.config
    users, items = model.users.double().numpy(), model.items.double().numpy()
    confidence = np.where(X > 0, config.alpha, 1.0)
    error = (confidence * (X - users @ items.T) ** 2).sum()
    return float(error + config.regularization * ((users**2).sum() + (items**2).sum()))


def test_ials_users_solve_their_normal_equations() -> None:
    pairs = random_pairs(9, 40, 20)
    model = solved("ials", pairs, factors=6, regularization=0.7, alpha=8.0)
    assert isinstance(model, IALS)
    X, Y = dense(pairs), model.items.double().numpy()
    for user in range(40):
        C = np.diag(np.where(X[user] > 0, 8.0, 1.0))
        expected = np.linalg.solve(Y.T @ C @ Y + 0.7 * np.eye(6), Y.T @ C @ X[user])
        np.testing.assert_allclose(model.users[user].numpy(), expected, rtol=1e-3, atol=1e-5)


def test_more_ials_iterations_lower_the_loss() -> None:
    pairs = random_pairs(10, 40, 20)
    losses = []
    for iterations in (1, 5, 100):
        model = solved("ials", pairs, factors=4, regularization=1.0, alpha=5.0, iterations=iterations)
        assert isinstance(model, IALS)
        losses.append(weighted_loss(model, pairs))
    assert losses[0] > losses[1] > losses[2]


def test_missing_implicit_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == "implicit":
            raise ImportError(name)
        return found(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"needs the package implicit; install it with: pip install 'dgcf\[ials\]'"):
        IALS(3, 4, IALSConfig()).solve(Pairs.empty(3, 4), 0)


def test_ease_ranking_shares_its_weights() -> None:
    pairs = random_pairs(11)
    model = solved("ease", pairs)
    assert isinstance(model, EASE)
    found = model.ranking(pairs)
    assert np.shares_memory(found.weights.arrays()["values"], model.weights.numpy())
