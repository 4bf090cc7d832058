"""Readers, one function per format: each turns what users have into one SELECT with the same columns.

Nothing is read here beyond a look at the first lines. The SELECT is run by DuckDB later, in a stream, so a file may
be larger than memory. Ids are text from here on, exactly as the source wrote them.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data import sniff
from dgcf.data.vocabulary import IdKind
from dgcf.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Column = str | int


@dataclass(frozen=True)
class ReadOptions:
    """How to read a source; what is None is found by looking.

    A column is named by its header, or by its position (0 is the first). ``rating_col="none"`` ignores a rating.
    """

    format: str | None = None
    user_col: Column | None = None
    item_col: Column | None = None
    rating_col: Column | None = None
    timestamp_col: Column | None = None
    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    text_ids: bool = False


@dataclass(frozen=True)
class Source:
    """A table to read: ``select`` gives the columns ``user, item`` (text), and ``rating, timestamp`` (double) if there.

    ``label`` names it in messages; ``first_line`` is the line of the first row, where lines mean anything.
    ``checked_ids`` is true for formats whose ids must be whole numbers.
    """

    label: str
    select: str
    rating: bool = False
    timestamp: bool = False
    user_kind: IdKind = "text"
    item_kind: IdKind = "text"
    first_line: int | None = None
    whole_number_ids: bool = False


def open_source(con: DuckDBPyConnection, source: Any, options: ReadOptions) -> Source:
    """Find the reader for a path, a glob, a frame or a matrix."""
    if isinstance(source, (str, Path)):
        return _open_path(con, str(source), options)
    if hasattr(source, "tocoo"):
        return read_matrix(con, source)
    return read_frame(con, source, options)


def _open_path(con: DuckDBPyConnection, text: str, options: ReadOptions) -> Source:
    path = Path(text).expanduser()
    if options.format is not None and options.format not in FORMATS:
        near = did_you_mean(options.format, FORMATS)
        raise ConfigError(f"unknown format {options.format!r}, expected one of {', '.join(FORMATS)}{near or '.'}")
    is_glob = glob.has_magic(text) and not path.exists()
    if options.format == "parquet" or is_glob or path.is_dir() or _is_parquet(path):
        return read_parquet(con, path, options)
    if not path.exists():
        raise DataError(f"there is no file {path}; check the path, or list the known datasets with `dgcf data list`.")
    if not path.is_file():
        raise DataError(f"{path} is not a regular file, expected a text or Parquet file or a folder of Parquet files.")
    encoding = sniff.canonical_encoding(options.encoding)
    sample = sniff.read_sample(path, encoding)
    if not sample.lines:
        raise DataError(f"{path.name} is empty, expected lines with at least a user and an item.")
    return TEXT_READERS[options.format or sniff.find_format(path, sample)](path, sample, options)


def _is_parquet(path: Path) -> bool:
    if path.suffix.lower() in (".parquet", ".pq"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


# Text -------------------------------------------------------------------------------------------------------------


def read_csv(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Delimited text (.csv, .tsv, any delimiter, quoted, gzipped), with or without a header."""
    delimiter = options.delimiter or sniff.find_delimiter(sample, path.name)
    if not delimiter or len(delimiter.encode()) > 4 or set(delimiter) & set('"\r\n'):
        raise ConfigError(
            f"delimiter {delimiter!r} cannot be used, expected one to four characters such as ',' or '::'."
        )
    rows = sniff.split_lines(sample.lines[:100], delimiter)
    header = _decide_header(rows, options, path.name)
    names = rows[0] if header else [f"column {place}" for place in range(len(rows[0]))]
    roles = _choose_columns(names, options, path.name, by_position=not header)
    return _delimited(path, sample, options, delimiter, header, len(names), roles)


def _decide_header(rows: list[list[str]], options: ReadOptions, label: str) -> bool:
    if options.header is not None:
        return options.header
    wanted = (options.user_col, options.item_col, options.rating_col, options.timestamp_col)
    if any(isinstance(column, str) and column in rows[0] for column in wanted):
        return True
    header = sniff.has_header(rows)
    if header is None:
        raise DataError(
            f"cannot tell whether the first line of {label} ({', '.join(rows[0][:4])}) is a header; name the columns "
            "with --user-col and --item-col, or pass --no-header."
        )
    return header


