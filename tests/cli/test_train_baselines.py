"""``dgcf train`` ends with a comparison with baselines: when, what it prints, and which model it recommends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from shlex import quote, split
from typing import Any

import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.data.synthetic import planted
from tests.cli.in_process import invoke
from tests.cli.processes import PLAIN
from tests.train.planted_tastes import planted_tastes

Json = Callable[..., dict[str, Any]]
BASELINES = ["popularity", "item-knn", "ease", "ials"]
LINE = re.compile(r"^validation recall@20: ([a-z-]+ (\.\d{4}|1\.0000)(, |$)){5}", re.MULTILINE)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(n_users=60, n_items=50).save(tmp_path_factory.mktemp("data") / "it's")


def text(*words: str | Path) -> str:
    done = CliRunner().invoke(application(), [*map(str, words)])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_default_run_is_compared_in_json(dgcf_json: Json, data: Path, tmp_path: Path) -> None:
    answer = dgcf_json("train", data, "--device", "cpu", "--seed", "3", "--out", tmp_path / "run")
    standing = answer["baselines"]
    assert set(standing) == {"metric", "models", "left_out", "best"}
    assert ([each["model"] for each in standing["models"]], standing["left_out"]) == (BASELINES, [])
    metric = standing["metric"]
    values = {answer["model"]: answer["validation"][metric]}
    for each in standing["models"]:
        assert set(each) == {"model", "seconds", "validation", "test"}
        assert set(each["validation"]) == set(answer["validation"])
        assert set(each["test"]) == set(answer["test"])
        values[each["model"]] = each["validation"][metric]
    assert values[standing["best"]] == max(values.values())
    ials = dgcf_json("train", data, "--model", "ials", "--out", tmp_path / "ials")
    assert ials["baselines"] is None
    assert (ials["validation"], ials["test"]) == (standing["models"][3]["validation"], standing["models"][3]["test"])


def test_default_run_of_a_process_ends_with_one_line(dgcf: Any, data: Path, tmp_path: Path) -> None:
    done = dgcf("train", data, "--device", "cpu", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    shown = done.stdout.partition("run: ")[2].splitlines()[1:]
    assert re.match(r"validation [a-z]+@\d+: ", shown[0])
    assert all(f" {model} " in shown[0] for model in ("dgcf", *BASELINES)), shown
    first = shown[0].partition(": ")[2].partition(" ")[0]
    assert len(shown) == 1 + (first != "dgcf"), shown


@pytest.mark.slow
def test_better_baseline_is_recommended_with_its_command(data: Path, tmp_path: Path) -> None:
    words = ("train", data, "--model", "random", "--seeds", "2", "--baselines")
    *_, line, advice = text(*words, "--out", tmp_path / "text").splitlines()
    assert LINE.match(line)
    best = line.partition(": ")[2].partition(" ")[0]
    assert advice == f"{best} is better here: dgcf train {quote(str(data))} --model {best}"
    answer = invoke(*words, "--out", tmp_path / "json")
    assert answer["baselines"]["best"] == best
    assert f"random {answer['validation']['recall@20']['mean']:.4f}".replace(" 0", " ") in line
    assert all("baselines" not in run for run in answer["runs"])


def test_best_model_has_no_advice(tmp_path: Path) -> None:
    data = planted_tastes().save(tmp_path / "data")
    shown = text("train", data, "--model", "item-knn", "--baselines", "--out", tmp_path / "run").splitlines()
    assert shown[-1].startswith("validation recall@20: item-knn ")
    assert "is better here" not in "\n".join(shown)


@pytest.mark.parametrize(
    "words",
    [("--no-baselines",), ("--model", "popularity"), ("--preset", "plain", "--set", "epochs=2")],
    ids=lambda words: words[0],
)
def test_other_runs_are_not_compared(data: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    answer = invoke("train", data, "--device", "cpu", *words, "--out", tmp_path / "run")
    assert answer["baselines"] is None
    assert "validation recall@20: " not in text("train", data, *words, "--device", "cpu", "--out", tmp_path / "again")


@pytest.mark.slow
def test_file_of_settings_and_resume_are_compared_on_demand(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text('model = "bpr-mf"\npreset = "plain"\nepochs = 2\ndim = 4\n')
    run = tmp_path / "run"
    assert invoke("train", data, "--config", tmp_path / "file.toml", "--out", run)["baselines"] is None
    assert invoke("train", "--resume", run)["baselines"] is None
    standing = invoke("train", "--resume", run, "--baselines")["baselines"]
    assert [each["model"] for each in standing["models"]] == BASELINES
    advice = text("train", "--resume", run, "--baselines").splitlines()[-1]
    assert f"is better here: dgcf train {quote(str(data))} --model " in advice


def test_without_validation_split_the_reason_is_given(tmp_path: Path) -> None:
    data = planted_tastes(validation=False).save(tmp_path / "data")
    standing = invoke("train", data, *PLAIN, "--baselines", "--out", tmp_path / "run")["baselines"]
    assert (standing["models"], standing["best"]) == ([], None)
    assert [each["model"] for each in standing["left_out"]] == BASELINES
    assert {each["reason"] for each in standing["left_out"]} == {
        "there is no validation split to compare on; prepare the dataset with one."
    }
    shown = text("train", data, *PLAIN, "--baselines", "--out", tmp_path / "text").splitlines()
    assert shown[-1].startswith("not compared with the baselines: there is no validation split")


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A cp1252 export with columns that have no common names; `random` cannot be the best model on it."""
    path = tmp_path / "der verkauf.csv"
    rows = [f"K{user};Ärmel {(user % 5) * 8 + step};{1 if step else -1}" for user in range(60) for step in range(8)]
    path.write_text("\n".join(["Kunde;Artikel;Menge", ";Ärmel 1;1", *rows]) + "\n", encoding="windows-1252")
    return path


READ = ["--encoding", "windows-1252", "--user-col", "Kunde", "--item-col", "Artikel", "--missing", "skip", "--header"]
READ += ["--where", "Menge > 0 and Kunde <> 'K 9'"]


def test_recommended_command_reads_the_file_in_the_same_way(export: Path, tmp_path: Path) -> None:
    words = ("train", export, *READ, "--model", "random", "--baselines", "--out", tmp_path / "run")
    *_, advice = text(*words).splitlines()
    _, _, command = advice.partition(" is better here: ")
    given, *again = split(command)
    assert given == "dgcf", advice
    assert fingerprint(again, tmp_path / "better") == fingerprint(None, tmp_path / "run")


def test_command_of_tune_reads_the_file_in_the_same_way(export: Path, tmp_path: Path) -> None:
    shown = text("tune", export, *READ, "--model", "item-knn", "--trials", "2", "--out", tmp_path / "study")
    given, *again = split(shown.rpartition("train: ")[2])
    assert given == "dgcf", shown
    text("train", export, *READ, "--model", "random", "--out", tmp_path / "run")
    assert fingerprint(again, tmp_path / "better") == fingerprint(None, tmp_path / "run")


def fingerprint(words: list[str] | None, run: Path) -> str:
    """Return the fingerprint of the data of a run, after training it with the command ``words``."""
    if words is not None:
        text(*words, "--out", run)
    return str(json.loads((run / "run.json").read_text())["dataset"]["fingerprint"])
