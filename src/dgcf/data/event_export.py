"""The Parquet file of events that the service exports: its columns, and how an update reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dgcf.data.columns import ReadOptions
from dgcf.data.paths import local_path
from dgcf.data.sql import path_literal
from dgcf.data.tables import is_parquet

COLUMNS = {
    "user": "VARCHAR",
    "item": "VARCHAR",
    "timestamp": "DOUBLE",
    "kind": "VARCHAR",
    "weight": "DOUBLE",
    "seq": "BIGINT",
}
"""Columns of an export and their types."""


def is_event_export(source: Any) -> bool:
    """Return whether a source is a Parquet file with exactly the columns of an export."""
    import duckdb

    if not isinstance(source, str | Path):
        return False
    path = local_path(source)
    if not path.is_file() or not is_parquet(path):
        return False
    try:
        with duckdb.connect() as con:
            described = con.execute(f"DESCRIBE SELECT * FROM read_parquet({path_literal(path)})").fetchall()
    except duckdb.Error:
        return False  # the reader says what is wrong with it
    return {row[0]: row[1] for row in described} == COLUMNS


def is_empty_export(source: Any) -> bool:
    """Return whether a source is an export without events."""
    import duckdb

    if not is_event_export(source):
        return False
    with duckdb.connect() as con:
        return not con.execute(f"SELECT 1 FROM read_parquet({path_literal(local_path(source))}) LIMIT 1").fetchall()


def export_options(*, weighted: bool) -> ReadOptions:
    """Return how to read an export; ``weighted``: with the weights of the events."""
    return ReadOptions(
        user_col="user",
        item_col="item",
        rating_col="none",
        timestamp_col="timestamp",
        title_col="none",
        weight_col="weight" if weighted else None,
    )
