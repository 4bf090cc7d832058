"""What an evaluation tells of its values: means, spread, groups of users, and a faithful JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dgcf.errors import ConfigError
from dgcf.evaluate.bootstrap import bootstrap_intervals
from dgcf.evaluate.evaluation import Evaluation, equal_interaction_bounds


def evaluation(values, degrees):
    return Evaluation(
        split="test",
        mask="train",
        ks=(20,),
        user_idx=np.arange(len(values)),
        train_degrees=np.asarray(degrees),
        all_degrees=np.asarray(degrees) + 1,
        values={"recall@20": np.asarray(values, dtype=float)},
        coverage={"coverage@20": 0.5},
        left_out={"without_relevant": 3, "without_train": 1},
        leaked_pairs=2,
    )


def test_means_and_standard_errors():
    result = evaluation([0.0, 0.5, 1.0, 0.5], [1, 1, 1, 1])
    assert dict(result.means) == {"recall@20": 0.5, "coverage@20": 0.5}
    assert result.standard_errors["recall@20"] == pytest.approx(np.sqrt(1 / 6) / 2)
    low, high = result.intervals["recall@20"]
    assert 0 <= low < 0.5 < high <= 1
    assert evaluation([0.3], [1]).standard_errors["recall@20"] == 0.0


@pytest.mark.parametrize("change", [{"seed": 3}, {"resamples": 50}, {"confidence": 0.5}])
def test_intervals_follow_the_settings(change):
    result = replace(evaluation([0.0, 0.5, 1.0, 0.4], [1, 1, 1, 1]), **change)
    settings = {"seed": result.seed, "resamples": result.resamples, "confidence": result.confidence}
    expected = bootstrap_intervals(result.values["recall@20"][:, None], **settings)[0]
    assert result.intervals["recall@20"] == tuple(expected)


def test_evaluation_is_frozen():
    result = evaluation([0.5], [1])
    with pytest.raises(AttributeError):
        result.split = "validation"
    with pytest.raises(TypeError):
        result.means["recall@20"] = 1.0


def test_json_holds_the_protocol():
    result = json.loads(json.dumps(evaluation([0.0, 1.0], [1, 2]).to_dict(per_user=True), allow_nan=False))
    assert result["recall@20"] == 0.5
    assert (result["mask"], result["split"], result["k"], result["users_evaluated"]) == ("train", "test", [20], 2)
    assert result["users_left_out"] == {"without_relevant": 3, "without_train": 1}
    assert result["leaked_pairs"] == 2
    assert result["standard_error"] == {"recall@20": 0.5}
    assert result["confidence"] == 0.95
    assert result["interval"]["recall@20"] == [0.0, 1.0]
    assert result["per_user"] == {"recall@20": [0.0, 1.0]}
    assert result["user_idx"] == [0, 1]
    assert "interval" not in evaluation([0.0, 1.0], [1, 2]).to_dict(uncertainty=False)
    assert "per_user" not in evaluation([0.0, 1.0], [1, 2]).to_dict()


def test_unknown_metric_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'recall@20'"):
        evaluation([0.5], [1]).value("recall@2")


def test_groups_of_equal_interactions():
    """20 interactions in each quarter: twenty users of 1, ten of 2, five of 4, two of 10."""
    degrees = np.repeat([1, 2, 4, 10], [20, 10, 5, 2])
    groups = evaluation(degrees / 10, degrees).groups()
    assert [(g.at_least, g.at_most) for g in groups] == [(0, 1), (2, 2), (3, 4), (5, 10)]
    assert [g.users for g in groups] == [20, 10, 5, 2]
    assert [g.interactions for g in groups] == [20, 20, 20, 20]
    assert [g.means["recall@20"] for g in groups] == pytest.approx([0.1, 0.2, 0.4, 1.0])
    assert groups[0].to_dict() == {
        "at_least": 0,
        "at_most": 1,
        "users": 20,
        "interactions": 20,
        "recall@20": pytest.approx(0.1),
    }


@given(st.lists(st.integers(1, 30), min_size=1, max_size=80), st.integers(1, 8))
@example([1, 1, 1, 13], 4)  # the first degree is one short of a quarter
def test_group_ends_when_it_has_its_share(degrees, n_groups):
    """Without its last degree a group is below 1/n_groups of the whole, with it at or above; the last has the rest."""
    degrees, bounds = np.array(degrees), equal_interaction_bounds(np.array(degrees), n_groups)
    assert bounds[-1] == degrees.max()
    for low, high in pairwise((0, *bounds)):
        assert high in degrees
        assert degrees[(degrees > low) & (degrees < high)].sum() * n_groups < degrees.sum()
        if high < degrees.max():
            assert degrees[(degrees > low) & (degrees <= high)].sum() * n_groups >= degrees.sum()


def test_default_is_four_groups():
    result = evaluation(np.linspace(0, 1, 50), np.arange(1, 51))
    assert result.groups() == result.groups(n_groups=4) != result.groups(n_groups=5)


def test_groups_of_given_bounds():
    result = evaluation([0.0, 0.2, 0.4, 1.0], [34, 35, 64, 600])
    groups = result.groups(bounds=(34, 64, 113))
    assert [(g.at_least, g.at_most, g.users) for g in groups] == [(0, 34, 1), (35, 64, 2), (65, 113, 0), (114, 600, 1)]
    assert groups[1].means["recall@20"] == pytest.approx(0.3)
    assert groups[2].means == {}
    assert [g.users for g in result.groups(bounds=(1_000,))] == [4]
    assert [g.users for g in result.groups(bounds=(1, 34))] == [0, 1, 3]
    assert [g.users for g in result.groups(bounds=(34, 64), count="all")] == [0, 2, 2]
    for bounds in ((), (0, 5), (5, 5), (9, 4)):
        with pytest.raises(ConfigError, match="group bounds"):
            result.groups(bounds=bounds)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=80), st.integers(1, 8))
def test_groups_hold_every_user_once(degrees, n_groups):
    result = evaluation(np.linspace(0, 1, len(degrees)), degrees)
    groups = result.groups(n_groups=n_groups)
    assert 1 <= len(groups) <= n_groups
    assert sum(g.users for g in groups) == len(degrees)
    assert all(g.users for g in groups)
    assert sum(g.interactions for g in groups) == sum(degrees)
    whole = sum(g.users * g.means["recall@20"] for g in groups) / len(degrees)
    assert whole == pytest.approx(result.means["recall@20"])


def test_unknown_count_is_refused():
    with pytest.raises(ConfigError, match="expected 'train' or 'all'"):
        evaluation([0.5], [1]).groups(count="test")


def test_at_least_one_group_is_required():
    with pytest.raises(ConfigError, match="n_groups is 0"):
        equal_interaction_bounds(np.array([1]), 0)
