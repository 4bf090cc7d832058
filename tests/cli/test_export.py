"""``dgcf export`` in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.cli.in_process import refusal
from tests.postgres import PASSWORD, postgres


def test_embeddings_are_written_to_out_or_a_default_name(dgcf_json: Any, film_run: Path, tmp_path: Path) -> None:
    assert dgcf_json("export", film_run, cwd=tmp_path)["out"] == "run-embeddings"
    assert {file.name for file in (tmp_path / "run-embeddings").iterdir()} >= {
        "users.npy",
        "items.npy",
        "item_ids.json",
    }
    told = dgcf_json("export", film_run, "--to", "parquet", "--out", "tables", cwd=tmp_path)
    assert (told["users"], told["items"], told["dim"]) == (150, 160, 16)
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/tables/items.parquet'").fetchall() == [(160,)]
    dgcf_json("export", film_run, "--to", "dgcf", cwd=tmp_path)
    assert len(dgcf_json("recommend", tmp_path / "run.dgcf", "--user", "u00001", "-k", "2")["recommendations"]) == 2


def test_default_names_do_not_collide(dgcf_json: Any, film_run: Path, tmp_path: Path) -> None:
    """Each format, a second export, and equal names of runs in two folders have names of their own."""
    words = [(), ("--to", "parquet"), ("--to", "dgcf"), ("--to", "dgcf"), (), ("--to", "dgcf", "--overwrite")]
    names = [dgcf_json("export", film_run, *more, cwd=tmp_path)["out"] for more in words]
    assert names[0] == "run-embeddings"
    assert names[2] == names[5] == "run.dgcf"
    assert len(set(names)) == 5
    assert {file.name for file in tmp_path.iterdir()} == set(names)
    for parent in "ab":
        (tmp_path / parent).mkdir()
        (tmp_path / parent / "seed-0").symlink_to(film_run, target_is_directory=True)
    seeds = [dgcf_json("export", tmp_path / parent / "seed-0", "--to", "dgcf", cwd=tmp_path)["out"] for parent in "ab"]
    assert seeds == ["a-seed-0.dgcf", "b-seed-0.dgcf"]


def test_unknown_format_is_refused(refused: Any, film_run: Path) -> None:
    assert "unknown export 'csv'" in refused("export", film_run, "--out", "x", "--to", "csv")


def test_vectors_go_to_postgres_and_the_password_nowhere_else(
    dgcf: Any, dgcf_json: Any, film_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres("vector") as dsn:
        (tmp_path / "env").write_text(f"DGCF_PGVECTOR_DSN={dsn}\n")
        words = ("export", film_run, "--to", "pgvector", "--env-file", tmp_path / "env")
        result = dgcf_json(*words, "--name", "films", "--check-users", "30")
        assert result["check"] == {"users": 30, "k": 20, "recall": 1.0, "recall_of_vectors": 1.0}
        assert result["tables"] == ["films_users", "films_items"]
        assert PASSWORD not in str(result)
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT count(*) FROM films_items").fetchone() == (160,)
        again = dgcf(*words, "--name", "films", "--json")
        assert again.returncode == 1
        assert "films_users exists already" in again.stderr
        monkeypatch.setenv("DGCF_PGVECTOR_DSN", dsn.replace(PASSWORD, f"{PASSWORD}-wrong"))
        refused = dgcf("export", film_run, "--to", "pgvector")
        assert refused.returncode == 1
        assert "password authentication failed" in refused.stderr
        assert PASSWORD not in again.stdout + again.stderr + refused.stdout + refused.stderr


def test_a_recall_below_the_least_is_an_error(refused: Any, film_run: Path, tmp_path: Path) -> None:
    """An inverted file of four lists, of which one is searched, misses items."""
    words = ("--to", "faiss", "--index", "ivf", "--min-recall", "0.999")
    assert "below --min-recall 0.999, so that nothing was replaced" in refused("export", film_run, *words, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--to", "pgvector"), "DGCF_PGVECTOR_DSN is not set"),
        (("--to", "qdrant"), "DGCF_QDRANT_URL is not set"),
        (("--to", "pgvector", "--name", "Films; --"), "--name is 'Films; --', expected a lower-case letter"),
        (("--to", "faiss", "--index", "hsnw"), "--index is 'hsnw', but faiss offers flat, hnsw, ivf"),
        (("--to", "faiss", "--min-recall", "95"), "--min-recall is 95, expected a number from 0 to 1"),
        (("--to", "faiss", "--name", "x"), "--name is for pgvector and qdrant"),
        (("--mlflow", "--hub", "a/b"), "--hub and --mlflow were given"),
        (("--register", "x"), "--register is for --mlflow"),
    ],
)
def test_wrong_options_are_refused(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    """Before anything is loaded or written."""
    assert sentence in refusal("export", tmp_path / "absent", *words)
