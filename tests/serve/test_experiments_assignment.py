"""Assignment of users to arms: stable, weighted, and moving few users when weights change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chi2_contingency

from dgcf.serve.experiments.assignment import Assignment

USERS = [f"user {number}" for number in range(4_000)]
RARE = 1e-6
"""Probability with which a right implementation would fail, if another hash were chosen."""
NAMES = ("main", "b", "c", "d")


def split(weights: Mapping[str, float], experiment: str = "spring") -> list[str]:
    assignment = Assignment(experiment, weights)
    return [assignment.arm_of(user) for user in USERS]


@st.composite
def weightings(draw: st.DrawFn, least: int = 2) -> dict[str, float]:
    """Weights of two to four arms that sum to 1."""
    shares = draw(st.lists(st.integers(1, 20), min_size=least, max_size=len(NAMES)))
    return {name: share / sum(shares) for name, share in zip(NAMES, shares, strict=False)}


def test_the_arms_of_some_users_are_what_they_were_in_the_first_version() -> None:
    assignment = Assignment("spring", {"main": 0.5, "b": 0.3, "c": 0.2})
    users = ["anna", "zoe", "Ünal, Ş.", 5, "", "u00001", "u00002", "u00003"]
    assert [assignment.arm_of(user) for user in users] == ["b", "b", "c", "c", "main", "c", "b", "c"]
    assert assignment.arm_of(196) == assignment.arm_of("196")


@settings(max_examples=20)
@given(weightings())
def test_users_are_shared_out_by_weight_whatever_the_order_of_the_arms(weights: dict[str, float]) -> None:
    arms = split(weights)
    assert arms[:200] == [Assignment("spring", dict(reversed(weights.items()))).arm_of(user) for user in USERS[:200]]
    counts = Counter(arms)
    expected = {arm: weight * len(USERS) for arm, weight in weights.items()}
    statistic = sum((counts[arm] - expected[arm]) ** 2 / expected[arm] for arm in weights)
    assert statistic < chi2.isf(RARE, len(weights) - 1)


@settings(max_examples=20)
@given(weightings(), st.sampled_from(NAMES), st.floats(0.05, 20))
def test_only_users_of_an_arm_that_changes_against_all_others_move(
    weights: dict[str, float], arm: str, factor: float
) -> None:
    if arm not in weights:
        return
    changed = {name: weight * (factor if name == arm else 1) for name, weight in weights.items()}
    changed = {name: weight / sum(changed.values()) for name, weight in changed.items()}
    moved = {(before, after) for before, after in zip(split(weights), split(changed), strict=True) if before != after}
    if factor >= 1:
        assert all(after == arm for _, after in moved)
    else:
        assert all(before == arm for before, _ in moved)


@settings(max_examples=20)
@given(weightings(), weightings())
def test_no_more_users_move_than_a_rule_without_memory_has_to_move(
    before: dict[str, float], after: dict[str, float]
) -> None:
    change = sum(abs(before.get(name, 0) - after.get(name, 0)) for name in NAMES) / 2
    allowed = change if len(before) == len(after) == 2 else 2 * change / (1 + change)
    moved = np.mean([old != new for old, new in zip(split(before), split(after), strict=True)])
    assert change - 0.04 < moved < allowed + 0.04  # five standard errors


def test_an_arm_of_weight_zero_has_no_users_and_takes_none_with_it() -> None:
    without, with_c = split({"main": 0.5, "b": 0.5}), split({"main": 0.5, "b": 0.5, "c": 0.0})
    assert without == with_c
    third = split({"main": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    assert all(new in (old, "c") for old, new in zip(without, third, strict=True))


@pytest.mark.parametrize("other", ["summer", "spring2", "sprin"])
def test_another_experiment_assigns_users_independently(other: str) -> None:
    weights = {"main": 0.5, "b": 0.3, "c": 0.2}
    table = Counter(zip(split(weights), split(weights, other), strict=True))
    counts = [[table[row, column] for column in weights] for row in weights]
    assert chi2_contingency(counts).pvalue > RARE