def read_inter(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """RecBole's atomic file: tab-separated, never quoted, with a typed header such as ``user_id:token``."""
    names = [field.partition(":")[0] for field in sample.lines[0].split("\t")]
    roles = _choose_columns(names, options, path.name, by_position=False)
    return _delimited(path, sample, options, "\t", True, len(names), roles, quoted=False)


def read_u_data(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """MovieLens 100K's ``u.data``: tab-separated user, item, rating, timestamp."""
    return _delimited(path, sample, options, "\t", False, 4, _movielens_columns(), quoted=False)


def read_ratings_dat(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """MovieLens 1M's and 10M's ``ratings.dat``: ``user::item::rating::timestamp``."""
    return _delimited(path, sample, options, "::", False, 4, _movielens_columns(), quoted=False)


def _movielens_columns() -> dict[str, int]:
    return {"user": 0, "item": 1, "rating": 2, "timestamp": 3}


def _delimited(
    path: Path,
    sample: sniff.Sample,
    options: ReadOptions,
    delimiter: str,
    header: bool,
    width: int,
    roles: Mapping[str, int],
    quoted: bool = True,
) -> Source:
    types = ["DOUBLE" if place == roles.get("rating") else "VARCHAR" for place in range(width)]
    quote = '"' if quoted and len(delimiter) == 1 else ""
    table = _scan_text(path, sample, options, delimiter, types, header=header, quote=quote)
    parts = [f"c{roles['user']} AS user", f"c{roles['item']} AS item"]
    if "rating" in roles:
        parts.append(f"c{roles['rating']} AS rating")
    if "timestamp" in roles:
        parts.append(f"{_text_time('c' + str(roles['timestamp']))} AS timestamp")
    return Source(
        label=path.name,
        select=f"SELECT {', '.join(parts)} FROM {table}",
        rating="rating" in roles,
        timestamp="timestamp" in roles,
        first_line=2 if header else 1,
    )


def _text_time(column: str) -> str:
    return f"coalesce(try_cast({column} AS DOUBLE), epoch(try_cast({column} AS TIMESTAMP)))"


def read_adjacency(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Lines ``user item item …`` of whole numbers: the format of NGCF, LightGCN and the paper's authors."""
    table = _scan_text(path, sample, options, "\x1f", ["VARCHAR"], header=False, quote="")
    fields = "list_filter(string_split(replace(c0, chr(9), ' '), ' '), lambda field: field <> '')"
    lists = f"SELECT {fields} AS fields FROM {table} WHERE trim(c0) <> ''"
    return Source(
        label=path.name,
        select=f"SELECT fields[1] AS user, unnest(fields[2:]) AS item FROM ({lists})",
        whole_number_ids=True,
    )


def _scan_text(
    path: Path,
    sample: sniff.Sample,
    options: ReadOptions,
    delimiter: str,
    types: list[str],
    *,
    header: bool,
    quote: str,
) -> str:
    """A ``read_csv`` call that leaves nothing to guessing: every column has its type, every line all columns."""
    columns = ", ".join(f"'c{place}': '{type_name}'" for place, type_name in enumerate(types))
    return (
        f"read_csv({quoted_text(_literal_path(path))}, auto_detect=false, strict_mode=true, header={header}, "
        f"delim={quoted_text(delimiter)}, quote='{quote}', escape='{quote}', columns={{{columns}}}, "
        f"compression='{'gzip' if sample.gzipped else 'none'}', max_line_size=16777216, "
        f"encoding='{sniff.canonical_encoding(options.encoding)}')"
    )


TEXT_READERS: dict[str, Callable[[Path, sniff.Sample, ReadOptions], Source]] = {
    "csv": read_csv,
    "inter": read_inter,
    "adjacency": read_adjacency,
    "u.data": read_u_data,
    "ratings.dat": read_ratings_dat,
}
FORMATS = (*TEXT_READERS, "parquet")


# Typed tables -----------------------------------------------------------------------------------------------------


def read_parquet(con: DuckDBPyConnection, path: Path, options: ReadOptions) -> Source:
    """A Parquet file, a folder of them (searched to any depth), or a glob."""
    pattern = _literal_path(path) if not path.is_dir() else f"{_literal_path(path)}/**/*.parquet"
    if path.is_dir() and not any(path.rglob("*.parquet")):
        raise DataError(
            f"{path} holds no Parquet file, no prepared dataset (dataset.json) and no split (train.txt); "
            "name a file in it."
        )
    return _typed_table(con, f"read_parquet({quoted_text(pattern)})", path.name, options)


def read_frame(con: DuckDBPyConnection, frame: Any, options: ReadOptions) -> Source:
    """A pandas, polars or Arrow table."""
    import duckdb

    name = f"frame_{id(frame)}"
    try:
        con.register(name, frame)
    except duckdb.Error as problem:
        raise DataError(
            f"cannot read a {type(frame).__name__}, expected a path, a pandas, polars or Arrow table or a SciPy matrix."
        ) from problem
    return _typed_table(con, name, f"the {type(frame).__name__}", options)


def read_matrix(con: DuckDBPyConnection, matrix: Any) -> Source:
    """A SciPy sparse matrix: rows are users, columns items, stored values ratings; the ids are the indices."""
    import numpy as np

    name = f"matrix_{id(matrix)}"
    coo = matrix.tocoo()
    values = np.asarray(coo.data, dtype=np.float64)
    con.execute(f"CREATE TEMP TABLE {name} (user BIGINT, item BIGINT, rating DOUBLE)")
    arrays = {"user": coo.row.astype(np.int64), "item": coo.col.astype(np.int64), "rating": values}
    con.execute(f"INSERT INTO {name} SELECT unnest($user), unnest($item), unnest($rating)", arrays)
    return _typed_table(con, name, "the matrix", ReadOptions())


def _typed_table(con: DuckDBPyConnection, table: str, label: str, options: ReadOptions) -> Source:
    described = con.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
    names, types = [row[0] for row in described], [str(row[1]) for row in described]
    roles = _choose_columns(names, options, label, by_position=False)
    kinds = {role: _id_kind(names[roles[role]], types[roles[role]], label) for role in ("user", "item")}
    parts = [f"CAST({_name(names[roles[role]])} AS VARCHAR) AS {role}" for role in ("user", "item")]
    if "rating" in roles:
        parts.append(f"try_cast({_name(names[roles['rating']])} AS DOUBLE) AS rating")
    if "timestamp" in roles:
        column, kind = _name(names[roles["timestamp"]]), types[roles["timestamp"]]
        is_time = kind.startswith(("TIMESTAMP", "DATE"))
        seconds = f"epoch({column})" if is_time else _text_time(column) if kind == "VARCHAR" else column
        parts.append(f"CAST({seconds} AS DOUBLE) AS timestamp")
    return Source(
        label=label,
        select=f"SELECT {', '.join(parts)} FROM {table}",
        rating="rating" in roles,
        timestamp="timestamp" in roles,
        user_kind=kinds["user"],
        item_kind=kinds["item"],
    )


def _id_kind(column: str, type_name: str, label: str) -> IdKind:
    if type_name == "VARCHAR" or type_name.startswith(("ENUM", "UUID")):
        return "text"
    if type_name.endswith("INT") or type_name == "INTEGER" or type_name == "UINTEGER":
        return "integer"
    raise DataError(
        f"column {column!r} of {label} holds {type_name.lower()} values, expected ids as text or whole numbers; "
        "cast it first (a missing value often turns whole numbers into floats)."
    )


# Columns ----------------------------------------------------------------------------------------------------------


def _choose_columns(names: list[str], options: ReadOptions, label: str, *, by_position: bool) -> dict[str, int]:
    """Which column plays which role: as told, else by the names people use, else (no header) the first two."""
    told = {
        "user": options.user_col,
        "item": options.item_col,
        "rating": options.rating_col,
        "timestamp": options.timestamp_col,
    }
    if len(names) < 2:
        raise DataError(f"{label} has one column, expected at least user and item.")
    roles: dict[str, int] = {}
    for place, name in enumerate(names):
        role = sniff.role_of(name)
        if role and role not in roles and told[role] is None and not by_position:
            roles[role] = place
    if by_position:
        roles = {"user": 0, "item": 1}
    for role, column in told.items():
        if column == "none" and role in ("rating", "timestamp"):
            roles.pop(role, None)
        elif column is not None:
            roles[role] = _place(column, names, role, label)
    for role in ("user", "item"):
        if role not in roles:
            raise DataError(
                f"no column of {label} is known as the {role} (it has {', '.join(names[:8])}); name it with "
                f"--{role}-col."
            )
    if roles["user"] == roles["item"]:
        raise DataError(f"user and item are the same column of {label}; name them with --user-col and --item-col.")
    return roles


def _place(column: Column, names: list[str], role: str, label: str) -> int:
    if isinstance(column, str) and column in names:
        return names.index(column)
    if str(column).isdecimal() and int(column) < len(names):
        return int(column)
    raise DataError(
        f"{label} has no column {column!r} for the {role}, it has {', '.join(names[:8])}; correct --{role}-col"
        f"{did_you_mean(str(column), names) or '.'}"
    )


def quoted_text(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _literal_path(path: Path) -> str:
    """A path whose own brackets and stars are not taken for a pattern, unless no such file exists."""
    return glob.escape(str(path)) if path.exists() else str(path)
