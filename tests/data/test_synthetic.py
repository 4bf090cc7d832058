"""Generated datasets: fixed content and planted structure."""

from __future__ import annotations

import numpy as np
import pytest

from dgcf.data import load
from dgcf.data.synthetic import GENRES, checkerboard, planted
from dgcf.errors import ConfigError


def test_checkerboard_pattern() -> None:
    dataset = checkerboard(20, 12)
    whole = dataset.train.union(dataset.validation, dataset.test)
    dense = whole.to_scipy().toarray()
    np.testing.assert_array_equal(dense, (np.arange(20)[:, None] + np.arange(12)) % 2 == 0)
    # The same set for ever: a result on it is comparable between versions and machines.
    assert load("checkerboard").fingerprint.startswith("c46c497b")


def test_planted_structure_and_long_tail() -> None:
    dataset = planted()
    assert dataset.fingerprint == load("planted").fingerprint
    dense = dataset.train.union(dataset.validation, dataset.test).to_scipy().toarray()
    genre = np.array([int(raw[1:]) % len(GENRES) for raw in dataset.items.texts])
    by_genre = np.stack([dense[:, genre == g].sum(axis=1) for g in range(len(GENRES))], axis=1)
    share = by_genre.max(axis=1) / by_genre.sum(axis=1)
    assert np.median(share) > 2.5 / len(GENRES), "a user's favourite genre takes far more than its even share"
    degrees = np.sort(dense.sum(axis=1))
    assert degrees[-1] > 5 * np.median(degrees)
    titles = dataset.items.titles
    assert titles is not None
    assert len(set(titles)) == len(titles)
    assert all(f"({GENRES[g]})" in title for g, title in zip(genre, titles, strict=True))


def test_seeds_differ_and_sizes_are_validated() -> None:
    assert planted(50, 40, seed=1).fingerprint != planted(50, 40, seed=2).fingerprint
    with pytest.raises(ConfigError, match="at least 4"):
        planted(2, 10)
