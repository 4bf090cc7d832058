"""The map from a new user's items to the user's row of layer 0, against dense float64 formulas and planted maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Pairs
from dgcf.ranking import layer0_map as module
from dgcf.ranking.layer0_map import Layer0Map, layer0_map
from tests.recommend.conftest import dense_layer0_map, random_pairs


def random_rows(n: int, dim: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


@given(st.integers(0, 1000), st.sampled_from([1, 3, 7, 1000]))
def test_map_equals_the_dense_formula_in_blocks_of_any_size(seed: int, at_once: int) -> None:
    train = random_pairs(12, 9, 0.6, seed)
    users, items = random_rows(12, 4, seed), random_rows(9, 4, seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_USERS_AT_ONCE", at_once)
        blocks = layer0_map(users, items, train).blocks
    np.testing.assert_allclose(blocks, dense_layer0_map(users, items, train), rtol=1e-6, atol=1e-9)


@given(st.integers(0, 1000))
def test_row_is_linear_in_the_items_and_its_parts_sum_to_the_inner_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fitted = Layer0Map(rng.normal(size=(3, 5, 5)))
    n = int(rng.integers(1, 9))
    items, degree, target = random_rows(n, 5, seed), rng.integers(1, 30, n), rng.normal(size=5)
    row, parts = fitted.row(items, degree), fitted.parts(items, degree, target)
    alone = [fitted.row(items[j : j + 1], degree[j : j + 1]) for j in range(n)]
    np.testing.assert_allclose(row, np.mean(alone, axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts, [one @ target / n for one in alone], rtol=1e-9, atol=1e-12)
    assert parts.sum() == pytest.approx(row @ target, rel=1e-9, abs=1e-9)


def test_planted_map_of_held_out_users_is_recovered() -> None:
    """Users whose rows are such a map of their items, up to noise: users who were not fitted are predicted."""
    rng = np.random.default_rng(0)
    pairs = random_pairs(600, 40, 0.5, 0)
    items = random_rows(40, 3, 1)
    degree = np.maximum(pairs.item_degrees, 1)
    planted = Layer0Map(rng.normal(size=(3, 3, 3)) * np.array([1.0, 10.0, 100.0])[:, None, None])
    known = np.flatnonzero(pairs.user_degrees)
    users = np.zeros((600, 3), dtype=np.float32)
    for user in known.tolist():
        users[user] = planted.row(items[pairs[user]], degree[pairs[user]]) + 0.01 * rng.normal(size=3)
    fitted_users, others = known[:400], known[400:]
    fitted = layer0_map(users[fitted_users], items, pairs.take(fitted_users))
    own_degree = np.maximum(pairs.take(fitted_users).item_degrees, 1)
    predicted = np.array([fitted.row(items[pairs[user]], own_degree[pairs[user]]) for user in others.tolist()])
    left = ((users[others] - predicted) ** 2).sum() / (users[others] ** 2).sum()
    scaled = ((users[others] - users[fitted_users].mean(0)) ** 2).sum() / (users[others] ** 2).sum()
    assert left < 0.02 < 0.2 < scaled


def test_users_and_items_without_a_pair_change_nothing_but_the_lengths_of_blocks() -> None:
    train, users, items = random_pairs(10, 8, 0.7, 3), random_rows(10, 4, 0), random_rows(8, 4, 1)
    more = Pairs(np.append(train.indptr, [train.indptr[-1]] * 2), train.indices, 11)
    blocks = layer0_map(users, items, train).blocks
    lonely = layer0_map(np.concatenate([users, 1e6 + random_rows(2, 4, 2)]), items, more).blocks
    np.testing.assert_allclose(lonely, blocks, rtol=1e-9, atol=1e-12)


def test_rows_of_zeros_give_zeros() -> None:
    train = random_pairs(10, 8, 0.7, 3)
    fitted = layer0_map(random_rows(10, 4, 0), np.zeros((8, 4), dtype=np.float32), train)
    assert not fitted.row(random_rows(2, 4, 1), np.array([1, 2])).any()
    one = layer0_map(np.zeros((10, 4), dtype=np.float32), random_rows(8, 4, 0), train)
    np.testing.assert_array_equal(one.blocks, 0)


def test_same_input_gives_the_same_bits() -> None:
    train, users, items = random_pairs(40, 30, 0.5, 3), random_rows(40, 16, 0), random_rows(30, 16, 1)
    assert layer0_map(users, items, train).blocks.tobytes() == layer0_map(users, items, train).blocks.tobytes()
