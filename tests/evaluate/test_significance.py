"""Paired tests: no difference is reported without one, a planted one is, and the error rates hold."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.bootstrap import bootstrap_intervals
from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.significance import (
    averaged,
    compare,
    compare_with,
    effect_size,
    holm,
    sign_flip_test,
    t_test,
    users_and_seeds_test,
)


def evaluation(values, user_idx=None, **change):
    user_idx = np.arange(len(values)) if user_idx is None else np.asarray(user_idx)
    fields = {
        "split": "test",
        "mask": "train",
        "ks": (20,),
        "user_idx": user_idx,
        "train_degrees": np.ones(len(values), dtype=np.int64),
        "all_degrees": np.ones(len(values), dtype=np.int64),
        "values": {"recall@20": np.asarray(values, dtype=float), "popularity@20": np.ones(len(values))},
    }
    return Evaluation(**{**fields, **change})


def test_run_compared_with_itself():
    one = evaluation(np.random.default_rng(0).random(500))
    (comparison,) = compare(one, one)
    assert (comparison.p_t, comparison.p_permutation, comparison.p_holm) == (1.0, 1.0, 1.0)
    assert (comparison.difference, comparison.effect_size, comparison.interval) == (0.0, 0.0, (0.0, 0.0))
    assert not comparison.significant()
    assert not comparison.significant(level=1.0), "at the level is not below it"
    assert comparison.significant(level=1.1)


def test_planted_difference_is_detected():
    """The users' own spread (0.29) hides a shift of 0.02 from an unpaired test, not from a paired one."""
    rng = np.random.default_rng(0)
    base = rng.random(500)
    better = base + 0.02 + rng.normal(0, 0.05, 500)
    (comparison,) = compare(evaluation(base), evaluation(better))
    assert stats.ttest_ind(base, better).pvalue > 0.1
    assert comparison.p_t < 1e-6
    assert comparison.p_permutation == pytest.approx(1e-4)
    assert comparison.significant()
    assert comparison.difference == pytest.approx(0.02, abs=0.006)
    assert 0 < comparison.interval[0] < comparison.difference < comparison.interval[1]
    assert comparison.effect_size == pytest.approx(0.4, abs=0.1)
    narrow = {"seed": 3, "resamples": 50, "confidence": 0.5}
    (chosen,) = compare(evaluation(base), evaluation(better), flips=99, **narrow)
    assert list(chosen.interval) == bootstrap_intervals((better - base)[:, None], **narrow)[0].tolist()
    assert chosen.p_permutation == 0.01
    (turned,) = compare(evaluation(better), evaluation(base))
    assert turned.difference == -comparison.difference
    assert turned.p_permutation == comparison.p_permutation


def test_false_positive_rate():
    rng = np.random.default_rng(0)
    trials = 600
    difference = rng.choice([-1.0, 0.0, 0.0, 0.5, -0.5, 1.0], size=(40, trials)) * rng.random((40, trials))
    p_t = np.array([t_test(column) for column in difference.T])
    p_flip = np.concatenate([sign_flip_test(difference[:, [j]], seed=j, flips=199) for j in range(trials)])
    for p in (p_t, p_flip):  # three deviations of a binomial around 5 %
        assert abs((p <= 0.05).mean() - 0.05) < 3 * np.sqrt(0.05 * 0.95 / trials)
        assert abs((p <= 0.5).mean() - 0.5) < 3 * 0.5 / np.sqrt(trials)


def test_holm_keeps_the_familywise_error_rate():
    rng = np.random.default_rng(1)
    p = rng.random((4_000, 6))
    plain = (p < 0.05).any(1).mean()
    corrected = np.mean([(holm(row) < 0.05).any() for row in p])
    assert plain > 0.2
    assert corrected < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4_000)


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([]).shape == (0,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_p_and_keeps_order(p):
    corrected = holm(p)
    assert (corrected >= np.array(p)).all()
    assert (corrected <= 1).all()
    assert (np.diff(corrected[np.argsort(p, kind="stable")]) >= 0).all()


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=2, max_size=40))
def test_t_test_equals_scipy(difference):
    d = np.round(np.array(difference), 3)
    if np.ptp(d) > 0:
        assert t_test(d) == pytest.approx(stats.ttest_1samp(d, 0).pvalue, abs=1e-9)
        assert t_test(d * 1e-20) == pytest.approx(t_test(d), abs=1e-9), "the unit of a metric matters"


