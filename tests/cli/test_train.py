"""``dgcf train``, ``evaluate`` and ``compare``.

Tests of streams and signals run real processes; the others run in this one, because every process imports torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.cli.inputs import PRESETS
from dgcf.random import uniform
from dgcf.train import presets
from tests.cli.in_process import invoke, refusal
from tests.train.planted_tastes import planted_tastes

Json = Callable[..., dict[str, Any]]
FIELDS = {"model", "dataset", "seed", "epochs", "best_epoch", "seconds", "seconds_per_epoch", "validation", "test"}
FIELDS |= {"mask", "users_evaluated", "run", "settings"}
QUICK = ("--set", "dim=8", "--set", "batch_size=64", "--set", "learning_rate=0.02", "--device", "cpu")
HASHED = ("last.safetensors", "best.safetensors", "metrics.jsonl")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_tastes().save(tmp_path_factory.mktemp("data") / "planted")


def hashes(path: Path) -> dict[str, str]:
    return {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in HASHED}


def test_train_evaluate_compare(dgcf_json: Json, data: Path, tmp_path: Path) -> None:
    """Train two models, evaluate one, compare both, and try to change a finished run."""
    runs = {}
    for model in ("dgcf", "bpr-mf"):
        train = dgcf_json if model == "dgcf" else invoke
        answer = train(
            "train", data, "--model", model, *QUICK, "--set", "epochs=20", "--seed", "1", "--out", tmp_path / model
        )
        assert set(answer) >= FIELDS
        assert (answer["model"], answer["seed"], answer["epochs"], answer["mask"]) == (model, 1, 20, "train")
        assert answer["run"] == str(tmp_path / model)
        assert answer["validation"]["recall@20"] > 0.6
        runs[model] = answer
    assert runs["dgcf"]["test"]["recall@20"] > 0.95

    measured = invoke("evaluate", tmp_path / "dgcf", "--k", "5,20", "--gates", "--groups", "2")
    assert measured["recall@20"] == runs["dgcf"]["test"]["recall@20"]
    assert measured["best_epoch"] == runs["dgcf"]["best_epoch"]
    assert measured["settings"] == runs["dgcf"]["settings"]
    assert measured["users_evaluated"] == runs["dgcf"]["users_evaluated"]
    assert measured["recall@5"] < measured["recall@20"]
    assert set(measured["gate_correlation"]) == {"users", "items", "layers"}
    assert len(measured["gate_correlation"]["layers"]) == 3
    assert sum(group["users"] for group in measured["groups"]) == measured["users_evaluated"]
    hidden = invoke("evaluate", tmp_path / "dgcf", "--mask", "train+validation")
    assert hidden["mask"] == "train+validation"
    assert hidden["recall@20"] >= measured["recall@20"]

    compared = invoke("compare", tmp_path / "bpr-mf", tmp_path / "dgcf")
    (recall,) = [line for line in compared["comparisons"] if line["metric"] == "recall@20"]
    difference = runs["dgcf"]["test"]["recall@20"] - runs["bpr-mf"]["test"]["recall@20"]
    assert recall["difference"] == pytest.approx(difference, abs=1e-12)

    message = refusal("train", data, "--model", "dgcf", "--out", tmp_path / "dgcf")
    assert "holds a run already; resume it with --resume" in message
    assert "layers 3 is now 2" in refusal("train", data, "--resume", tmp_path / "dgcf", "--set", "layers=2")
    assert "seed 1 is now 0" in refusal("train", data, "--resume", tmp_path / "dgcf", "--seed", "0")
    assert "dataset planted" in refusal("train", "checkerboard", "--resume", tmp_path / "dgcf")
    assert "has no gates" in refusal("evaluate", tmp_path / "bpr-mf", "--gates")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "dgfc"), "there is no model 'dgfc'; did you mean 'dgcf'?"),
        (("--preset", "papers"), "there is no preset 'papers'; did you mean 'paper'?"),
        (("--set", "layer=2"), "no setting 'layer'; did you mean 'layers'?"),
        (("--set", "layers=0"), "layers is 0, expected from 1 to 64"),
        (("--set", "layers"), "setting 'layers' has no key and value"),
        (("--seed", "-1"), "seed -1 is negative"),
        (("--device", "abacus"), "device 'abacus' cannot be used here"),
    ],
    ids=str,
)
def test_bad_options_are_refused_and_leave_no_files(
    data: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in refusal("train", data, "--out", tmp_path / "run", *words)
    assert not (tmp_path / "run").exists()


def test_folder_without_a_run_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "is not a run folder" in refused("evaluate", tmp_path)
    assert "is not a run folder" in refusal("train", "checkerboard", "--resume", tmp_path / "absent")
    assert "no dataset was given" in refusal("train")


def test_without_validation_all_epochs_are_trained_with_a_note(tmp_path: Path) -> None:
    folder = planted_tastes(validation=False).save(tmp_path / "data")
    words = ("train", folder, *QUICK, "--set", "epochs=3", "--out", tmp_path / "run", "--json")
    done = CliRunner().invoke(application(), [*map(str, words)])
    assert done.exit_code == 0, done.stderr
    assert "there is no validation split, so training takes all 3 epochs" in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["epochs"], answer["best_epoch"], answer["validation"]) == (3, 3, {})


def test_without_test_split_the_answer_says_that_nothing_is_measured(data: Path, tmp_path: Path) -> None:
    words = ("train", data, "--model", "popularity", "--on", "everything", "--out", tmp_path / "run")
    done = CliRunner().invoke(application(), [*map(str, words)])
    assert done.exit_code == 0, done.stderr
    assert "not measured: there is no test split\n" in done.stdout
    assert "mask" not in done.stdout
    assert "0 users" not in done.stdout


def test_several_seeds_give_runs_with_mean_and_deviation(data: Path, tmp_path: Path) -> None:
    answer = invoke("train", data, *QUICK, "--set", "epochs=2", "--seeds", "2", "--seed", "4", "-o", tmp_path / "r")
    assert answer["seeds"] == [4, 5]
    assert [run["run"] for run in answer["runs"]] == [str(tmp_path / "r" / f"seed-{seed}") for seed in (4, 5)]
    values = [run["test"]["ndcg@20"] for run in answer["runs"]]
    assert values[0] != values[1]
    assert answer["test"]["ndcg@20"]["mean"] == pytest.approx(sum(values) / 2)


def test_ctrl_c_saves_and_shows_the_command_that_resumes(data: Path, tmp_path: Path) -> None:
    words = ("train", str(data), *QUICK, "--set", "epochs=60", "--set", "evaluate_every=1", "--json")
    whole = invoke(*words[:-1], "--out", tmp_path / "whole")
    command = [sys.executable, "-m", "dgcf", *words, "--out", str(tmp_path / "stopped"), "--save-every", "1000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("epoch 3/60"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(output)["error"]["kind"] == "interrupted"
    assert f"saved. Resume with: dgcf train --resume {tmp_path / 'stopped'}" in stderr
    resumed = invoke("train", "--resume", tmp_path / "stopped")
    assert hashes(tmp_path / "stopped") == hashes(tmp_path / "whole")
    assert resumed["test"] == whole["test"]
    assert resumed["best_epoch"] == whole["best_epoch"]


@pytest.mark.slow
def test_run_killed_ten_times_equals_an_uninterrupted_one(dgcf_json: Json, data: Path, tmp_path: Path) -> None:
    words = ("train", str(data), *QUICK, "--set", "epochs=120", "--set", "patience=0", "--save-every", "0.1")
    whole = dgcf_json(*words, "--out", tmp_path / "whole")
    command = [sys.executable, "-m", "dgcf", *words]
    for share in uniform(2, "test/kill", 10):
        started = (tmp_path / "killed" / "run.json").exists()
        place = ["--resume" if started else "--out", str(tmp_path / "killed")]
        process = subprocess.Popen([*command, *place], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        process.stderr.readline()  # training has started
        time.sleep(share * whole["seconds"] / 5)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    resumed = dgcf_json("train", "--resume", tmp_path / "killed")
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "whole")
    assert resumed["test"] == whole["test"]


def test_help_names_every_preset() -> None:
    """The help lists them as text because importing them imports torch."""
    assert PRESETS.replace(" or", ",").split(", ") == list(presets.PRESETS)


@pytest.mark.slow
@pytest.mark.data("deoscirec/ml-100k")
@pytest.mark.parametrize(("model", "mark"), [("dgcf", 0.340), ("lightgcn", 0.345), ("bpr-mf", 0.28)])
def test_paper_preset_reaches_its_recall_on_ml_100k(dgcf_json: Json, tmp_path: Path, model: str, mark: float) -> None:
    words = ("train", "deoscirec/ml-100k", "--model", model, "--preset", "paper", "--seed", "0", "-o", tmp_path / "r")
    answer = dgcf_json(*words, timeout=1500)
    assert answer["test"]["recall@20"] >= mark
    assert (answer["mask"], answer["users_evaluated"]) == ("train", 859)


def test_bad_options_are_refused_before_training(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "x").touch()
    (tmp_path / "sd" / "seed-1").mkdir(parents=True)
    (tmp_path / "sd" / "seed-1" / "run.json").write_text("{}")
    (tmp_path / "one.csv").write_text("user,item\na,x\n")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "train.csv").write_text("user,item\na,x\nb,y\n")
    quick = ("--preset", "plain", "--set", "epochs=2")
    for words, sentence in (
        (("planted", "--mask", "bla", "--out", "m"), "the mask is 'bla'"),
        (("planted", "--out", "junk"), "taken by something that is no run"),
        (("planted", "--seeds", "2", "--out", "sd"), "seed-1 holds a run already"),
        (("half", "--out", "h"), "no file to test on"),
    ):
        assert sentence in refused("train", *words, *quick, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half", "junk", "one.csv", "sd"]
    assert [path.name for path in (tmp_path / "sd").iterdir()] == ["seed-1"]


def test_failed_start_leaves_no_folder(dgcf: Any, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("user,item\na,x\n")
    for _ in range(2):
        done = dgcf("train", "one.csv", "--preset", "plain", "--out", "one", cwd=tmp_path)
        assert done.returncode == 1
        assert "nothing to compare" in done.stderr
        assert not (tmp_path / "one").exists()


def test_run_folder_in_use_is_refused(refused: Any, tmp_path: Path) -> None:
    words = ["train", "planted", "--preset", "plain", "--set", "patience=0", "--out", "run"]
    process = subprocess.Popen([sys.executable, "-m", "dgcf", *words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.05)
        done = subprocess.run(
            [sys.executable, "-m", "dgcf", "train", "--resume", "run"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "run is in use by another process" in done.stderr
    finally:
        process.kill()
        process.wait()


def test_recency_needs_a_dataset_with_an_order(data: Path, tmp_path: Path) -> None:
    rows = [f"{user},{item},{item % 5}" for user in range(12) for item in range(user % 4, 20, 2)]
    (tmp_path / "timed.csv").write_text("\n".join(["user,item,timestamp", *rows, ""]))
    (tmp_path / "plain.csv").write_text("\n".join(["user,item", *(row.rsplit(",", 1)[0] for row in rows), ""]))
    recent = (*QUICK, "--set", "recency=1", "--set", "epochs=2", "--out", tmp_path / "run")
    for source, sentence in (
        (tmp_path / "plain.csv", "plain.csv has no timestamp column, so that there is no order to keep"),
        (data, "planted has no order of pairs to keep"),
    ):
        assert sentence in refusal("train", source, *recent)
        assert not (tmp_path / "run").exists()
    assert invoke("train", tmp_path / "timed.csv", *recent)["settings"]["recency"] == 1.0
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(about["dataset"]["order"]) == 64
    assert invoke("train", "--resume", tmp_path / "run", "--device", "cpu")["epochs"] == 2
    assert invoke("evaluate", tmp_path / "run", "--device", "cpu")["users_evaluated"] > 0
    shuffled = [row[:-1] + str((int(row[-1]) * 2) % 5) for row in rows]
    (tmp_path / "timed.csv").write_text("\n".join(["user,item,timestamp", *shuffled, ""]))
    message = refusal("train", "--resume", tmp_path / "run", "--device", "cpu")
    assert "the order of each user's pairs is another one now" in message
