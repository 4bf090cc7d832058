"""Smoothness of embeddings, and amplitudes of recall by depth."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

from dgcf.experiments.reproduce.stats import amplitude
from dgcf.experiments.reproduce.stats.smoothness import one_side, smoothness


def naive_smoothness(R: np.ndarray, rows: np.ndarray) -> float:
    """Return the smoothness by its definition, pair by pair."""
    total = 0.0
    for u, v in product(range(len(R)), repeat=2):
        shared = np.flatnonzero(R[u] * R[v])
        c = sum(1.0 / R[:, i].sum() for i in shared) / np.sqrt(max(R[u].sum() * R[v].sum(), 1))
        total += c * np.square(rows[u] / np.linalg.norm(rows[u]) - rows[v] / np.linalg.norm(rows[v])).sum()
    return total


@pytest.mark.parametrize("work", [1, 40, 1 << 22])
def test_smoothness_equals_its_definition_for_any_block_size(monkeypatch: pytest.MonkeyPatch, work: int) -> None:
    monkeypatch.setattr("dgcf.experiments.reproduce.stats.smoothness.BLOCK_WORK", work)
    drawn = np.random.default_rng(3)
    R = (drawn.random((13, 9)) < 0.4).astype(float)
    R[4] = 0  # a user without a pair
    users, items = drawn.normal(size=(13, 5)), drawn.normal(size=(9, 5))
    sums = smoothness(csr_array(R), users, items)
    assert sums["users"] == pytest.approx(naive_smoothness(R, users))
    assert sums["items"] == pytest.approx(naive_smoothness(R.T, items))
    assert smoothness(csr_array(R), 7 * users, items / 3) == pytest.approx(sums)
    assert one_side(csr_array(R), np.ones((13, 2))) == pytest.approx(0, abs=1e-9)


def test_amplitude_of_alternating_recall_is_the_step() -> None:
    swing = np.tile([0.30, 0.34], (10, 3))
    steady = np.full((10, 6), 0.3)
    noise = np.random.default_rng(0).normal(0, 0.002, (10, 6))
    assert amplitude.amplitude(swing) == pytest.approx(0.04)
    assert amplitude.amplitude(steady) == 0
    low, high = amplitude.amplitude_interval(swing + noise)
    assert low < amplitude.amplitude(swing + noise) < high < low + 0.005
    assert amplitude.swap_test(swing + noise, steady - noise) == pytest.approx(2 / 2**10)
    assert amplitude.swap_test(swing + noise, swing + noise) == 1
    many = amplitude.swap_test(np.tile(swing + noise, (2, 1)), np.tile(steady, (2, 1)))
    assert 1 / 4097 <= many < 0.01


def test_swap_test_is_calibrated_under_the_null() -> None:
    drawn = np.random.default_rng(1)
    p_values = [amplitude.swap_test(*drawn.normal(0.3, 0.01, (2, 6, 5))) for _ in range(40)]
    assert 0.3 < np.mean(p_values) < 0.75
    assert np.mean(np.array(p_values) < 0.05) < 0.15
