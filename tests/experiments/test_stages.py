"""``dgcf train --on everything``: two stages in a run folder, as ``Recommender.fit(on="everything")`` takes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgcf import Recommender
from dgcf.data.dataset import Dataset
from dgcf.recommend import load
from dgcf.train import Run
from tests.cli.in_process import invoke, refusal
from tests.train.planted_tastes import planted_tastes

SETTINGS: dict[str, Any] = {"dim": 8, "batch_size": 64, "learning_rate": 0.01, "patience": 2, "evaluate_every": 1}
WORDS = tuple(word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}"))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_tastes().save(tmp_path_factory.mktemp("data") / "planted")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run on everything that was not interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    invoke("train", data, "--on", "everything", *WORDS, "--device", "cpu", "--out", folder)
    return folder


def weights(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("best.safetensors", "last.safetensors", "metrics.jsonl")}


def test_run_on_everything_equals_python(data: Path, whole: Path) -> None:
    first, last = Run.open(whole / "validated"), Run.open(whole)
    fitted = Recommender("dgcf", device="cpu", **SETTINGS).fit(Dataset.load(data), on="everything").snapshot
    saved = load(whole).snapshot
    assert last.about["on"] == "everything"
    assert last.about["epochs_from"] == "validation"
    assert last.about["settings"]["epochs"] == int(first.best().about["epoch"]) == saved.about["epochs"]
    assert len(saved.train) == sum(len(Dataset.load(data).split(split)) for split in ("train", "validation", "test"))
    assert saved.about["settings"] == fitted.about["settings"]
    np.testing.assert_array_equal(saved.user_rows, fitted.user_rows)
    np.testing.assert_array_equal(saved.item_rows, fitted.item_rows)


def test_answer_has_the_measured_first_stage(data: Path, tmp_path: Path) -> None:
    words = ("--set", "dim=8", "--set", "batch_size=64", "--set", "patience=1", "--set", "blend=none")
    answer = invoke("train", data, "--on", "everything", *words, "--seeds", "2", "--out", tmp_path / "runs")
    for seed, summary in enumerate(answer["runs"]):
        assert summary["test"] == {}
        assert summary["validated"]["test"]["ndcg@20"] > 0.3
        assert summary["run"] == str(tmp_path / "runs" / f"seed-{seed}")


def test_nothing_is_held_out_to_evaluate(whole: Path) -> None:
    assert "evaluate " + str(whole / "validated") in refusal("evaluate", whole)
    assert "none is held out" in refusal("compare", whole, whole)
    assert invoke("evaluate", whole / "validated")["users_evaluated"] > 0


def test_given_epochs_and_solved_models_have_one_stage(data: Path, tmp_path: Path) -> None:
    invoke("train", data, "--on", "everything", *WORDS, "--set", "epochs=2", "--out", tmp_path / "two")
    run = Run.open(tmp_path / "two")
    assert not (run.path / "validated").exists()
    assert (run.about["epochs_from"], len(run.metrics())) == ("settings", 2)
    invoke("train", data, "--on", "everything", "--model", "ease", "--out", tmp_path / "ease")
    dataset = Dataset.load(data)
    assert len(load(tmp_path / "ease").snapshot.train) == len(dataset.train.union(dataset.validation, dataset.test))


def test_data_without_validation_says_how_many_epochs(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from dgcf.cli import application

    data = planted_tastes(validation=False).save(tmp_path / "data")
    words = ["--set", "dim=4", "--set", "blend=none", "--out", str(tmp_path / "run"), "--device", "cpu"]
    done = CliRunner().invoke(application(), ["train", str(data), *words])
    assert done.exit_code == 0, done.stderr
    assert "no epochs are set, so training takes 30 epochs; choose another number with --set epochs=N" in done.stderr
    assert len(Run.open(tmp_path / "run").metrics()) == 30


def test_wrong_pairs_to_train_on_are_refused(data: Path, whole: Path) -> None:
    assert "on is 'everthing', expected 'train' or 'everything'; did you mean" in refusal(
        "train", data, "--on", "everthing"
    )
    assert "leave out --on" in refusal("train", "--resume", whole, "--on", "everything")
    assert "holds a run already" in refusal("train", data, "--on", "everything", "--out", whole)
    assert "dim 8 is now 16" in refusal("train", "--resume", whole, "--set", "dim=16")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL")
def test_killed_in_either_stage_ends_with_the_same_bytes(tmp_path: Path, data: Path, whole: Path) -> None:
    folder = tmp_path / "killed"
    start = ("train", str(data), "--on", "everything", *WORDS, "--device", "cpu", "--out", str(folder))
    for reached, words in (
        (folder / "validated" / "last.safetensors", start),
        (folder / "last.safetensors", ("train", "--resume", str(folder), "--device", "cpu")),
    ):
        command = [sys.executable, "-m", "dgcf", *words, "--save-every", "0"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not reached.exists():
            assert process.poll() is None, "the process ended before it could be killed"
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if not (folder / "run.json").exists():
            assert "stopped before it was trained on all pairs" in refusal("evaluate", folder)
            assert "stopped before it was trained on all pairs" in refusal("recommend", folder, "--user", "1")
    invoke("train", "--resume", folder, "--device", "cpu")
    assert weights(folder) == weights(whole)
    assert weights(folder / "validated") == weights(whole / "validated")
