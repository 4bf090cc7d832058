"""Training of solved models: one epoch, one run folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.models import CATALOG, Ranking, SolvedModel
from dgcf.train import Observer, Run, Trained, build, load, resolve, train
from dgcf.train.blend import BlendConfig
from dgcf.train.presets import PRESETS
from dgcf.train.recipe import BLEND_KEYS
from tests.train.planted_tastes import planted_tastes
from tests.train.recording_observer import RecordingObserver

SOLVED = [name for name, found in CATALOG.items() if found.solved]
FILES = ("last.safetensors", "best.safetensors", "metrics.jsonl")


def created(path: Path, dataset: Dataset, model: str, **settings: Any) -> Run:
    return Run.create(path, dataset, resolve(model, settings=settings), seed=4, device="cpu")


def fit(dataset: Dataset, run: Run, observer: Observer | None = None) -> Trained:
    validate = validator(dataset, "recall@20") if len(dataset.validation) else None
    return train(dataset, run.recipe, seed=run.seed, device="cpu", validate=validate, run=run, observer=observer)


def scores(found: Ranking) -> torch.Tensor:
    return torch.as_tensor(found.scores(torch.arange(60)))


@pytest.mark.parametrize("model", SOLVED)
class TestRun:
    def test_solving_is_one_epoch(self, model: str, dataset: Dataset, tmp_path: Path) -> None:
        heard = RecordingObserver()
        run = created(tmp_path / "run", dataset, model)
        out = fit(dataset, run, heard)
        assert (out.epochs, out.best_epoch, out.interrupted, out.reason) == (1, 1, False, "solved at once")
        (line,) = run.metrics()
        expected = validator(dataset, "recall@20")(out.ranking)
        assert line == {"epoch": 1, **expected}
        assert heard.reports[0].loss is None
        assert heard.reports[0].line().startswith(f"epoch 1/1  recall@20 {expected['recall@20']:.4f}  best")
        assert run.best().about["epoch"] == 1

    def test_load_restores_the_solved_model(self, model: str, dataset: Dataset, tmp_path: Path) -> None:
        out = fit(dataset, created(tmp_path / "run", dataset, model))
        found, propagation, ranking = load(Run.open(tmp_path / "run"), dataset)
        assert isinstance(found, SolvedModel)
        assert propagation is None
        assert torch.equal(scores(ranking), scores(out.ranking))

    def test_resuming_a_solved_run_changes_nothing(self, model: str, dataset: Dataset, tmp_path: Path) -> None:
        first = fit(dataset, created(tmp_path / "run", dataset, model))
        before = {name: (tmp_path / "run" / name).read_bytes() for name in FILES}
        heard = RecordingObserver()
        again = fit(dataset, Run.open(tmp_path / "run"), heard)
        assert torch.equal(scores(first.ranking), scores(again.ranking))
        assert {name: (tmp_path / "run" / name).read_bytes() for name in FILES} == before
        assert "is already solved; nothing is left to train" in heard.notes[0]
        assert heard.reports == []

    def test_the_same_seed_gives_the_same_files(self, model: str, dataset: Dataset, tmp_path: Path) -> None:
        for name in ("one", "two"):
            fit(dataset, created(tmp_path / name, dataset, model))
        for name in FILES:
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()

    def test_training_settings_are_refused(self, model: str) -> None:
        for preset in PRESETS:
            recipe = resolve(model, dataset="ml-1m", preset=preset)
            assert recipe.model == CATALOG[model].config  # no preset's l2, layers or dim is taken for the model's own
            blend = BLEND_KEYS if CATALOG[model].has_embeddings else []
            assert set(recipe.settings()) == {*CATALOG[model].keys, *blend}
            assert recipe.blend == BlendConfig()
        with pytest.raises(
            ConfigError, match=rf"{model} is solved at once, not trained in epochs, so it has no setting"
        ):
            resolve(model, settings={"learning_rate": 0.1})
        with pytest.raises(ConfigError, match="there is no preset"):
            resolve(model, preset="papre")


def test_solves_without_a_validation_split(tmp_path: Path) -> None:
    dataset = planted_tastes(validation=False)
    run = created(tmp_path / "run", dataset, "ease")
    assert fit(dataset, run).best_epoch == 1
    assert run.metrics() == [{"epoch": 1}]


def test_ease_has_its_own_l2() -> None:
    assert resolve("ease", settings={"l2": 40.0}).settings() == {"l2": 40.0}
    assert resolve("ease", dataset="ml-1m", preset="paper").settings() == {"l2": 500.0}


@pytest.mark.parametrize("model", ["ease", "item-knn", "ials"])
def test_solved_models_learn_planted_preferences(model: str, dataset: Dataset) -> None:
    """Chance is 10/48."""
    out = train(dataset, resolve(model, settings={"l2": 10.0} if model == "ease" else {}), device="cpu")
    assert validator(dataset, "recall@10")(out.ranking)["recall@10"] > 0.97


def test_too_many_items_are_refused_before_allocation() -> None:
    """The buffer alone would be 16 TB: that torch is never asked for it shows in the sentence that comes instead."""
    wide: Any = SimpleNamespace(n_users=10, n_items=2_000_000, train=Pairs.empty(10, 2_000_000))
    with pytest.raises(ConfigError, match=r"model ease needs about 48,000.0 GB of memory .* 2,000,000 items"):
        build(wide, resolve("ease"))


SLOW = """
import sys, time
import dgcf.models.popularity as popularity
from dgcf.data.dataset import Dataset
from dgcf.train import Run, resolve, train
def slowly(self, pairs, seed, device):
    print("solving", flush=True)
    time.sleep(60)
popularity.Popularity.solve = slowly
dataset = Dataset.load(sys.argv[1])
run = Run.create(sys.argv[2], dataset, resolve("popularity"), seed=4, device="cpu")
train(dataset, run.recipe, seed=4, device="cpu", run=run)
"""


def test_killed_while_solving_is_solved_again(dataset: Dataset, tmp_path: Path) -> None:
    dataset.save(tmp_path / "data")
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path / "data"), str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "solving\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "run" / "best.safetensors").exists()
    fit(dataset, Run.open(tmp_path / "run"))
    fit(dataset, created(tmp_path / "whole", dataset, "popularity"))
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
