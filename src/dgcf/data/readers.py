"""Readers, one function per format: each turns what users have into one SELECT with the same columns.

Nothing is read here beyond a look at the first lines. The SELECT is run by DuckDB later, in a stream, so a file may
be larger than memory. Ids are text from here on, exactly as the source wrote them.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data import sniff
from dgcf.data.vocabulary import IdKind
from dgcf.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Column = str | int
# The number of a row's split, by what a column named split says; NULL for anything else.
PART_OF_SPLIT = (
    "CASE lower(split) WHEN 'train' THEN 0 WHEN 'validation' THEN 1 WHEN 'valid' THEN 1 WHEN 'val' THEN 1 "
    "WHEN 'dev' THEN 1 WHEN 'test' THEN 2 END"
)


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
    trim_ids: bool = False


@dataclass(frozen=True)
class Source:
    """A table to read: ``select`` gives ``user, item`` (text) and, if there, ``rating, timestamp, place, split``.

    ``label`` names it in messages; ``first_line`` is the line of the first row, where lines mean anything;
    ``header_pair`` is what the header calls user and item. ``whole_number_ids``: the format has no other ids.
    ``listed``: it has no times, but each user's items in a list, where ``place`` counts from 0. ``split``: there is a
    column of that name. ``read_as`` says what was found by looking.
    """

    label: str
    select: str
    rating: bool = False
    timestamp: bool = False
    listed: bool = False
    user_kind: IdKind = "text"
    item_kind: IdKind = "text"
    split: bool = False
    first_line: int | None = None
    header_pair: tuple[str, str] | None = None
    whole_number_ids: bool = False
    read_as: Mapping[str, Any] = field(default_factory=dict)


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
    if not text:
        raise DataError("the name of the data is empty, expected a path or a known name (`dgcf data list`).")
    if glob.has_magic(text) and not path.exists():
        return _read_glob(con, text, path, options)
    if not path.exists():
        raise DataError(f"there is no file {path}; check the path, or list the known datasets with `dgcf data list`.")
    if not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is not a regular file, expected a text or Parquet file or a folder of Parquet files.")
    if options.format == "parquet" or path.is_dir() or _is_parquet(path):
        return read_parquet(con, path, options)
    encoding = sniff.canonical_encoding(options.encoding)
    sample = sniff.read_sample(path, encoding)
    return TEXT_READERS[options.format or sniff.find_format(path, sample)](path, sample, options)


def _read_glob(con: DuckDBPyConnection, text: str, path: Path, options: ReadOptions) -> Source:
    found = [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207 (the pattern may be absolute)
    if not found:
        raise DataError(f"no file matches {text}; check the pattern.")
    if options.format != "parquet" and not all(_is_parquet(file) for file in found if file.is_file()):
        raise DataError(f"{text} matches files that are not Parquet; join text files into one, or name one of them.")
    return read_parquet(con, path, options)


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
    delimiter = sniff.find_delimiter(sample, path.name) if options.delimiter is None else options.delimiter
    delimiter = delimiter.replace("\\t", "\t")
    if not delimiter or len(delimiter.encode()) > 4 or set(delimiter) & set('"\r\n'):
        raise ConfigError(
            f"delimiter {delimiter!r} cannot be used, expected one to four characters such as ',' or '::'."
        )
    rows = sniff.split_lines(sample.lines[:100], delimiter)
    if len(rows[0]) < 2:
        raise DataError(f"{path.name} has one column when cut at {delimiter!r}; name what separates its columns.")
    header = _decide_header(rows, options, path.name)
    names = rows[0] if header else [f"column {place}" for place in range(len(rows[0]))]
    roles = _choose_columns([name.strip() for name in names], options, path.name, by_position=not header)
    return _delimited(path, sample, options, delimiter, header, names, roles, format="csv")


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
    header = sample.lines[0].split("\t")
    roles = _choose_columns([name.partition(":")[0] for name in header], options, path.name, by_position=False)
    return _delimited(path, sample, options, "\t", True, header, roles, quoted=False, format="inter")


def read_u_data(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """MovieLens 100K's ``u.data``: tab-separated user, item, rating, timestamp."""
    return _delimited(path, sample, options, "\t", False, _MOVIELENS, _PLACES, quoted=False, format="u.data")