def test_sign_flip_test_is_near_exact_enumeration():
    d = np.array([0.3, -0.1, 0.25, 0.4, 0.05, -0.2, 0.35, 0.1])
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    exact = (np.abs(signs @ d) >= abs(d.sum()) - 1e-12).mean()
    assert sign_flip_test(d[:, None], seed=0, flips=20_000)[0] == pytest.approx(exact, abs=0.01)


def test_signs_are_flipped_per_user():
    """Two users decide, the last of 130: both keep or both change their sign, and the rest agrees, in a quarter."""
    d = np.where(np.arange(130) % 2, 1e-3, -1e-3)
    d[128:] = 1.0
    assert sign_flip_test(d[:, None], seed=0, flips=2_000)[0] == pytest.approx(0.25, abs=0.03)


def test_constant_difference_is_significant():
    assert sign_flip_test(np.ones((20, 1)), seed=0, flips=99).tolist() == [0.01]
    assert sign_flip_test(np.ones((20, 1)), seed=0, flips=1).tolist() == [0.5]


def test_sign_flips_are_seeded_over_several_batches():
    d = np.random.default_rng(0).normal(0.005, 0.3, (5_000, 2))  # 79 words a draw: several batches
    one = sign_flip_test(d, seed=3, flips=2_000)
    np.testing.assert_array_equal(one, sign_flip_test(d, seed=3, flips=2_000))
    assert (one != sign_flip_test(d, seed=4, flips=2_000)).any()
    assert (one * 2_001).round(6).tolist() == [91, 423], "the seed means the same for ever"
    np.testing.assert_allclose(one, [t_test(column) for column in d.T], atol=0.04)


def test_equal_difference_of_all_users():
    """No spread: the t-test's limit is certainty, and the effect size has no value."""
    base = np.random.default_rng(0).random(60)
    (comparison,) = compare(evaluation(base), evaluation(base + 0.1))
    assert comparison.p_t == 0.0
    assert comparison.effect_size is None
    assert comparison.p_permutation == pytest.approx(1e-4)
    assert json.loads(json.dumps(comparison.to_dict(), allow_nan=False)) == {
        **vars(comparison),
        "interval": list(comparison.interval),
    }


def test_single_user_is_never_significant():
    (comparison,) = compare(evaluation([0.2]), evaluation([0.9]))
    assert comparison.p_t == comparison.p_permutation == 1.0
    assert effect_size(np.array([0.7])) is None
    assert effect_size(np.array([0.0, 1.0])) == pytest.approx(np.sqrt(0.5))


def test_only_common_users_are_compared():
    first = evaluation([0.1, 0.2, 0.3], user_idx=[0, 4, 7])
    second = evaluation([0.9, 0.5, 0.5], user_idx=[1, 4, 7])
    (comparison,) = compare(first, second)
    assert (comparison.users, comparison.metric) == (2, "recall@20")
    assert (comparison.first, comparison.second) == (pytest.approx(0.25), pytest.approx(0.5))


def test_incomparable_evaluations_are_refused():
    one = evaluation([0.1, 0.2])
    with pytest.raises(ConfigError, match="mask 'train', the second with 'train\\+validation'"):
        compare(one, evaluation([0.1, 0.2], mask="train+validation"))
    with pytest.raises(ConfigError, match="split 'test', the second with 'validation'; evaluate both with one split"):
        compare(one, evaluation([0.1, 0.2], split="validation"))
    with pytest.raises(DataError, match="no user in common"):
        compare(one, evaluation([0.1, 0.2], user_idx=[5, 6]))
    with pytest.raises(ConfigError, match="'recal@20' was not measured"):
        compare(one, one, ["recal@20"])
    with pytest.raises(ConfigError, match="share no metric"):
        compare(one, replace(one, values={"recall@5": np.zeros(2)}))
    with pytest.raises(ConfigError, match="flips is 0"):
        compare(one, one, flips=0)


def test_seeds_are_averaged_per_user():
    rng = np.random.default_rng(0)
    values = rng.random((3, 40))
    seeds = [replace(evaluation(row), coverage={"coverage@20": 0.1 * n}) for n, row in enumerate(values)]
    mean = averaged(seeds)
    np.testing.assert_allclose(mean.value("recall@20"), values.mean(0))
    assert mean.means["coverage@20"] == pytest.approx(0.1)
    alone = averaged(seeds[:1])
    assert np.array_equal(alone.value("recall@20"), values[0])
    with pytest.raises(ConfigError, match="evaluate all of them alike"):
        averaged([seeds[0], evaluation(values[1], user_idx=np.arange(1, 41))])
    with pytest.raises(ConfigError, match="evaluate all of them alike"):
        averaged([seeds[0], evaluation(values[1], mask="train+validation")])


