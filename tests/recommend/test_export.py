"""Exports: the numbers that other tools read are the ones that we rank with."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dgcf
from dgcf.errors import ConfigError, DataError
from dgcf.recommend import Recommender
from dgcf.recommend.export import export


def test_arrays(fitted: Recommender, tmp_path: Path) -> None:
    summary = export(fitted.snapshot, tmp_path / "out")
    assert summary["format"] == "npy"
    users, items = np.load(tmp_path / "out" / "users.npy"), np.load(tmp_path / "out" / "items.npy")
    np.testing.assert_array_equal(users, fitted.snapshot.user_rows)
    np.testing.assert_array_equal(items, fitted.snapshot.item_rows)
    assert json.loads((tmp_path / "out" / "user_ids.json").read_text()) == fitted.snapshot.users.texts
    assert json.loads((tmp_path / "out" / "item_titles.json").read_text()) == list(fitted.snapshot.items.titles or ())


def test_parquet(fitted: Recommender, tmp_path: Path) -> None:
    export(fitted.snapshot, tmp_path / "o'ut", "parquet")
    file = str(tmp_path / "o'ut" / "items.parquet").replace("'", "''")
    rows = duckdb.sql(f"SELECT id, title, embedding FROM '{file}'").fetchall()
    assert [row[0] for row in rows] == fitted.snapshot.items.texts
    assert tuple(row[1] for row in rows) == fitted.snapshot.items.titles
    np.testing.assert_array_equal(np.array([row[2] for row in rows], np.float32), fitted.snapshot.item_rows)


def test_recommender_file(fitted: Recommender, tmp_path: Path) -> None:
    export(fitted.snapshot, tmp_path / "films.dgcf")
    assert dgcf.load(tmp_path / "films.dgcf").recommend("u00004", 5) == fitted.recommend("u00004", 5)
    with pytest.raises(ConfigError, match=r"name it films\.dgcf"):
        export(fitted.snapshot, tmp_path / "films", "dgcf")


def test_unknown_formats_and_existing_targets(fitted: Recommender, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown export 'parket', expected one of .*did you mean 'parquet'"):
        export(fitted.snapshot, tmp_path / "out", "parket")
    with pytest.raises(ConfigError, match="faiss is an export of vectors"):
        export(fitted.snapshot, tmp_path / "out.faiss")
    export(fitted.snapshot, tmp_path / "out")
    with pytest.raises(DataError, match="exists already"):
        export(fitted.snapshot, tmp_path / "out")
    (tmp_path / "out" / "users.npy").write_bytes(b"old")
    export(fitted.snapshot, tmp_path / "out", overwrite=True)
    assert np.load(tmp_path / "out" / "users.npy").shape == (150, 16)
