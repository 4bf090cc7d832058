"""Rates and differences: against other implementations, and by simulated experiments that are looked at daily."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from dgcf.serve.experiments.statistics import ALPHA, TUNED_TO, difference, excludes_zero, rate

DAYS = 30
Counts = NDArray[np.int64]


@given(st.integers(1, 3_000), st.floats(0, 1))
def test_the_interval_of_a_rate_is_that_of_wilson(users: int, share: float) -> None:
    conversions = round(users * share)
    result, other = rate(conversions, users), binomtest(conversions, users).proportion_ci(method="wilson")
    assert result.estimate == conversions / users
    np.testing.assert_allclose([result.low, result.high], [other.low, other.high], atol=1e-12)


def test_without_users_nothing_is_known() -> None:
    assert tuple(map(float, rate(0, 0))) == (0.0, 0.0, 1.0)
    for counts in ((0, 0, 3, 10), (0, 0, 100, 990), (100, 990, 0, 0), (0, 0, 0, 0)):
        assert tuple(map(float, difference(*counts))) == (0.0, -1.0, 1.0)


counted = st.integers(1, 50_000).flatmap(lambda users: st.tuples(st.integers(0, users), st.just(users)))


@given(counted, counted, st.sampled_from([0.05, 0.01, 0.025]))
def test_the_confidence_sequence_is_the_formula_of_its_docstring(
    one: tuple[int, int], base: tuple[int, int], alpha: float
) -> None:
    (c, n), (c0, n0) = one, base
    result = difference(c, n, c0, n0, alpha)
    q, q0 = (c + 0.5) / (n + 1), (c0 + 0.5) / (n0 + 1)
    m = n * n0 / (n + n0)
    clock = m * m * (q * (1 - q) / n + q0 * (1 - q0) / n0)
    eta = TUNED_TO / (math.log(1 / alpha**2) + math.log(math.log(1 / alpha**2) + 1))
    radius = math.sqrt((clock + eta) * math.log((clock + eta) / eta / alpha**2)) / m
    gap = c / n - c0 / n0
    ends = max(gap - radius, -1.0), min(gap + radius, 1.0)
    np.testing.assert_allclose(result, (gap, *ends), atol=1e-12)
    turned = difference(c0, n0, c, n, alpha)
    np.testing.assert_allclose([turned.low, turned.high], [-result.high, -result.low], atol=1e-12)


def test_the_sequence_is_tightest_where_it_is_tuned_to() -> None:
    """The radius in standard errors, over variances, has its minimum there, of about three."""
    users = np.geomspace(100, 1e7, 4_000)
    clock = users * 0.05 * 0.95 / 2
    result = difference(0.05 * users, users, 0.05 * users, users)
    errors = (result.high - result.low) / 2 / np.sqrt(2 * 0.05 * 0.95 / users)
    assert clock[errors.argmin()] == pytest.approx(TUNED_TO, rel=0.15)
    assert errors.min() == pytest.approx(3.03, abs=0.02)


class Simulation:
    """Experiments of ``DAYS`` days that are looked at each evening; users convert at once, or within the days."""

    def __init__(self, experiments: int, users: int, rates: tuple[float, float], share: float, delayed: bool) -> None:
        rng = np.random.default_rng(20260501)
        arm, base = np.zeros((2, experiments), dtype=np.int64), np.zeros((2, experiments), dtype=np.int64)
        self.sequential, self.naive = (np.zeros((experiments, DAYS), dtype=bool) for _ in range(2))
        self.covered = np.ones(experiments, dtype=bool)
        for day in range(DAYS):
            new = rng.binomial(users, share, experiments) if not delayed or not day else np.zeros(experiments, int)
            both = np.full(experiments, users if not delayed or not day else 0)
            for counts, more, chance in ((arm, new, rates[0]), (base, both - new, rates[1])):
                waiting, daily = (counts[1] + more - counts[0], chance / DAYS) if delayed else (more, chance)
                counts[0] += rng.binomial(waiting, daily)
                counts[1] += more
            result = difference(arm[0], arm[1], base[0], base[1])
            self.sequential[:, day] = excludes_zero(result)
            self.naive[:, day] = _fixed_test(arm, base)
            if not delayed:
                self.covered &= (result.low <= rates[0] - rates[1]) & (rates[0] - rates[1] <= result.high)

    @property
    def decided(self) -> float:
        """The share of experiments with a verdict on any evening."""
        return float(self.sequential.any(axis=1).mean())


def _fixed_test(arm: Counts, base: Counts) -> NDArray[np.bool_]:
    """The usual test of two proportions at 5 %, which holds for one look."""
    pooled = (arm[0] + base[0]) / (arm[1] + base[1])
    error = np.sqrt(pooled * (1 - pooled) * (1 / np.maximum(arm[1], 1) + 1 / np.maximum(base[1], 1)))
    return np.abs(arm[0] / np.maximum(arm[1], 1) - base[0] / np.maximum(base[1], 1)) > 1.96 * np.maximum(error, 1e-12)


EQUAL = [(200, 0.1, 0.5), (2_000, 0.02, 0.5), (1_000, 0.05, 0.1), (20, 0.3, 0.5), (500, 0.3, 0.02)]
"""Users a day, rate and share of the arm."""


@pytest.mark.parametrize("delayed", [False, True], ids=["at once", "delayed"])
@pytest.mark.parametrize(("users", "chance", "share"), EQUAL)
def test_equal_arms_that_are_looked_at_daily_are_told_apart_in_fewer_than_five_percent(
    users: int, chance: float, share: float, delayed: bool
) -> None:
    users *= DAYS if delayed else 1
    simulation = Simulation(2_000, users, (chance, chance), share, delayed)
    peeking = simulation.naive.any(axis=1).mean()
    print(f"\n{users:,} users, rate {chance}, share {share}: wrong {simulation.decided:.2%}, fixed test {peeking:.0%}")
    assert simulation.decided < ALPHA
    assert peeking > 0.15  # that of a test which must not be looked at daily: the simulation can tell


@pytest.mark.parametrize(("users", "base", "other", "least"), [(500, 0.1, 0.12, 0.75), (2_000, 0.1, 0.11, 0.75)])
def test_a_planted_difference_is_detected(users: int, base: float, other: float, least: float) -> None:
    simulation = Simulation(1_000, users, (other, base), 0.5, False)
    print(f"\n{users:,} users a day, {base:.0%} against {other:.0%}: detected {simulation.decided:.1%} in {DAYS} days")
    assert simulation.decided > least
    assert simulation.covered.mean() > 1 - ALPHA
