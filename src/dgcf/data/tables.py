"""Readers of tables with typed columns: Parquet files, data frames and sparse matrices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data.columns import ReadOptions, choose_columns
from dgcf.data.source import Source, id_expression
from dgcf.data.sql import path_literal, quote_name
from dgcf.data.times import iso_or_number
from dgcf.data.vocabulary import IdKind
from dgcf.data.where import typed_field
from dgcf.errors import DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def is_parquet(path: Path) -> bool:
    if path.suffix.lower() in (".parquet", ".pq"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def parquet_table(path: Path) -> str | None:
    """Return the SQL of a Parquet file as a table, or None if the file has another format."""
    return f"read_parquet([{path_literal(path)}], hive_partitioning=false)" if is_parquet(path) else None


def read_parquet(
    con: DuckDBPyConnection, files: list[Path], label: str, options: ReadOptions, partitioned: bool = False
) -> Source:
    """Read Parquet files of the same columns; ``partitioned``: folders ``key=value`` are columns too."""
    table = (
        f"read_parquet([{', '.join(map(path_literal, files))}], hive_partitioning={partitioned}, union_by_name=false)"
    )
    schema = con.execute(f"SELECT name, num_children FROM parquet_schema({path_literal(files[0])})").fetchall()
    rows = con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
    packed = rows > sum(path.stat().st_size for path in files)
    source = _typed_table(con, table, label, options, _top_level(schema))
    return replace(source, packed=packed, path=str(files[0]) if len(files) == 1 else "")


def _top_level(schema: list[tuple[str, int | None]]) -> list[str]:
    """Return the column names of a Parquet schema in depth-first order; DuckDB renames repeated names."""

    def skip(place: int) -> int:
        after = place + 1
        for _ in range(schema[place][1] or 0):
            after = skip(after)
        return after

    names, place = [], 1  # the first entry is the root
    while place < len(schema):
        names.append(schema[place][0])
        place = skip(place)
    return names


def read_frame(con: DuckDBPyConnection, frame: Any, options: ReadOptions) -> Source:
    """Read a pandas, polars or Arrow table."""
    import duckdb

    name = f"frame_{id(frame)}"
    try:
        con.register(name, frame)
    except duckdb.Error as problem:
        raise DataError(
            f"cannot read a {type(frame).__name__}, expected a path, a pandas, polars or Arrow table or a SciPy matrix."
        ) from problem
    return _typed_table(con, name, f"the {type(frame).__name__}", options, _own_names(frame))


def _own_names(frame: Any) -> list[str]:
    """Return the column names of a frame, which may repeat."""
    library = type(frame).__module__.partition(".")[0]
    names = frame.columns if library == "pandas" else frame.schema.names if library == "pyarrow" else ()
    return [str(name) for name in names]


def read_matrix(con: DuckDBPyConnection, matrix: Any) -> Source:
    """Read a SciPy sparse matrix: rows are users, columns items, values ratings; the ids are the indices."""
    import numpy as np

    name = f"matrix_{id(matrix)}"
    coo = matrix.tocoo()
    values = np.asarray(coo.data, dtype=np.float64)
    con.execute(f"CREATE TEMP TABLE {name} (user BIGINT, item BIGINT, rating DOUBLE)")
    arrays = {"user": coo.row.astype(np.int64), "item": coo.col.astype(np.int64), "rating": values}
    con.execute(f"INSERT INTO {name} SELECT unnest($user), unnest($item), unnest($rating)", arrays)
    return _typed_table(con, name, "the matrix", ReadOptions(), [])


def _typed_table(con: DuckDBPyConnection, table: str, label: str, options: ReadOptions, own_names: list[str]) -> Source:
    """Read a table with typed columns; ``own_names`` are the names of the first columns before DuckDB renamed them."""
    described = con.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
    columns, types = [quote_name(row[0]) for row in described], [str(row[1]) for row in described]
    names = [*own_names, *(row[0] for row in described[len(own_names) :])]
    roles = choose_columns(names, options, label, by_position=False)
    selected, kinds, raw = {}, {}, {}
    for role, place in roles.items():
        column, kind = columns[place], types[place]
        if role in ("user", "item"):
            kinds[role], text = id_column(con, table, column, kind, names[place], label)
            selected[role] = id_expression(text, options)
        elif role in ("split", "title"):
            selected[role] = f"CAST({column} AS VARCHAR)"
        elif role == "timestamp" and kind.startswith(("TIMESTAMP", "DATE")):
            selected[role] = f"epoch(CAST({column} AS TIMESTAMPTZ))"
        else:
            selected[role] = f"try_cast({column} AS DOUBLE)"
            if kind == "VARCHAR":
                raw[role] = column
                selected[role] = iso_or_number(column) if role == "timestamp" else selected[role]
    return Source(
        label=label,
        table=table,
        columns=selected,
        raw=raw,
        fields=tuple(map(typed_field, names, columns, types)),
        user_kind=kinds["user"],
        item_kind=kinds["item"],
        read_as={"format": "table", "columns": {role: names[place] for role, place in roles.items()}},
    )


def id_column(
    con: DuckDBPyConnection, table: str, column: str, type_name: str, name: str, label: str
) -> tuple[IdKind, str]:
    """Return the kind of an id column and its SQL as text; numbers with a fraction are refused."""
    text = f"CAST({column} AS VARCHAR)"
    if type_name == "VARCHAR" or type_name.startswith(("ENUM", "UUID")):
        return "text", text
    if type_name.endswith("INT") or type_name in ("INTEGER", "UINTEGER"):
        return "integer", text
    if type_name in ("DOUBLE", "FLOAT"):
        # Missing values turn whole numbers into floats; these are whole again.
        whole = f"({column} = floor({column}) AND abs({column}) < {2.0**53})"
        fraction = f"{column} IS NOT NULL AND NOT isnan({column}) AND NOT {whole}"
        query = f"SELECT count(*) FILTER ({fraction}), count(*) FROM {table}"
        broken, rows = con.execute(query).fetchall()[0]
        if rows and not broken:
            return "integer", f"CAST(CAST(CASE WHEN {whole} THEN {column} END AS BIGINT) AS VARCHAR)"
    raise DataError(
        f"column {name!r} of {label} holds {type_name.lower()} values, expected ids as text or whole numbers; "
        "cast it first."
    )
