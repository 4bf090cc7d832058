"""``dgcf export`` in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb


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
