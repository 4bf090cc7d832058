"""Baselines beside a trained model: their cost, their figures, what is left out, and which model is best."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.synthetic import planted
from dgcf.errors import StoppedError
from dgcf.evaluate.evaluator import Evaluator
from dgcf.experiments import baselines
from dgcf.experiments.baselines import BASELINES, LIMIT, Sizes, estimated_seconds, measure_baselines, stand
from dgcf.experiments.progress import Update
from dgcf.train import resolve, train

METRIC = "ndcg@10"
COUNTS = st.integers(1, 10**6)
SIZES = st.builds(Sizes, COUNTS, COUNTS, COUNTS, COUNTS)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return planted(120, 60)


def summary(value: float, model: str = "dgcf", run: str = "runs/it's") -> dict[str, Any]:
    return {"model": model, "validation": {METRIC: value}, "run": run}


# -- cost -------------------------------------------------------------------------------------------------------------


@given(SIZES, st.sampled_from(["users", "items", "pairs", "shared"]), st.integers(1, 10**6))
def test_cost_grows_with_every_size(sizes: Sizes, name: str, more: int) -> None:
    larger = replace(sizes, **{name: getattr(sizes, name) + more})
    for model in BASELINES:
        assert 0 < estimated_seconds(model, sizes) <= estimated_seconds(model, larger)


@given(SIZES)
def test_nothing_is_cheaper_than_popularity_and_ease_is_cubic(sizes: Sizes) -> None:
    assert min(BASELINES, key=lambda model: estimated_seconds(model, sizes)) == "popularity"
    doubled = replace(sizes, items=2 * sizes.items)
    more = estimated_seconds("ease", doubled) - estimated_seconds("ease", sizes)
    assert more >= 7 * 20e-12 * sizes.items**3


@pytest.mark.parametrize(
    ("sizes", "slow"),
    [
        (Sizes(928, 1_172, 14_865, 521_000), set()),  # deoscirec/ml-100k
        (Sizes(4_627, 1_840, 148_299, 9_100_000), set()),  # deoscirec/ml-1m
        (Sizes(29_858, 40_981, 718_418, 48_300_000), {"ease"}),  # deoscirec/gowalla: EASE inverts for half an hour
        (Sizes(138_493, 26_744, 14_000_000, 6_000_000_000), {"item-knn", "ease", "ials"}),
    ],
    ids=["ml-100k", "ml-1m", "gowalla", "ml-20m"],
)
def test_baselines_that_take_seconds_on_known_sizes(sizes: Sizes, slow: set[str]) -> None:
    assert {model for model in BASELINES if estimated_seconds(model, sizes) > LIMIT} == slow


def test_sizes_count_the_items_that_users_share() -> None:
    pairs = Pairs.from_indices(np.array([0, 0, 0, 2]), np.array([0, 1, 4, 1]), 3, 5)
    assert Sizes.of(pairs) == Sizes(users=3, items=5, pairs=4, shared=9 + 1)


# -- measured and left out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["train", "train+validation"])
def test_figures_are_those_of_each_model_alone(dataset: Dataset, mask: str) -> None:
    counts: list[tuple[float, float | None]] = []

    @contextmanager
    def bar(what: str, total: float | None) -> Iterator[Update]:
        assert total == 4
        yield lambda done, total: counts.append((done, total))

    measured, left_out = measure_baselines(dataset, METRIC, mask, bar=bar)
    assert ([each.model for each in measured], left_out) == (list(BASELINES), [])
    assert counts == [(number, 4) for number in range(4)]
    for each in measured:
        ranking = train(dataset, resolve(each.model)).ranking
        assert each.validation == dict(Evaluator(dataset, split="validation", ks=(10,)).evaluate(ranking).means)
        assert each.test == dict(Evaluator(dataset, split="test", mask=mask, ks=(10, 20)).evaluate(ranking).means)
        assert each.seconds > 0


def test_slow_baseline_is_left_out_with_its_seconds(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "estimated_seconds", lambda model, sizes: 1234.5 * (model == "ease"))
    measured, (left_out,) = measure_baselines(dataset, METRIC, "train")
    assert [each.model for each in measured] == ["popularity", "item-knn", "ials"]
    assert asdict(left_out) == {
        "model": "ease",
        "reason": "ease would take about 1,234 s, more than 20 s; train it on its own with --model ease.",
    }


def test_baseline_without_memory_or_package_is_left_out(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.memory.available_memory", lambda: 10)
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    measured, left_out = measure_baselines(dataset, METRIC, "train")
    assert [each.model for each in measured] == ["popularity"]
    reasons = {each.model: each.reason for each in left_out}
    assert list(reasons) == ["item-knn", "ease", "ials"]
    assert "model ease needs about" in reasons["ease"]
    assert "pip install 'dgcf[ials]'" in reasons["ials"]


@pytest.mark.parametrize("problem", [MemoryError(), RuntimeError("can't allocate memory: you tried 9 bytes")])
def test_failed_allocation_is_left_out(dataset: Dataset, monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    def fail(*words: Any, **options: Any) -> None:
        raise problem

    monkeypatch.setattr(baselines, "train", fail)
    measured, left_out = measure_baselines(dataset, METRIC, "train", ["ease"])
    assert (measured, [each.reason for each in left_out]) == ([], [str(problem) or "there is not enough memory."])


# -- standing ---------------------------------------------------------------------------------------------------------


def test_mean_of_the_seeds_is_compared(dataset: Dataset) -> None:
    top = max(each.validation[METRIC] for each in measure_baselines(dataset, METRIC, "train")[0])
    for values, wins in (([top - 0.02, top + 0.04], True), ([top - 0.04, top + 0.02], False), ([top, top], True)):
        standing = stand([summary(value) for value in values], dataset, METRIC, "train")
        assert standing.value == pytest.approx(sum(values) / 2)
        assert (standing.best == "dgcf") is wins
        ranked = standing.values()
        assert ranked == sorted(ranked, key=lambda model: model[1], reverse=True)
        assert {model for model, _ in ranked} == {"dgcf", *BASELINES}
        assert standing.to_dict()["best"] == ranked[0][0]


def test_trained_baseline_is_not_measured_again(dataset: Dataset) -> None:
    standing = stand([summary(2.0, model="ease")], dataset, METRIC, "train")
    assert [each.model for each in standing.models] == ["popularity", "item-knn", "ials"]
    assert [asdict(each) for each in standing.left_out] == [{"model": "ease", "reason": "ease is the trained model."}]
    assert standing.best == "ease"


def test_without_validation_nothing_is_compared(dataset: Dataset) -> None:
    bare = replace(dataset, validation=Pairs.empty(dataset.n_users, dataset.n_items))
    standing = stand([{**summary(0.0), "validation": {}}], bare, METRIC, "train")
    assert (standing.models, standing.best, standing.values()) == ((), None, [])
    assert [each.model for each in standing.left_out] == list(BASELINES)
    assert all("no validation split" in each.reason for each in standing.left_out)


def test_without_test_split_validation_is_still_compared(dataset: Dataset) -> None:
    bare = replace(dataset, test=Pairs.empty(dataset.n_users, dataset.n_items))
    standing = stand([summary(0.0)], bare, METRIC, "train")
    assert [each.test for each in standing.models] == [{}] * 4
    assert standing.best != "dgcf"


def test_interruption_says_that_training_is_finished(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*words: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(baselines, "train", interrupted)
    with pytest.raises(StoppedError, match="training is finished") as problem:
        stand([summary(0.5), summary(0.5, run="b")], dataset, METRIC, "train")
    assert problem.value.hint == """see dgcf evaluate 'runs/it'"'"'s' and dgcf evaluate b"""
