"""The result table: into every frame and back, and safe to look at."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dgcf.errors import ConfigError, DataError
from dgcf.recommend import Table

ROWS = {"user": ["a,b", "ü\n"], "item": [1, 2], "rank": [1, 2], "score": [0.5, -1.25], "title": ["<b>x</b>", "[red]y"]}


@pytest.fixture
def table() -> Table:
    return Table(ROWS, notes=["a note"])


def test_table_converts_to_every_frame(table: Table) -> None:
    assert table.to_pandas().to_dict("list") == ROWS
    assert table.to_polars().to_dict(as_series=False) == ROWS
    assert table.to_arrow().to_pydict() == ROWS


def test_rows_without_user_convert_to_frames() -> None:
    nobody = Table({"user": [None], "item": ["a"]})
    assert nobody.to_polars().to_dict(as_series=False) == {"user": [None], "item": ["a"]}
    assert nobody.to_arrow().to_pydict() == {"user": [None], "item": ["a"]}


def test_csv_can_be_read_back(table: Table, tmp_path: Path) -> None:
    text = table.to_csv()
    assert text is not None
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["user"] for row in rows] == ROWS["user"]
    assert [float(row["score"]) for row in rows] == ROWS["score"]
    assert table.to_csv(tmp_path / "t.csv") is None
    assert (tmp_path / "t.csv").read_bytes() == text.encode()


def test_columns_and_rows(table: Table) -> None:
    assert len(table) == 2
    assert next(iter(table))["item"] == 1
    assert table == Table(ROWS)
    with pytest.raises(DataError, match="no column 'scor'; did you mean 'score'"):
        table["scor"]
    with pytest.raises(DataError, match="different lengths"):
        Table({"a": [1], "b": []})


def test_markup_in_titles_is_not_interpreted(table: Table) -> None:
    html = table._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table)
    shown = console.export_text()
    assert "[red]y" in shown
    assert "a note" in shown


def test_long_table_is_truncated() -> None:
    long = repr(Table({"n": list(range(1000))}))
    assert long.endswith("… 960 more rows")
    assert len(long.splitlines()) == 42


def test_missing_frame_library_names_the_package(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ConfigError, match=r"pip install 'dgcf\[frames\]'"):
        table.to_polars()
