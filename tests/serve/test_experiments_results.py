"""The answer of /v1/experiments as a function of counts: several arms, arms without users, shadows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dgcf.serve.events.records import ArmCounts
from dgcf.serve.experiments.results import results
from dgcf.serve.experiments.statistics import ALPHA, difference, rate
from dgcf.serve.experiments.tally import ArmField, Tally
from dgcf.serve.http.reports import Experiments
from dgcf.serve.settings import Arms

ARMS = Arms(
    "spring",
    {"main": 0.5, "b": 0.2, "c": 0.2, "d": 0.1},
    {name: Path(name) for name in ("b", "c", "d", "shade", "idle")},
    ("shade", "idle"),
)
COUNTS = [ArmCounts("b", 400, 60, 90, 20.0), ArmCounts("c", 410, 41, 55, 10.5), ArmCounts("main", 990, 100, 130, 12.0)]
VERSIONS = {"main": 1, "b": 2, "c": 5, "d": 4, "shade": 6, "idle": 7}


def test_several_arms_share_the_probability_of_a_wrong_verdict() -> None:
    answer = results(ARMS, COUNTS, ("like",), VERSIONS.__getitem__, Tally())
    Experiments.model_validate(answer)
    by_arm = {row.arm: row for row in COUNTS}
    assert [row["arm"] for row in answer["arms"]] == ["main", "b", "c", "d"]
    assert [row["version"] for row in answer["arms"]] == [1, 2, 5, 4]
    assert [(row["arm"], row["against"]) for row in answer["comparison"]] == [(arm, "main") for arm in "bcd"]
    for row in answer["comparison"][:2]:
        own = by_arm[row["arm"]]
        gap = difference(own.conversions, own.users, 100, 990, ALPHA / 3)
        np.testing.assert_allclose([row["difference"], row["low"], row["high"]], gap, atol=1e-6)
    assert answer["since"] == "1970-01-01T00:00:10.500+00:00"
    assert (answer["alpha"], answer["kinds"]) == (0.05, ["like"])


def test_an_arm_without_users_says_nothing() -> None:
    answer = results(ARMS, COUNTS, ("like",), VERSIONS.__getitem__, Tally())
    empty, comparison = answer["arms"][3], answer["comparison"][2]
    assert [empty[name] for name in ("users", "rate", "low", "high", "events_per_user")] == [0, 0, 0, 1, 0]
    assert (comparison["low"], comparison["high"], comparison["significant"]) == (-1, 1, False)
    nothing = results(ARMS, [], ("like",), VERSIONS.__getitem__, Tally())
    assert nothing["since"] is None
    Experiments.model_validate(nothing)


def test_shadows_have_means_of_what_they_counted() -> None:
    tally = Tally()
    for field, value in ((ArmField.ANSWERS, 4), (ArmField.OVERLAP, 1_500_000), (ArmField.NANOSECONDS, 10_000_000)):
        tally.add("shade", field, value)
    tally.add("shade", ArmField.DROPPED, 3)
    shade, idle = results(ARMS, COUNTS, (), VERSIONS.__getitem__, tally)["shadow"]
    assert shade == {"arm": "shade", "version": 6, "answers": 4, "overlap": 0.375, "mean_ms": 2.5, "dropped": 3}
    assert (idle["answers"], idle["overlap"], idle["mean_ms"]) == (0, None, None)


@pytest.mark.parametrize("arms", [Arms(), Arms(models={"c": Path("c")}, shadows=("c",), share=0.1)])
def test_without_an_experiment_the_main_arm_has_no_users(arms: Arms) -> None:
    answer = results(arms, [], (), lambda arm: 1, Tally())
    Experiments.model_validate(answer)
    assert (answer["experiment"], answer["comparison"], answer["since"]) == (None, [], None)
    assert [(row["arm"], row["weight"], row["users"]) for row in answer["arms"]] == [("main", 1.0, 0)]
    assert rate(0, 0).high == answer["arms"][0]["high"]
