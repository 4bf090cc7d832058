"""The benchmark of recommendations for new users: its tastes, its measures, and the fold-in that it measures."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.foldin import folded_lists, trained_lists, without
from benchmarks.tastes import TASTES, mean_of, mean_overlap, n_distinct
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import load
from dgcf.data.synthetic import planted
from dgcf.recommend import Recommender
from dgcf.recommend.lookup import Names


def test_overlap_of_lists() -> None:
    lists = ["abcd", "cdef", "ghij"]
    assert mean_overlap(lists) == pytest.approx((0.5 + 0 + 0) / 3)
    assert n_distinct(lists) == 10
    assert mean_overlap(["abc", "cab"]) == 1


@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 2**16))
def test_overlap_counts_common_members_of_each_pair(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(8)[:k].tolist() for _ in range(n)]
    shares = [
        sum(item in lists[b] for item in lists[a]) / k for a in range(n) for b in range(n) if a < b
    ]  # members are distinct within a list
    assert mean_overlap(lists) == pytest.approx(sum(shares) / len(shares))


def test_ratio_is_of_the_means() -> None:
    draws = [
        {"recall@20": {"fold-in": 0.1, "trained with them": 0.2}},
        {"recall@20": {"fold-in": 0.5, "trained with them": 0.4}},
    ]
    result = mean_of(draws)["recall@20"]
    assert result["fold-in"] == pytest.approx(0.3)
    assert result["trained with them"] == pytest.approx(0.3)
    assert result["fold-in / trained"] == pytest.approx(1)
    assert result["of draws"] == pytest.approx([0.5, 1.25])


def test_there_are_twenty_tastes_of_a_few_titles() -> None:
    assert len(TASTES) == 20
    assert {len(titles) for titles in TASTES.values()} <= {4, 5, 6}


@pytest.mark.data("movielens/ml-100k")
def test_every_title_is_another_film_with_training_users() -> None:
    dataset = load("ml-100k")
    names = Names(dataset.items)
    items = names.find_all([title for titles in TASTES.values() for title in titles])
    assert len(set(items)) == len(items)  # in two tastes, a film would be hidden from both lists
    assert dataset.train.item_degrees[items].min() >= 10


@pytest.mark.parametrize("model", ["ease", "item-knn", "popularity"])
def test_fold_in_of_users_of_the_training_is_exact_without_a_graph(model: str) -> None:
    dataset = planted()
    rec = Recommender(model, device="cpu").fit(dataset)
    users = np.flatnonzero(dataset.train.user_degrees)[:30]
    items = dataset.train.take(users)
    lists, _ = folded_lists(rec, items)
    np.testing.assert_array_equal(lists, trained_lists(rec, users, items))
    for row, user in zip(lists, users.tolist(), strict=True):
        assert not np.isin(row, dataset.train[user]).any()


def test_training_without_users_leaves_all_others() -> None:
    dataset = planted()
    held_out = np.array([0, 5, 17])
    rest = without(dataset, held_out)
    for split in ("train", "validation", "test"):
        pairs, left = dataset.split(split), rest.split(split)
        assert left.user_degrees[held_out].sum() == 0
        assert len(left) == len(pairs) - pairs.user_degrees[held_out].sum()
