"""The bootstrap interval: seeded, of the right width, and covering the truth as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.bootstrap import bootstrap_intervals


def test_same_seed_gives_same_intervals():
    values = np.random.default_rng(0).random((200, 2))
    one = bootstrap_intervals(values, seed=1)
    np.testing.assert_array_equal(one, bootstrap_intervals(values, seed=1))
    assert (one != bootstrap_intervals(values, seed=2)).any()
    of_squares = bootstrap_intervals(np.arange(20.0).reshape(10, 2) ** 2, seed=7, resamples=20)
    np.testing.assert_allclose(of_squares, [[57.77, 151.53], [70.94, 173.08]], atol=1e-9, err_msg="for ever")


def test_width_agrees_with_standard_error():
    values = np.random.default_rng(0).random((2_000, 1))
    low, high = bootstrap_intervals(values, seed=0, resamples=2_000)[0]
    expected = 2 * 1.96 * values.std(ddof=1) / np.sqrt(2_000)
    assert low < values.mean() < high
    assert high - low == pytest.approx(expected, rel=0.08)


def test_coverage_equals_confidence():
    rng = np.random.default_rng(0)
    inside = 0
    for trial in range(200):
        low, high = bootstrap_intervals(rng.random((80, 1)), seed=trial, resamples=200, confidence=0.9)[0]
        inside += low <= 0.5 <= high
    assert 0.84 < inside / 200 < 0.95


def test_equal_values_give_empty_interval():
    np.testing.assert_allclose(bootstrap_intervals(np.full((9, 1), 0.25), seed=0), [[0.25, 0.25]])


@pytest.mark.parametrize("change", [{"resamples": 1}, {"confidence": 0.0}, {"confidence": 1.0}])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(ConfigError, match="at least 2 resamples"):
        bootstrap_intervals(np.ones((3, 1)), seed=0, **change)


def test_two_resamples_are_enough():
    low, high = bootstrap_intervals(np.arange(9.0)[:, None], seed=0, resamples=2)[0]
    assert 0 <= low < high <= 8


def test_no_user_to_resample_is_refused():
    with pytest.raises(DataError, match="no user"):
        bootstrap_intervals(np.ones((0, 1)), seed=0)
