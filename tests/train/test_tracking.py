"""Tracking in TensorBoard and MLflow: the logged values equal the run folder, each epoch once."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError, DataError
from dgcf.train import EpochReport, Observer, Run, resolve, train
from dgcf.train.run.observer import Several
from dgcf.train.run.tracking import MLflow, tracked
from tests.train.planted_tastes import planted_tastes, validation_of

SETTINGS = {"dim": 8, "batch_size": 64, "epochs": 8, "evaluate_every": 2, "min_epochs": 8}
Series = dict[str, dict[int, float]]
TEST = {"recall@20": 0.25, "ndcg@20": 0.125}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    torch.set_num_threads(1)
    return planted_tastes()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for most tests: making it takes MLflow seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'shared.db'}"


@pytest.fixture(autouse=True)
def _where(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)


class Kill(Observer):
    """Ends the process's work on a run without a word, at the end of an epoch that nothing has saved yet."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def epoch_ended(self, report: EpochReport) -> None:
        if report.epoch == self.epoch:
            raise MemoryError


def once(values: list[tuple[int, float]]) -> dict[int, float]:
    assert len(dict(values)) == len(values), f"a step was told twice: {values}"
    return dict(values)


def events_of(run: Run) -> Series:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run.path / "tensorboard"))
    found.Reload()
    return {name: once([(e.step, e.value) for e in found.Scalars(name)]) for name in found.Tags()["scalars"]}


def mlflow_of(run: Run) -> Series:
    from mlflow import MlflowClient

    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("dgcf")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id], f"tags.`dgcf.run` = '{run.path}'")
    assert found.info.status == "FINISHED"
    assert found.info.run_name == run.path.name
    settings = {name: str(value) for name, value in run.about["settings"].items()}
    identity = {"model": "bpr-mf", "preset": "plain", "dataset": "planted", "seed": "0"}
    assert found.data.params == identity | settings
    return {
        name.replace("_at_", "@"): once([(m.step, m.value) for m in client.get_metric_history(found.info.run_id, name)])
        for name in found.data.metrics
    }


READ: dict[str, Callable[[Run], Series]] = {"tensorboard": events_of, "mlflow": mlflow_of}


def sitting(run: Run, dataset: Dataset, *names: str, kill: int = 0, save: float = 1000.0) -> None:
    """Train, or go on; all that happens in one process."""
    run.autosave, run.pictured = save, False
    with tracked(names, run) as trackers:
        watcher = Several(*trackers, Kill(kill))
        trained = train(dataset, run.recipe, device="cpu", validate=validation_of(dataset), observer=watcher, run=run)
        for tracker in trackers:
            tracker.measured("test", TEST, trained.best_epoch)


@pytest.fixture
def run(dataset: Dataset, tmp_path: Path) -> Run:
    recipe = resolve("bpr-mf", preset="plain", settings=SETTINGS)
    return Run.create(tmp_path / "run", dataset, recipe, seed=0, device="cpu")


def expect_all(series: Series, run: Run) -> None:
    """Loss and validation of every epoch as the run's own record has them, and the test metrics once."""
    lines = run.metrics()
    near = 1e-6  # event files hold float32
    assert series["loss"] == pytest.approx({line["epoch"]: line["loss"] for line in lines}, rel=near)
    assert series["validation/recall@20"] == pytest.approx(
        {line["epoch"]: line["recall@20"] for line in lines if "recall@20" in line}, rel=near
    )
    assert list(series["validation/recall@20"]) == [2, 4, 6, 8]
    for name, value in TEST.items():
        assert list(series[f"test/{name}"].values()) == [value]


@pytest.mark.parametrize("name", READ)
def test_logged_values_equal_the_run_folder(name: str, run: Run, dataset: Dataset) -> None:
    sitting(run, dataset, name)
    series = READ[name](run)
    expect_all(series, run)
    assert list(series["pairs_per_second"]) == list(range(1, 9))
    assert all(math.isfinite(value) and value > 0 for value in series["pairs_per_second"].values())
    sitting(run, dataset, name)  # finished: nothing is told again
    assert READ[name](run) == series


def test_without_a_server_mlflow_has_a_database_beside_the_runs(
    run: Run, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    sitting(run, dataset, "mlflow")
    assert sorted(path.name for path in run.path.parent.iterdir()) == ["mlflow.db", "run"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{run.path.parent / 'mlflow.db'}")
    expect_all(mlflow_of(run), run)


@pytest.mark.parametrize("name", READ)
def test_every_epoch_is_logged_once_after_a_kill(name: str, run: Run, dataset: Dataset) -> None:
    with pytest.raises(MemoryError):
        sitting(run, dataset, name, kill=3, save=0)
    with pytest.raises(MemoryError):  # nothing saved since epoch 2: epochs 3 to 5 will be trained again
        sitting(run, dataset, name, kill=5)
    sitting(run, dataset, name)
    series = READ[name](run)
    expect_all(series, run)
    assert list(series["pairs_per_second"]) == list(range(1, 9))


@pytest.mark.parametrize("name", READ)
def test_late_tracker_logs_earlier_epochs(name: str, run: Run, dataset: Dataset) -> None:
    with pytest.raises(MemoryError):
        sitting(run, dataset, kill=5, save=0)
    sitting(run, dataset, name)
    expect_all(READ[name](run), run)


def test_unreachable_server_does_not_stop_training(run: Run, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it missed is told when the run goes on."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    answer = MlflowClient.log_batch

    def log_batch(self: MlflowClient, run_id: str, metrics: list[object] = [], **rest: object) -> None:  # noqa: B006
        if any(getattr(metric, "step", 0) == 3 for metric in metrics):
            raise MlflowException("the server does not answer")
        answer(self, run_id, metrics=metrics, **rest)  # type: ignore[arg-type]

    notes: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", log_batch)
        with tracked(["mlflow"], run, note=notes.append) as trackers:
            run.pictured = False
            watcher = Several(*trackers)
            train(dataset, run.recipe, device="cpu", validate=validation_of(dataset), observer=watcher, run=run)
    assert len(notes) == 1
    assert "the server does not answer" in notes[0]
    assert len(run.metrics()) == 8
    sitting(run, dataset, "mlflow")
    expect_all(mlflow_of(run), run)


def test_unknown_trackers_are_refused(
    run: Run, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"), tracked(["tensorbord"], run):
        pass
    (tmp_path / "file").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/file/mlflow.db")
    with pytest.raises(DataError, match="cannot track in sqlite:") as refusal:
        sitting(run, dataset, "mlflow")
    assert "\n" not in str(refusal.value)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(ConfigError, match=r"MLflow is not installed; pip install 'dgcf\[mlflow\]'"):
        MLflow(run)
