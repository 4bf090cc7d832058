"""Statistics: popularity of the splits and warnings about their differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dgcf.data import load
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.statistics import statistics
from dgcf.data.vocabulary import Vocabulary
from tests.conftest import data_home

N_USERS, N_ITEMS = 300, 60
FALLING = np.arange(N_ITEMS, 0, -1, dtype=float)


def drawn(seed: int, per_user: int, chances: NDArray[np.floating[Any]]) -> Pairs:
    rng = np.random.default_rng(seed)
    items = [rng.choice(N_ITEMS, per_user, replace=False, p=chances / chances.sum()) for _ in range(N_USERS)]
    return Pairs.from_indices(np.repeat(np.arange(N_USERS), per_user), np.concatenate(items), N_USERS, N_ITEMS)


def of(train: Pairs, validation: Pairs, test: Pairs) -> Dataset:
    users, items = Vocabulary.from_ids("user", range(N_USERS)), Vocabulary.from_ids("item", range(N_ITEMS))
    return Dataset("parts", users, items, train, validation, test)


def test_popularity_counts_other_users() -> None:
    def pairs(*given: tuple[int, int]) -> Pairs:
        users, items = np.array(given).T if given else np.zeros((2, 0), dtype=int)
        return Pairs.from_indices(users, items, N_USERS, N_ITEMS)

    # Item 0 has three users in training, item 1 one, item 2 none.
    train = pairs((0, 0), (1, 0), (2, 0), (0, 1))
    stats = statistics(of(train, pairs((3, 0), (4, 1)), pairs((3, 2))))
    assert stats.popularity == {"train": (2 + 2 + 2 + 0) / 4, "validation": (3 + 1) / 2, "test": 0.0}
    assert statistics(of(train, pairs(), pairs())).popularity == {"train": 1.5, "validation": None, "test": None}


@pytest.mark.parametrize(("chances", "words"), [(FALLING**2, "more popular"), (FALLING[::-1], "less popular")])
def test_differently_drawn_test_split_is_warned_of(chances: NDArray[np.float64], words: str) -> None:
    train, validation = drawn(0, 20, FALLING), drawn(1, 5, FALLING)
    assert any(words in warning for warning in statistics(of(train, validation, drawn(2, 5, chances))).warnings)
    alike = statistics(of(train, validation, drawn(3, 5, FALLING))).warnings
    assert not any("popular" in warning for warning in alike)


def items_by_user(name: str, part: str) -> dict[str, list[str]]:
    """The lists of a published file, in its order."""
    lines = (data_home() / name / f"{part}.txt").read_text().splitlines()
    return {user: items for user, *items in map(str.split, lines)}


@pytest.mark.data("deoscirec/gowalla")
@pytest.mark.data("lightgcn/gowalla")
def test_gowalla_splits_cut_one_ordered_list() -> None:
    parts = [items_by_user("deoscirec/gowalla", part) for part in ("train", "validation", "test")]
    for user, end in items_by_user("lightgcn/gowalla", "test").items():
        cut = [part[user] for part in parts]
        whole = [item for part in cut for item in part]
        assert whole[-len(end) :] == end
        assert [len(cut[0]), len(cut[0]) + len(cut[1])] == [round(0.7 * len(whole)), round(0.8 * len(whole))]


@pytest.mark.data("deoscirec/gowalla")
def test_popularity_grows_along_gowalla_lists() -> None:
    stats = statistics(load("deoscirec/gowalla"))
    assert [round(stats.popularity[part] or 0, 1) for part in ("train", "validation", "test")] == [64.3, 71.5, 78.4]
    assert any("10% more popular" in warning for warning in stats.warnings)


@pytest.mark.data("lightgcn/gowalla")
def test_test_split_is_compared_with_train_without_validation() -> None:
    (warning,) = (text for text in statistics(load("lightgcn/gowalla")).warnings if "popular" in text)
    assert "23% more popular in training than those of training pairs" in warning


@pytest.mark.data("deoscirec/ml-1m")
def test_random_splits_have_equal_popularity() -> None:
    assert not any("popular" in warning for warning in statistics(load("deoscirec/ml-1m")).warnings)
