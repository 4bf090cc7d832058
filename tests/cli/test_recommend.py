"""``dgcf recommend``, ``similar``, ``explain`` and ``export`` as a person uses them: real processes, a real run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dgcf.data import Dataset
from dgcf.data.synthetic import planted
from dgcf.train import Run, resolve, train
from tests.conftest import hear_ctrl_c


@pytest.fixture(scope="module")
def films() -> Dataset:
    return planted(n_users=150, n_items=160)


@pytest.fixture(scope="module")
def run(films: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    films.save(folder / "films")
    settings = {"layers": 2, "dim": 16, "epochs": 60, "learning_rate": 1e-2, "l2": 1e-2}
    recipe = resolve("dgcf", preset="plain", settings=settings)
    kept = Run.create(folder / "run", films, recipe, seed=0, device="cpu", source=str(folder / "films"))
    train(films, recipe, device="cpu", run=kept)
    return folder / "run"


def test_a_known_user_gets_five_unseen_items(dgcf_json: Any, run: Path, films: Dataset) -> None:
    found = dgcf_json("recommend", run, "--user", "u00007", "-k", "5")
    assert found["user"] == "u00007"
    assert [set(row) for row in found["recommendations"]] == [{"item", "title", "score", "rank"}] * 5
    assert [row["rank"] for row in found["recommendations"]] == [1, 2, 3, 4, 5]
    index = films.users.index_of("u00007")
    seen = {films.items.texts[item] for item in films.train.union(films.validation, films.test)[index]}
    items = [row["item"] for row in found["recommendations"]]
    assert set(items) <= set(films.items.texts) - seen
    assert [row["title"] for row in found["recommendations"]] == [
        films.items.title_of(films.items.index_of(item)) for item in items
    ]


def test_a_stranger_is_recommended_to_with_reasons(dgcf_json: Any, dgcf: Any, run: Path, films: Dataset) -> None:
    assert films.items.titles is not None
    likes = [title for title in films.items.titles if title.endswith("(Space)")][:3]
    words = [word for title in likes for word in ("--items", title)]
    found = dgcf_json("recommend", run, *words, "-k", "4", "--why")
    assert found["user"] is None
    assert [item["title"] for item in found["items"]] == likes
    assert not {row["title"] for row in found["recommendations"]} & set(likes)
    assert all("because you liked The" in row["why"] for row in found["recommendations"])
    shown = dgcf("recommend", run, *words, "--why", env={**os.environ, "COLUMNS": "200"})
    assert "For a new user who likes " + ", ".join(likes) in shown.stdout
    assert "because you liked" in shown.stdout


def test_what_is_new_of_a_known_user(dgcf_json: Any, run: Path) -> None:
    before = dgcf_json("recommend", run, "--user", "u00007", "-k", "3")
    first = before["recommendations"][0]["item"]
    after = dgcf_json("recommend", run, "--user", "u00007", "--items", first, "-k", "3")
    assert after["user"] == "u00007"
    assert first not in [row["item"] for row in after["recommendations"]]


def test_an_explanation_adds_up(dgcf_json: Any, run: Path, tmp_path: Path) -> None:
    item = dgcf_json("recommend", run, "--user", "u00007", "-k", "1")["recommendations"][0]
    found = dgcf_json("explain", run, "--user", "u00007", "--item", item["title"], "--plot", cwd=tmp_path)
    assert found["score"] == item["score"]
    assert abs(found["residual"]) <= 1e-5 * max(1, abs(found["score"]))
    assert sum(part["value"] for part in found["parts"]) == pytest.approx(found["score"], abs=1e-5)
    assert {part["kind"] for part in found["parts"]} == {"item", "user", "prior"}
    assert all(sum(part["layers"]) == pytest.approx(part["value"]) for part in found["parts"])
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    short = dgcf_json("explain", run, "--user", "u00007", "--item", item["item"], "--top", "2")
    assert len(short["parts"]) <= 7
    assert sum(part["value"] for part in short["parts"]) == pytest.approx(found["score"], abs=1e-5)


def test_an_explanation_can_be_read(dgcf: Any, run: Path) -> None:
    done = dgcf("explain", run, "--items", "i00001", "--item", "i00009")
    assert done.returncode == 0, done.stderr
    assert "because you liked" in done.stdout
    assert "unexplained:" in done.stdout


def test_likeness(dgcf_json: Any, dgcf: Any, run: Path) -> None:
    found = dgcf_json("similar", run, "--item", "i00004", "-k", "3")
    assert found["item"] == "i00004"
    assert [set(row) for row in found["similar"]] == [{"item", "title", "score", "rank"}] * 3
    assert all(-1 <= row["score"] <= 1 for row in found["similar"])
    assert "i00004" not in [row["item"] for row in found["similar"]]
    assert [row["rank"] for row in dgcf_json("similar", run, "--user", "u00004")["similar"]] == list(range(1, 11))
    assert "Similar to u00004" in dgcf("similar", run, "--user", "u00004").stdout


def test_everybody_into_a_file_and_an_artefact_says_the_same(
    dgcf_json: Any, dgcf: Any, run: Path, films: Dataset, tmp_path: Path
) -> None:
    dgcf_json("export", run, "--out", tmp_path / "films.dgcf")
    told = dgcf_json("recommend", run, "--all", "-k", "3", "--out", tmp_path / "all.parquet")
    assert (told["users"], told["rows"], told["format"]) == (150, 450, "parquet")
    done = dgcf("recommend", tmp_path / "films.dgcf", "--all", "-k", "3", "--out", tmp_path / "all.jsonl")
    assert "450 recommendations for 150 users" in done.stdout
    table = duckdb.sql(f"SELECT user, item, rank, score, title FROM '{tmp_path}/all.parquet'").fetchall()
    lines = [tuple(json.loads(line).values()) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert table == lines
    one = dgcf_json("recommend", run, "--user", table[9][0], "-k", "3")["recommendations"]
    assert [(row["item"], row["rank"], row["score"]) for row in one] == [row[1:4] for row in table[9:12]]


def test_fewer_and_twice_are_said(dgcf: Any, run: Path) -> None:
    few = dgcf("recommend", run, "--user", "u00003", "-k", "1000")
    assert few.returncode == 0
    assert "note: 1000 were asked for, but as few as" in few.stderr
    twice = dgcf("recommend", run, "--items", "i00001", "--items", "i00001", "--json")
    assert json.loads(twice.stdout)["notes"][0].endswith("was given more than once and counts once.")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--user", "u0007"], "unknown user 'u0007' among 150; did you mean"),
        (["--items", "The Silent Harbr (Noir)"], "no item has the id or the title"),
        (["--items", "Silent"], "'Silent' matches"),
        (["--user", "u00007", "-k", "0"], "k is 0"),
        ([], "no user was given; use --user ID"),
        (["--all"], "--all requires a file; name it with --out"),
        (["--all", "--out", "x.xls"], "x.xls does not say a format"),
        (["--all", "--out", "x.csv", "--user", "u00007"], "leave out the options for one user"),
        (["--user", "u00007", "--out", "x.csv"], "--out requires --all"),
        (["--user", "u00007", "--exclude", "nothing like it"], "no item has the id or the title 'nothing like it'"),
    ],
)
def test_bad_questions_are_one_sentence(refused: Any, run: Path, words: list[str], told: str, tmp_path: Path) -> None:
    assert told in refused("recommend", run, *words, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", [["recommend", "--user", "1"], ["similar", "--item", "1"], ["export", "--out", "x"]])
def test_what_is_no_run_is_one_sentence(refused: Any, verb: list[str], tmp_path: Path) -> None:
    name, *words = verb
    assert "does not exist; give a saved recommender" in refused(name, tmp_path / "nowhere", *words)
    (tmp_path / "cut.dgcf").write_bytes(b"PK\x03\x04")
    assert "damaged or not a recommender" in refused(name, tmp_path / "cut.dgcf", *words)
    assert "neither a recommender nor a run" in refused(name, tmp_path, *words)


def test_embeddings_go_where_they_are_asked_or_beside(dgcf_json: Any, run: Path, tmp_path: Path) -> None:
    assert dgcf_json("export", run, cwd=tmp_path)["out"] == "run-embeddings"
    assert {file.name for file in (tmp_path / "run-embeddings").iterdir()} >= {
        "users.npy",
        "items.npy",
        "item_ids.json",
    }
    told = dgcf_json("export", run, "--to", "parquet", "--out", "tables", cwd=tmp_path)
    assert (told["users"], told["items"], told["dim"]) == (150, 160, 16)
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/tables/items.parquet'").fetchall() == [(160,)]
    dgcf_json("export", run, "--to", "dgcf", cwd=tmp_path)
    assert len(dgcf_json("recommend", tmp_path / "run.dgcf", "--user", "u00001", "-k", "2")["recommendations"]) == 2


def test_options_that_do_not_go_together(refused: Any, run: Path) -> None:
    assert "expected either an item or a user" in refused("similar", run)
    assert "expected either an item or a user" in refused("similar", run, "--item", "i00001", "--user", "u00001")
    assert "no user was given" in refused("explain", run, "--item", "i00001")
    assert "unknown export 'csv'" in refused("export", run, "--out", "x", "--to", "csv")


def test_ctrl_c_leaves_nothing_half_written_and_the_next_try_goes_on(run: Path, dgcf_json: Any, tmp_path: Path) -> None:
    """The chunk size is lowered so that the small dataset has many."""
    dgcf_json("export", run, "--out", tmp_path / "films.dgcf")
    code = (
        "import time, dgcf.recommend.batch as b, dgcf.ranking.topk as r\n"
        "b.Batch.__init__.__defaults__ = (20, True, 5)\n"
        "old = r.NumpyBackend.candidates\n"
        "def slow(*a): time.sleep(0.2); return old(*a)\n"
        "r.NumpyBackend.candidates = slow\n"
        "from dgcf.cli import main; main()"
    )
    words = ["recommend", str(tmp_path / "films.dgcf"), "--all", "-k", "2", "--out", str(tmp_path / "all.csv")]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c
    )
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob(".all.csv.chunks/0*.parquet"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped by the keyboard" in told
    assert not (tmp_path / "all.csv").exists()
    done = subprocess.run([sys.executable, "-c", code, *words, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["resumed"] >= 2
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 301


@pytest.mark.slow
@pytest.mark.data("movielens/ml-100k")
def test_movielens_end_to_end(dgcf_json: Any, tmp_path: Path) -> None:
    """The promises of the README on real data: user 196, and somebody with three films."""
    words = ("--preset", "plain", "--set", "epochs=10", "--set", "dim=16", "--out", tmp_path / "run")
    dgcf_json("train", "ml-100k", *words, timeout=600)
    found = dgcf_json("recommend", tmp_path / "run", "--user", "196", "-k", "5")
    assert found["user"] == "196"
    assert len(found["recommendations"]) == 5
    likes = ("--items", "Toy Story", "--items", "Aladdin", "--items", "Lion King")
    stranger = dgcf_json("recommend", tmp_path / "run", *likes)
    assert [item["title"] for item in stranger["items"]] == [
        "Toy Story (1995)",
        "Aladdin (1992)",
        "Lion King, The (1994)",
    ]
    item = found["recommendations"][0]["item"]
    why = dgcf_json("explain", tmp_path / "run", "--user", "196", "--item", item)
    assert abs(why["residual"]) <= 1e-5 * max(1, abs(why["score"]))