def read_ratings_dat(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """MovieLens 1M's and 10M's ``ratings.dat``: ``user::item::rating::timestamp``."""
    return _delimited(path, sample, options, "::", False, _MOVIELENS, _PLACES, quoted=False, format="ratings.dat")


_MOVIELENS = ["user", "item", "rating", "timestamp"]
_PLACES = {name: place for place, name in enumerate(_MOVIELENS)}


def _delimited(
    path: Path,
    sample: sniff.Sample,
    options: ReadOptions,
    delimiter: str,
    header: bool,
    names: list[str],
    roles: Mapping[str, int],
    *,
    format: str,
    quoted: bool = True,
) -> Source:
    types = ["DOUBLE" if place == roles.get("rating") else "VARCHAR" for place in range(len(names))]
    quote = '"' if quoted and len(delimiter) == 1 else ""
    table = _scan_text(path, sample, options, delimiter, types, header=header, quote=quote)
    parts = [f"{_id(f'c{roles[role]}', options)} AS {role}" for role in ("user", "item")]
    parts += [f"c{roles[role]} AS {role}" for role in ("rating", "split") if role in roles]
    if "timestamp" in roles:
        parts.append(f"{_text_time('c' + str(roles['timestamp']))} AS timestamp")
    return Source(
        label=path.name,
        select=f"SELECT {', '.join(parts)} FROM {table}",
        rating="rating" in roles,
        timestamp="timestamp" in roles,
        split="split" in roles,
        first_line=sample.skipped + (2 if header else 1),
        header_pair=(names[roles["user"]], names[roles["item"]]) if header else None,
        read_as={
            "format": format,
            "delimiter": delimiter,
            "header": header,
            "columns": {role: names[place] for role, place in roles.items()},
        },
    )


def _id(column: str, options: ReadOptions) -> str:
    return f"trim({column}, chr(9) || ' ')" if options.trim_ids else column


def _text_time(column: str) -> str:
    return f"coalesce(try_cast({column} AS DOUBLE), epoch(try_cast({column} AS TIMESTAMPTZ)))"


def read_adjacency(path: Path, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Lines ``user item item …`` of whole numbers: the format of NGCF, LightGCN and the paper's authors."""
    table = _scan_text(path, sample, options, "\x1f", ["VARCHAR"], header=False, quote="")
    fields = "list_filter(string_split(replace(c0, chr(9), ' '), ' '), lambda field: field <> '')"
    lists = f"SELECT {fields} AS fields FROM {table} WHERE trim(c0) <> ''"
    return Source(
        label=path.name,
        select="SELECT fields[1] AS user, unnest(fields[2:]) AS item, unnest(range(len(fields) - 1)) AS place "
        f"FROM ({lists})",
        listed=True,
        whole_number_ids=True,
        read_as={"format": "adjacency"},
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
        f"compression='{'gzip' if sample.gzipped else 'none'}', max_line_size=16777216, skip={sample.skipped}, "
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
    ids = {role: f"CAST({_name(names[roles[role]])} AS VARCHAR)" for role in ("user", "item")}
    parts = [f"{_id(column, options)} AS {role}" for role, column in ids.items()]
    if "split" in roles:
        parts.append(f"CAST({_name(names[roles['split']])} AS VARCHAR) AS split")
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
        split="split" in roles,
        read_as={"format": "table", "columns": {role: names[place] for role, place in roles.items()}},
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
    roles = {"user": 0, "item": 1} if by_position else _known_columns(names, told, label)
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


def _known_columns(names: list[str], told: Mapping[str, Column | None], label: str) -> dict[str, int]:
    """Columns by the names people use; where two could be the same thing, nobody guesses."""
    roles: dict[str, int] = {}
    for role in (*told, "split"):
        places = [place for place, name in enumerate(names) if sniff.role_of(name) == role]
        if len(places) > 1 and role in ("user", "item") and told[role] is None:
            raise DataError(
                f"columns {' and '.join(repr(names[place]) for place in places)} of {label} could each be the {role}; "
                f"name one with --{role}-col (a place from 0 if the names are the same)."
            )
        if len(places) == 1 and told.get(role) is None:
            roles[role] = places[0]
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
