"""Comparisons of models: which runs are trained, reused or resumed, and the paired tests on real runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.data.synthetic import planted
from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.significance import averaged, users_and_seeds_test
from dgcf.evaluate.significance import compare as compare_evaluations
from dgcf.experiments.compare import (
    Options,
    Plan,
    Request,
    compare,
    metric_names,
    plan_models,
    run_labels,
    run_path,
    train_models,
)
from dgcf.experiments.measure import RunEvaluator
from dgcf.models.catalog import CATALOG
from dgcf.train import Observer, Run, resolve, train
from tests.ordering import dataset_in_order

QUICK = ("epochs=4", "evaluate_every=2", "dim=8", "batch_size=256", "learning_rate=0.02")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return planted(120, 60)


OPTIONS = Options(["recall@20", "ndcg@20"], [20], device="cpu")


def plans(models: Sequence[str], dataset: Dataset, **settings: Any) -> list[Plan]:
    return plan_models(Request(models, **settings), dataset)


def trained(
    dataset: Dataset, wanted: list[Plan], out: Path, notify: Callable[[str], None] = lambda text: None
) -> list[list[Run]]:
    return train_models(dataset, wanted, out, replace(OPTIONS, notify=notify))


def traces(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder: its bytes, and when it was written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# -- plans ------------------------------------------------------------------------------------------------------------


def test_setting_applies_to_every_model_that_has_it(dataset: Dataset) -> None:
    words = ["layers=2", "dim=8", "lightgcn.dim=16", "epochs=3"]
    planned = plans(["dgcf", "lightgcn", "bpr-mf", "popularity"], dataset, settings=words, seeds=(4, 5))
    settings = {plan.recipe.name: plan.recipe.settings() for plan in planned}
    assert {name: values.get("dim") for name, values in settings.items()} == {
        "dgcf": 8,
        "lightgcn": 16,
        "bpr-mf": 8,
        "popularity": None,
    }
    assert (settings["dgcf"]["layers"], settings["lightgcn"]["layers"]) == (2, 2)
    assert "layers" not in settings["bpr-mf"]
    assert [plan.seeds for plan in planned] == [(4, 5)] * 3 + [(4,)]


def test_file_overrides_preset_and_settings_override_file(dataset: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "best.toml"
    file.write_text('model = "lightgcn"\npreset = "plain"\nlayers = 1\ndim = 24\n')
    for word in (f"lightgcn={file}", str(file)):
        (_, plan) = plans(["dgcf", "lightgcn"], dataset, settings=["dim=8"], configs=[word])
        assert (plan.recipe.preset, plan.recipe.model.layers, plan.recipe.model.dim) == ("plain", 1, 8)


@pytest.mark.parametrize(
    ("models", "more", "sentence"),
    [
        (("dgcf", "dgcf"), {}, "model dgcf is named twice"),
        (("dgcf", "lightgnc"), {}, "did you mean 'lightgcn'"),
        (("dgcf", "bpr-mf"), {"settings": ["lightgcn.dim=8"]}, "model 'lightgcn', which is not compared"),
        (("bpr-mf", "popularity"), {"settings": ["layers=2"]}, "the group bpr-mf, popularity has no setting 'layers'"),
        (("dgcf", "bpr-mf"), {"settings": ["bpr-mf.layers=2"]}, "model bpr-mf has no setting 'layers'"),
        (("dgcf", "bpr-mf"), {"configs": ["absent.toml"]}, "cannot read absent.toml"),
        (("dgcf", "bpr-mf"), {"configs": ["silent.toml"]}, "does not say for which model"),
        (("dgcf", "bpr-mf"), {"configs": ["named.toml"]}, "is of model lightgcn; compared are dgcf, bpr-mf"),
        (("dgcf", "lightgcn"), {"configs": ["dgcf=named.toml"]}, "is of model lightgcn"),
        (("dgcf", "lightgcn"), {"configs": ["named.toml", "named.toml"]}, "twice for model lightgcn"),
        (("dgcf", "bpr-mf"), {"preset": "papers"}, "did you mean 'paper'"),
    ],
    ids=str,
)
def test_invalid_plan_is_refused(
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    models: tuple[str, ...],
    more: dict[str, Any],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("silent.toml").write_text("dim = 8\n")
    Path("named.toml").write_text('model = "lightgcn"\ndim = 8\n')
    with pytest.raises(ConfigError) as problem:
        plans(models, dataset, **more)
    assert sentence in str(problem.value)


def test_recency_without_order_is_refused_before_training(dataset: Dataset) -> None:
    with pytest.raises(DataError, match="recency needs the order of each user's pairs"):
        plans(("ease", "bpr-mf"), dataset, settings=["recency=1"])
    assert len(plans(("ease", "bpr-mf"), dataset_in_order(dataset), settings=["recency=1"])) == 2


def test_weighted_training_without_weights_is_refused_before_training(dataset: Dataset) -> None:
    weighted = replace(dataset, train=replace(dataset.train, weight=np.ones(len(dataset.train), dtype=np.float32)))
    for setting in ("item-knn.weighted=true", "bpr-mf.weighted_sampling=true"):
        with pytest.raises(DataError, match=r"weighted\w* needs a weight of each pair"):
            plans(("item-knn", "bpr-mf"), dataset, settings=[setting])
        assert len(plans(("item-knn", "bpr-mf"), weighted, settings=[setting])) == 2


def test_metrics_are_checked_before_training() -> None:
    assert metric_names("recall, ndcg,recall", [10, 20]) == ["recall@10", "recall@20", "ndcg@10", "ndcg@20"]
    assert len(metric_names("all", [20])) == 6
    for words, sentence in (("recal", "did you mean 'recall'"), ("coverage", "no paired test")):
        with pytest.raises(ConfigError, match=sentence):
            metric_names(words, [20])


# -- runs -------------------------------------------------------------------------------------------------------------


def test_finished_runs_are_reused(dataset: Dataset, tmp_path: Path) -> None:
    wanted = plans(["bpr-mf", "popularity"], dataset, settings=QUICK, seeds=(0, 1))
    first = trained(dataset, wanted, tmp_path)
    assert [[run.path.name for run in runs] for runs in first] == [
        ["bpr-mf-seed0", "bpr-mf-seed1"],
        ["popularity-seed0"],
    ]
    before, notes = traces(tmp_path), []
    again = trained(dataset, wanted, tmp_path, notes.append)
    assert [[run.path for run in runs] for runs in again] == [[run.path for run in runs] for runs in first]
    assert traces(tmp_path) == before
    assert sum("is finished; it is reused" in line for line in notes) == 3
    assert any("one run serves for all seeds" in line for line in notes)


def test_more_seeds_train_only_the_missing_runs(dataset: Dataset, tmp_path: Path) -> None:
    trained(dataset, plans(["bpr-mf"], dataset, settings=QUICK, seeds=(0,)), tmp_path)
    before = traces(tmp_path)
    trained(dataset, plans(["bpr-mf"], dataset, settings=QUICK, seeds=(0, 1)), tmp_path)
    after = traces(tmp_path)
    assert before.items() < after.items()
    assert {Path(name).parts[0] for name in after} == {"bpr-mf-seed0", "bpr-mf-seed1"}


def test_run_of_other_settings_is_left_alone(dataset: Dataset, tmp_path: Path) -> None:
    notes: list[str] = []
    for settings in (QUICK, (*QUICK, "dim=4"), QUICK, (*QUICK, "dim=4")):
        ((run,),) = trained(dataset, plans(["bpr-mf"], dataset, settings=settings), tmp_path, notes.append)
        assert run.recipe.model.dim == (8 if settings == QUICK else 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bpr-mf-seed0", "bpr-mf-seed0-2"]
    assert any("is another run (dim 8 is now 4) and is left alone" in line for line in notes)


def test_run_on_other_data_and_other_folders_are_left_alone(dataset: Dataset, tmp_path: Path) -> None:
    recipe = resolve("popularity")
    Run.create(tmp_path / "popularity-seed0", planted(120, 60, seed=1), recipe, seed=0, device="cpu")
    (tmp_path / "popularity-seed0-2").mkdir()
    (tmp_path / "popularity-seed0-2" / "thesis.txt").write_text("precious")
    path = run_path(tmp_path, dataset, recipe, 0, lambda text: None)
    assert path == tmp_path / "popularity-seed0-3"
    assert not path.exists()


def test_unfinished_run_is_resumed_to_the_same_bytes(dataset: Dataset, tmp_path: Path) -> None:
    wanted = plans(["bpr-mf"], dataset, settings=QUICK)
    ((whole,),) = trained(dataset, wanted, tmp_path / "whole")

    class StopAfterThreeEpochs(Observer):
        epochs = 0

        def epoch_ended(self, report: Any) -> None:
            self.epochs += 1
            if self.epochs == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_models(
            dataset, wanted, tmp_path / "resumed", replace(OPTIONS, observe=lambda: nullcontext(StopAfterThreeEpochs()))
        )
    assert not Run.open(tmp_path / "resumed" / "bpr-mf-seed0").finished
    ((resumed,),) = trained(dataset, wanted, tmp_path / "resumed")
    assert resumed.finished
    for name in ("last.safetensors", "best.safetensors", "metrics.jsonl"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_run_without_best_state_is_unfinished(dataset: Dataset, tmp_path: Path) -> None:
    for model in ("bpr-mf", "popularity"):
        wanted = plans([model], dataset, settings=QUICK if model == "bpr-mf" else ())
        ((run,),) = trained(dataset, wanted, tmp_path)
        assert run.finished
        (run.path / "best.safetensors").unlink()  # as if the power had failed between the two files
        assert not run.finished
        ((again,),) = trained(dataset, wanted, tmp_path)
        assert again.finished
    assert not Run.create(tmp_path / "new", dataset, resolve("bpr-mf"), seed=0, device="cpu").finished


def test_run_stopped_by_patience_is_finished(dataset: Dataset, tmp_path: Path) -> None:
    words = ("epochs=500", "min_epochs=0", "evaluate_every=1", "patience=2", "dim=4", "learning_rate=0.1")
    ((run,),) = trained(dataset, plans(["bpr-mf"], dataset, settings=words), tmp_path)
    assert len(run.metrics()) < 500
    assert run.finished


@pytest.mark.parametrize("name", [name for name, model in CATALOG.items() if model.solved])
def test_model_declares_whether_it_depends_on_the_seed(dataset: Dataset, name: str) -> None:
    rankings = [train(dataset, resolve(name), seed=seed, device="cpu").ranking for seed in (0, 1)]
    users = torch.arange(dataset.n_users)
    first, second = (torch.as_tensor(ranking.scores(users)) for ranking in rankings)
    assert torch.equal(first, second) != CATALOG[name].seeded


# -- paired tests on real runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeds_of_one_model() -> list[Evaluation]:
    """The evaluations of ten seeds of one model."""
    data = planted(240, 100)
    evaluator = Evaluator(data, split="test")
    settings = {"epochs": 12, "dim": 8, "batch_size": 512, "learning_rate": 0.02}
    recipe = resolve("bpr-mf", preset="plain", settings=settings)
    return [evaluator.evaluate(train(data, recipe, seed=seed, device="cpu").ranking) for seed in range(10)]


def test_p_values_of_equal_models_are_uniform(seeds_of_one_model: list[Evaluation]) -> None:
    """A coin for each user swaps the values of two models: no difference is left, and p must be uniform."""
    one, other = seeds_of_one_model[:2]
    rng = np.random.default_rng(0)
    p_values = []
    for trial in range(400):
        coin = rng.random(one.users_evaluated) < 0.5
        mixed = [
            replace(one, values={"recall@20": np.where(side, one.value("recall@20"), other.value("recall@20"))})
            for side in (coin, ~coin)
        ]
        (comparison,) = compare_evaluations(*mixed, ["recall@20"], seed=trial, flips=199, resamples=2)
        p_values.append((comparison.p_permutation, comparison.p_t))
    for p in np.array(p_values).T:
        assert abs((p <= 0.05).mean() - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 400)
        assert abs((p <= 0.5).mean() - 0.5) < 3 * 0.5 / np.sqrt(400)


def test_halves_of_the_seeds_of_one_model_rarely_differ(seeds_of_one_model: list[Evaluation]) -> None:
    """Of all 126 ways to split ten seeds of one model, few differ if the deviation between seeds is counted."""
    p_values = []
    for chosen in combinations(range(1, 10), 4):
        halves = ([0, *chosen], [n for n in range(1, 10) if n not in chosen])
        first, second = ([seeds_of_one_model[n] for n in half] for half in halves)
        difference = averaged(second).value("recall@20") - averaged(first).value("recall@20")
        means = ([seed.means["recall@20"] for seed in half] for half in (first, second))
        p_values.append(users_and_seeds_test(difference, *means))
    assert len(p_values) == 126
    assert (np.array(p_values) < 0.05).mean() <= 0.05


def test_real_difference_is_significant(dataset: Dataset, tmp_path: Path) -> None:
    """A model against itself gives p = 1; against one that learned nothing, whatever the test, p < 0.01."""
    words = ("epochs=30", "dim=8", "batch_size=256", "learning_rate=0.02", "evaluate_every=5")
    wanted = plans(["lightgcn", "popularity"], dataset, settings=words, seeds=(0, 1, 2))
    runs = trained(dataset, wanted, tmp_path)
    evaluator = RunEvaluator.of(dataset, "train", [20])
    models = [("a", runs[0]), ("b", runs[0]), ("popular", runs[1])]
    result = compare(evaluator, models, OPTIONS)
    _, same, popular = result.models
    for test in same.comparisons:
        assert (test.difference, test.p_t, test.p_permutation, test.p_holm, test.p_seeds) == (0, 1, 1, 1, 1)
    assert not same.differs("recall@20")
    for test in popular.comparisons:
        assert test.difference < 0
        assert max(test.p_t, test.p_permutation, test.p_holm) < 0.01
    assert result.n_comparisons == 4
    turned = compare(evaluator, models[::2], replace(OPTIONS, metrics=["recall@20"]), reference=1)
    assert turned.models[1].comparisons == ()
    assert turned.models[0].comparisons[0].difference == -popular.comparisons[0].difference


def test_deviation_is_unknown_for_one_seed_and_zero_without_randomness(dataset: Dataset, tmp_path: Path) -> None:
    wanted = plans(["bpr-mf", "popularity"], dataset, settings=QUICK)
    runs = trained(dataset, wanted, tmp_path)
    models = list(zip(("bpr-mf", "popularity"), runs, strict=True))
    result = compare(RunEvaluator.of(dataset, "train", [20]), models, OPTIONS)
    assert [model.test["recall@20"].std for model in result.models] == [None, 0.0]
    assert result.models[1].comparisons[0].p_seeds is None


def test_runs_are_labelled_by_their_folders(dataset: Dataset, tmp_path: Path) -> None:
    made = [
        Run.create(tmp_path / name, dataset, resolve("popularity"), seed=0, device="cpu")
        for name in ("a/one", "a/two", "b/one")
    ]
    assert run_labels(made[:2]) == ["one", "two"]
    assert run_labels(made) == [str(run.path) for run in made]
    assert run_labels([made[0], made[0]]) == ["one", "one"]
