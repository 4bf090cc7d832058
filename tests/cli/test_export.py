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


def test_unknown_format_is_refused(refused: Any, film_run: Path) -> None:
    assert "unknown export 'csv'" in refused("export", film_run, "--out", "x", "--to", "csv")
