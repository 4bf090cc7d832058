"""``dgcf tune``, and ``dgcf train --config`` with its best settings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from tests.conftest import hear_ctrl_c
from tests.train.planted_tastes import planted_tastes

FIXED = {"batch_size": 64, "epochs": 6, "evaluate_every": 2, "min_epochs": 2}
QUICK = ["--preset", "plain", "--device", "cpu", *(w for key, v in FIXED.items() for w in ("--set", f"{key}={v}"))]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_tastes().save(tmp_path_factory.mktemp("data") / "planted")


def invoke(*words: str | Path) -> Any:
    return CliRunner().invoke(application(), [*map(str, words)])


def answer(*words: str | Path) -> dict[str, Any]:
    done = invoke(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def refusal(*words: str | Path) -> str:
    done = invoke(*words)
    assert done.exit_code in (1, 2), done.output
    assert done.stdout == ""
    stderr = done.stderr.splitlines()[-1]
    assert stderr.startswith("error: ")
    return str(stderr)


def test_best_settings_train_to_the_same_result(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune, resume, train with the best settings, and contradict them by options."""
    monkeypatch.chdir(tmp_path)
    words = ("tune", data, "--model", "lightgcn", *QUICK, "--search", "dim=4,8", "--seed", "2", "--trials", "6")
    tuned = answer(*words)
    assert (tuned["model"], tuned["dataset"], tuned["metric"], tuned["seed"]) == ("lightgcn", "planted", "recall@20", 2)
    assert (tuned["trials"], tuned["failed"], tuned["out"]) == (6, 0, "tune/planted-lightgcn")
    searched = {*FIXED, "dim", "layers", "learning_rate", "l2", "loss", "edge_dropout"}
    assert tuned["best"]["settings"].keys() - {"temperature"} == searched
    assert ("temperature" in tuned["best"]["settings"]) == (tuned["best"]["settings"]["loss"] == "softmax")
    assert tuned["best"]["settings"]["dim"] in (4, 8)
    assert sum(tuned["importance"].values()) == pytest.approx(1)

    shown = invoke(*words)
    assert "trials: 6 recorded, 0 to run" in shown.stderr
    assert f"note: {tuned['importance_note']}" in shown.stderr
    assert f"{tuned['best']['value']:.4f}" in shown.stdout
    command = f"dgcf train {data} --config {tuned['config']}"
    assert f"train: {command}" in " ".join(shown.stdout.split())

    trained = answer(*command.split()[1:], "--seed", "2", "--device", "cpu")
    assert trained["model"] == "lightgcn"
    assert trained["preset"] == "plain"
    assert trained["best_epoch"] == tuned["best"]["epoch"]
    assert trained["validation"]["recall@20"] == tuned["best"]["value"]

    config = tuned["config"]
    assert "is for the model 'lightgcn', but --model is 'dgcf'" in refusal(
        "train", data, "--config", config, "--model", "dgcf"
    )
    assert "is for the preset 'plain'" in refusal("train", data, "--config", config, "--preset", "paper")
    (tmp_path / "odd.toml").write_text("model = 3\n")
    assert "model in odd.toml is 3, expected a name" in refusal("train", data, "--config", "odd.toml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "popularity"), "model popularity has nothing to search"),
        (("--search", "l2=1:0"), "give the lower number first"),
        (("--search", "l2"), "is no search space"),
        (("--set", "dim=8", "--search", "dim=8,16"), "dim is both fixed"),
        (("--metric", "recall"), "has no valid cut-off"),
        (("--model", "dgfc"), "did you mean 'dgcf'?"),
        (("--device", "abacus"), "device 'abacus' cannot be used here"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_the_first_trial(
    data: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in refusal("tune", data, "--trials", "2", "--out", tmp_path / "study", *words)
    assert not (tmp_path / "study").exists()


def test_ctrl_c_shows_how_to_resume(data: Path, tmp_path: Path) -> None:
    words = ["tune", str(data), "--model", "bpr-mf", *QUICK, "--out", str(tmp_path / "study")]
    command = [sys.executable, "-m", "dgcf", *words]
    process = subprocess.Popen(
        [*command, "--trials", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("trial 1: recall@20"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output == ""
    assert stderr.splitlines()[-1] == f"stopped; the same command resumes the study in {tmp_path / 'study'}."
    assert answer(*words, "--trials", "4")["trials"] >= 4
