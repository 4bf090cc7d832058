"""Models that are solved at once, from the command line: the same verbs, the same fields."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.data.dataset import Dataset
from dgcf.data.synthetic import planted
from dgcf.models import CATALOG
from tests.cli.in_process import invoke, refusal

Json = Callable[..., dict[str, Any]]
SOLVED = [name for name, entry in CATALOG.items() if entry.solved]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(n_users=80, n_items=90).save(tmp_path_factory.mktemp("data") / "films")


def test_ease_is_trained_measured_and_explained(dgcf_json: Json, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    answer = dgcf_json("train", data, "--model", "ease", "--set", "l2=20", "--out", run)
    assert (answer["model"], answer["epochs"], answer["best_epoch"]) == ("ease", 1, 1)
    assert json.loads((run / "run.json").read_text())["settings"] == {"l2": 20}
    measured = dgcf_json("evaluate", run)
    assert measured["recall@20"] == answer["test"]["recall@20"]
    rows = dgcf_json("recommend", run, "--user", "u00003", "-k", "3", "--why")["recommendations"]
    assert all("because you liked" in row["why"] for row in rows)
    why = dgcf_json("explain", run, "--user", "u00003", "--item", rows[0]["item"])
    assert sum(part["value"] for part in why["parts"]) == pytest.approx(rows[0]["score"], rel=1e-12)
    # Only the user's own items; the other kinds, those of composed rankings among them, are named with nothing.
    assert why["by_kind"] == {"item": pytest.approx(rows[0]["score"]), "weights": 0.0, "user": 0.0, "prior": 0.0}
    dataset = Dataset.load(data)
    own = {dataset.items.id_of(item) for item in dataset.train[dataset.users.index_of("u00003")]}
    assert {part["kind"] for part in why["parts"]} == {"item"}
    assert {part["id"] for part in why["parts"]} == own
    assert dgcf_json("train", "--resume", run)["test"] == answer["test"]


ONE_BY_ONE = [name if name == "ease" else pytest.param(name, marks=pytest.mark.slow) for name in SOLVED]


@pytest.mark.parametrize("model", ONE_BY_ONE)
def test_every_verb_accepts_every_solved_model(model: str, data: Path, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    answer = invoke("train", data, "--model", model, "--out", run)
    assert (answer["epochs"], answer["best_epoch"], answer["users_evaluated"]) == (1, 1, 80)
    invoke("train", data, "--model", "popularity", "--out", other)
    pair = invoke("compare", run, other)
    assert pair["comparisons"][0]["first"] == answer["test"]["recall@20"]
    assert len(invoke("recommend", run, "--user", "u00003", "-k", "4")["recommendations"]) == 4
    if model != "popularity":
        assert len(invoke("similar", run, "--item", "i00003", "-k", "2")["similar"]) == 2
    invoke("recommend", run, "--all", "-k", "3", "--out", tmp_path / "all.csv")
    assert duckdb.sql(f"SELECT count(*) FROM read_csv('{tmp_path / 'all.csv'}')").fetchall() == [(240,)]
    invoke("export", run, "--out", tmp_path / "rec.dgcf")
    again = invoke("recommend", tmp_path / "rec.dgcf", "--user", "u00003", "-k", "4")
    assert again == invoke("recommend", run, "--user", "u00003", "-k", "4")


def test_several_seeds_have_one_summary(data: Path, tmp_path: Path) -> None:
    answer = invoke("train", data, "--model", "random", "--seeds", "3", "--out", tmp_path / "runs")
    assert answer["seeds"] == [0, 1, 2]
    assert len({run["test"]["recall@20"] for run in answer["runs"]}) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--set", "learning_rate=0.1"), "model ease is solved at once, not trained in epochs, so it has no setting"),
        (("--set", "l3=1"), "model ease has no setting 'l3'; did you mean 'l2'?"),
        (("--set", "l2=0"), "l2 is 0"),
        (("--set", "l2=high"), "l2 of model ease is 'high', expected number"),
    ],
)
def test_bad_setting_of_ease_is_refused(data: Path, tmp_path: Path, words: Any, sentence: str) -> None:
    assert sentence in refusal("train", data, "--model", "ease", *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_gates_of_a_model_without_gates_are_refused(data: Path, tmp_path: Path) -> None:
    invoke("train", data, "--model", "item-knn", "--out", tmp_path / "run")
    assert "this model has no gates to look at" in refusal("evaluate", tmp_path / "run", "--gates")


def test_unsolvable_ials_is_refused_and_leaves_no_files(data: Path, tmp_path: Path) -> None:
    words = ["train", data, "--model", "ials", "--set", "alpha=1e9", "--set", "regularization=1e-9"]
    done = CliRunner().invoke(application(), [*map(str, words), "--out", str(tmp_path / "run")])
    assert done.exit_code != 0
    assert "iALS has no solution in float32; raise regularization or lower alpha" in done.stderr
    assert list(tmp_path.iterdir()) == []