def test_holm_corrects_over_all_models_and_metrics():
    rng = np.random.default_rng(0)

    def two_metrics(shift):
        base = evaluation(np.zeros(80))
        return replace(base, values={f"recall@{k}": rng.normal(shift, 0.3, 80) for k in (10, 20)})

    reference, *others = (two_metrics(shift) for shift in (0, 0.05, 0.1, 0.2))
    comparisons = compare_with(reference, others)
    assert [[one.metric for one in each] for each in comparisons] == [["recall@10", "recall@20"]] * 3
    flat = [one for each in comparisons for one in each]
    assert [one.p_holm for one in flat] == holm([one.p_permutation for one in flat]).tolist()
    for each, other in zip(comparisons, others, strict=True):  # but for the correction, what a pair alone would give
        alone = compare(reference, other)
        assert [replace(one, p_holm=0.0) for one in each] == [replace(one, p_holm=0.0) for one in alone]
        assert all(one.p_holm >= single.p_holm for one, single in zip(each, alone, strict=True))
    (one,) = compare_with(reference, others[:1], ["recall@20"], seed=5)
    assert one == compare(reference, others[0], ["recall@20"], seed=5)


def test_difference_between_seeds_alone_is_not_significant():
    """Seeds move all users together: over users alone they look like a difference, with their spread they do not."""
    rng = np.random.default_rng(0)
    over_users, over_both = [], []
    for _ in range(400):
        moved = rng.normal(0, 0.02, (6, 1)) + 0.3 + rng.normal(0, 0.1, (1, 300)) + rng.normal(0, 0.1, (6, 300))
        difference = moved[3:].mean(0) - moved[:3].mean(0)
        over_users.append(t_test(difference))
        over_both.append(users_and_seeds_test(difference, moved[:3].mean(1), moved[3:].mean(1)))
    assert (np.array(over_users) < 0.05).mean() > 0.3
    assert (np.array(over_both) < 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    assert (np.array(over_both) < 0.05).mean() > 0.01  # careful, but not blind


def test_difference_beyond_seed_variance_is_detected():
    rng = np.random.default_rng(0)
    difference = rng.normal(0.05, 0.1, 300)
    assert users_and_seeds_test(difference, [0.300, 0.302, 0.301], [0.350, 0.351, 0.353]) < 1e-4
    assert users_and_seeds_test(difference, [0.25, 0.35, 0.30], [0.40, 0.30, 0.35]) > 0.05


def test_seeds_test_equals_t_test_without_seed_variance():
    difference = np.random.default_rng(0).normal(0.01, 0.1, 300)
    for seeds in ([0.3], [0.3, 0.3, 0.3]):
        assert users_and_seeds_test(difference, seeds, [0.31]) == pytest.approx(t_test(difference), rel=1e-9)
    assert users_and_seeds_test(np.zeros(5), [0.3, 0.3], [0.3]) == 1.0
    assert users_and_seeds_test(np.full(5, 0.1), [0.3], [0.4]) == 0.0
    assert users_and_seeds_test(np.full(2, 0.1), [0.3], [0.4]) == 0.0
    assert users_and_seeds_test(np.full(1, 0.1), [0.3], [0.4]) == 1.0, "a single user proves nothing"


@pytest.mark.filterwarnings("ignore:Precision loss")  # what SciPy says of seeds that all agree
@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.lists(st.floats(0, 1), min_size=2, max_size=6))
@example([0.0, 1.0], [1.0, 1.0])
def test_seeds_test_equals_welch_without_user_variance(first, second):
    """Were there no spread between users, only the seeds would be left: Welch's test on their means."""
    one, other = np.round(first, 3), np.round(second, 3)
    if np.ptp(one) + np.ptp(other) > 0:
        difference = np.full(50, other.mean() - one.mean())
        expected = stats.ttest_ind(one, other, equal_var=False).pvalue
        if abs(difference[0]) > 1e-6:
            assert users_and_seeds_test(difference, one, other) == pytest.approx(expected, abs=1e-9)
