"""Item-kNN with users who have very many items: exact neighbours in bounded work."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError
from dgcf.models import itemknn


def with_heavy_users(n_items: int, heavy: int, users: int, per_user: int, seed: int = 0) -> Pairs:
    """Users with most of the items, and ordinary ones with a few."""
    rng = np.random.default_rng(seed)
    items = [rng.permutation(n_items)[: int(n_items * share)] for share in np.linspace(1.0, 0.6, heavy)]
    items += [rng.permutation(n_items)[:per_user] for _ in range(users)]
    user_idx = np.repeat(np.arange(len(items)), [len(own) for own in items])
    return Pairs.from_indices(user_idx, np.concatenate(items), len(items), n_items)


@pytest.mark.parametrize("heavy", [1, 3, 6])
@pytest.mark.parametrize(("k", "shrinkage"), [(3, 10.0), (40, 0.1), (40, 1e15), (500, 10.0)])
def test_neighbours_by_classes_equal_neighbours_by_pairs(
    heavy: int, k: int, shrinkage: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = with_heavy_users(300, heavy, users=40, per_user=6, seed=k)
    expected = list(itemknn.nearest(pairs, k, shrinkage))
    split = itemknn.split_hubs
    monkeypatch.setattr(itemknn, "split_hubs", lambda B, class_work: split(B, 0.0))
    assert split(pairs.to_scipy().T.tocsr(), 0.0).count >= heavy, "no hub is taken, so this tests nothing"
    for found, wanted in zip(itemknn.nearest(pairs, k, shrinkage), expected, strict=True):
        assert found[0] == wanted[0]
        assert np.array_equal(found[1], wanted[1])
        assert np.array_equal(found[2], wanted[2])


@pytest.mark.slow
def test_a_user_with_100_000_items_takes_seconds() -> None:
    began = time.perf_counter()
    pairs = with_heavy_users(100_000, 1, users=1000, per_user=30)
    assert sum(len(others) for _, others, _ in itemknn.nearest(pairs, 100, 10.0)) == 100 * 100_000
    assert time.perf_counter() - began < 60


def test_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.graph.crosshop.hubs.MOST_WORK", 1000)
    with pytest.raises(DataError, match=r"item-knn would take about .* have 300, 180, 6; remove these users"):
        next(itemknn.nearest(with_heavy_users(300, 2, users=40, per_user=6), 5, 10.0))
