"""``dgcf recommend`` in real processes, with a trained run."""

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
from tests.conftest import hear_ctrl_c


def test_user_gets_five_unseen_items(dgcf_json: Any, film_run: Path, films: Dataset) -> None:
    answer = dgcf_json("recommend", film_run, "--user", "u00007", "-k", "5")
    assert answer["user"] == "u00007"
    assert [set(row) for row in answer["recommendations"]] == [{"item", "title", "score", "rank"}] * 5
    assert [row["rank"] for row in answer["recommendations"]] == [1, 2, 3, 4, 5]
    index = films.users.index_of("u00007")
    seen = {films.items.texts[item] for item in films.train.union(films.validation, films.test)[index]}
    items = [row["item"] for row in answer["recommendations"]]
    assert set(items) <= set(films.items.texts) - seen
    assert [row["title"] for row in answer["recommendations"]] == [
        films.items.title_of(films.items.index_of(item)) for item in items
    ]


def test_new_user_gets_explained_recommendations(dgcf_json: Any, dgcf: Any, film_run: Path, films: Dataset) -> None:
    assert films.items.titles is not None
    likes = [title for title in films.items.titles if title.endswith("(Space)")][:3]
    words = [word for title in likes for word in ("--items", title)]
    answer = dgcf_json("recommend", film_run, *words, "-k", "4", "--why")
    assert answer["user"] is None
    assert [item["title"] for item in answer["items"]] == likes
    assert not {row["title"] for row in answer["recommendations"]} & set(likes)
    assert all("because you liked The" in row["why"] for row in answer["recommendations"])
    shown = dgcf("recommend", film_run, *words, "--why", env={**os.environ, "COLUMNS": "200"})
    assert "For a new user who likes " + ", ".join(likes) in " ".join(shown.stdout.split())
    reasons = [line.partition(". ")[2] for line in shown.stdout.splitlines() if "because you liked" in line]
    assert reasons[:4] == [row["why"] for row in answer["recommendations"]]


def test_new_items_of_a_known_user_count(dgcf_json: Any, film_run: Path) -> None:
    before = dgcf_json("recommend", film_run, "--user", "u00007", "-k", "3")
    first = before["recommendations"][0]["item"]
    after = dgcf_json("recommend", film_run, "--user", "u00007", "--items", first, "-k", "3")
    assert after["user"] == "u00007"
    assert first not in [row["item"] for row in after["recommendations"]]


def test_batch_of_run_and_artifact_equals_single_users(
    dgcf_json: Any, dgcf: Any, film_run: Path, films: Dataset, tmp_path: Path
) -> None:
    dgcf_json("export", film_run, "--out", tmp_path / "films.dgcf")
    batch = dgcf_json("recommend", film_run, "--all", "-k", "3", "--out", tmp_path / "all.parquet")
    assert (batch["users"], batch["rows"], batch["format"]) == (150, 450, "parquet")
    done = dgcf("recommend", tmp_path / "films.dgcf", "--all", "-k", "3", "--out", tmp_path / "all.jsonl")
    assert "450 recommendations for 150 users" in done.stdout
    table = duckdb.sql(f"SELECT user, item, rank, score, title FROM '{tmp_path}/all.parquet'").fetchall()
    lines = [tuple(json.loads(line).values()) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert table == lines
    single = dgcf_json("recommend", film_run, "--user", table[9][0], "-k", "3")["recommendations"]
    assert [(row["item"], row["rank"], row["score"]) for row in single] == [row[1:4] for row in table[9:12]]


def test_short_lists_and_repeated_items_are_noted(dgcf: Any, film_run: Path) -> None:
    few = dgcf("recommend", film_run, "--user", "u00003", "-k", "1000")
    assert few.returncode == 0
    assert "note: k is 1000, but only" in few.stderr
    twice = dgcf("recommend", film_run, "--items", "i00001", "--items", "i00001", "--json")
    assert json.loads(twice.stdout)["notes"][0].endswith("was given more than once and counts once.")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--user", "u0007"], "unknown user 'u0007' among 150; did you mean"),
        (["--items", "The Silent Harbr (Noir)"], "no item has the id or the title"),
        (["--items", "Silent"], "'Silent' matches"),
        (["--user", "u00007", "-k", "0"], "k is 0"),
        ([], "no user was given; use --user ID"),
        (["--all"], "--all requires a file; name it with --out"),
        (["--all", "--out", "x.xls"], "x.xls has no known suffix"),
        (["--all", "--out", "x.csv", "--user", "u00007"], "leave out the options for one user"),
        (["--user", "u00007", "--out", "x.csv"], "--out requires --all"),
        (["--user", "u00007", "--exclude", "nothing like it"], "no item has the id or the title 'nothing like it'"),
    ],
)
def test_bad_options_are_one_sentence(
    refused: Any, film_run: Path, words: list[str], sentence: str, tmp_path: Path
) -> None:
    assert sentence in refused("recommend", film_run, *words, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", [["recommend", "--user", "1"], ["similar", "--item", "1"], ["export", "--out", "x"]])
def test_path_without_a_recommender_is_one_sentence(refused: Any, verb: list[str], tmp_path: Path) -> None:
    name, *words = verb
    assert "does not exist; give a saved recommender" in refused(name, tmp_path / "nowhere", *words)
    (tmp_path / "cut.dgcf").write_bytes(b"PK\x03\x04")
    assert "damaged or not a recommender" in refused(name, tmp_path / "cut.dgcf", *words)
    assert "neither a recommender nor a run" in refused(name, tmp_path, *words)


def test_ctrl_c_leaves_no_partial_file_and_the_next_call_resumes(
    film_run: Path, dgcf_json: Any, tmp_path: Path
) -> None:
    """The chunk size is lowered so that the small dataset has many."""
    dgcf_json("export", film_run, "--out", tmp_path / "films.dgcf")
    code = (
        "import time, dgcf.recommend.batch as b, dgcf.ranking.topk as r\n"
        "b.Batch.__init__.__defaults__ = (20, True, 5, None)\n"
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
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped by the keyboard" in stderr
    assert not (tmp_path / "all.csv").exists()
    done = subprocess.run([sys.executable, "-c", code, *words, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["resumed"] >= 2
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 301


@pytest.mark.slow
@pytest.mark.data("movielens/ml-100k")
def test_movielens_end_to_end(dgcf_json: Any, tmp_path: Path) -> None:
    """The examples of the README on real data: user 196, and a new user with three films."""
    words = ("--preset", "plain", "--set", "epochs=10", "--set", "dim=16", "--out", tmp_path / "run")
    dgcf_json("train", "ml-100k", *words, timeout=600)
    answer = dgcf_json("recommend", tmp_path / "run", "--user", "196", "-k", "5")
    assert answer["user"] == "196"
    assert len(answer["recommendations"]) == 5
    likes = ("--items", "Toy Story", "--items", "Aladdin", "--items", "Lion King")
    new_user = dgcf_json("recommend", tmp_path / "run", *likes)
    assert [item["title"] for item in new_user["items"]] == [
        "Toy Story (1995)",
        "Aladdin (1992)",
        "Lion King, The (1994)",
    ]
    item = answer["recommendations"][0]["item"]
    why = dgcf_json("explain", tmp_path / "run", "--user", "196", "--item", item)
    assert abs(why["residual"]) <= 1e-5 * max(1, abs(why["score"]))
