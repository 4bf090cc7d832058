"""Exports of events are recognised by their columns, and update data whose columns have other names."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dgcf.data.event_export import COLUMNS, is_event_export
from tests.cli.in_process import invoke

EVENTS = [
    ("c1", "s2", 2e9, "like", 3.0, 1),
    ("new", "s2", 2e9 + 1, "view", 1.0, 2),
    ("c2", "fresh", 2e9 + 2, "cart", 1.0, 3),
]


def write_export(path: Path) -> Path:
    with duckdb.connect() as con:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        con.execute(f"CREATE TABLE events ({columns})")
        con.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", EVENTS)
        con.execute(f"COPY events TO '{path}' (FORMAT parquet)")
    return path


def test_only_a_parquet_file_with_exactly_these_columns_is_an_export(tmp_path: Path) -> None:
    export = write_export(tmp_path / "events.parquet")
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT user, item FROM '{export}') TO '{tmp_path / 'other.parquet'}' (FORMAT parquet)")
    (tmp_path / "events.csv").write_text(",".join(COLUMNS) + "\n")
    assert is_event_export(export)
    assert is_event_export(str(export))
    for other in (tmp_path / "other.parquet", tmp_path / "events.csv", tmp_path, tmp_path / "missing.parquet", [1]):
        assert not is_event_export(other)


@pytest.mark.parametrize("weights", [(), ("--weight-col", "Quantity")], ids=["plain", "weighted"])
def test_an_export_updates_a_run_whose_columns_have_other_names(tmp_path: Path, weights: tuple[str, ...]) -> None:
    lines = [
        f"c{user},s{item},{1 + item % 4},{1_700_000_000 + user + item},5"
        for user in range(30)
        for item in range(user % 3, 24, 3)
    ]
    (tmp_path / "shop.csv").write_text("CustomerID,StockCode,Quantity,InvoiceDate,rating\n" + "\n".join(lines) + "\n")
    words = ("--set", "dim=8", "--set", "epochs=2", "--no-baselines", "--device", "cpu", "--where", "Quantity > 0")
    invoke("train", tmp_path / "shop.csv", *words, *weights, "--out", tmp_path / "run")
    export = write_export(tmp_path / "events.parquet")
    answer = invoke("update", tmp_path / "run", export, *("--held-out", "0", "--out", tmp_path / "next"))
    assert (answer["new_pairs"], answer["new_users"], answer["new_items"]) == (3, 1, 1)
