"""Mean and standard deviation over seeds, and the evaluator of runs."""

from __future__ import annotations

from dataclasses import asdict, replace
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs
from dgcf.data.synthetic import planted
from dgcf.errors import ConfigError, DataError
from dgcf.experiments.measure import MeanStd, RunEvaluator


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_std_is_the_sample_deviation(values: list[float]) -> None:
    spread = MeanStd.of(values)
    assert spread.mean == pytest.approx(mean(values))
    assert spread.std == pytest.approx(stdev(values), abs=1e-12)


def test_single_seed_has_no_deviation_unless_the_model_does_not_depend_on_it() -> None:
    assert MeanStd.of([0.25]) == MeanStd(0.25, None)
    assert MeanStd.of([0.25], seeded=False) == MeanStd(0.25, 0.0)
    assert (str(MeanStd(0.25, None)), str(MeanStd(0.25, 0.125))) == ("0.2500", "0.2500 ± 0.1250")
    assert asdict(MeanStd(0.25, None)) == {"mean": 0.25, "std": None}


def test_wrong_mask_and_missing_test_split_are_refused_before_training() -> None:
    dataset = planted(120, 60)
    with pytest.raises(ConfigError, match="mask"):
        RunEvaluator.of(dataset, "trian", [20])
    with pytest.raises(DataError, match="test"):
        RunEvaluator.of(replace(dataset, test=Pairs.empty(dataset.n_users, dataset.n_items)), "train", [20])
