"""Readers, one function per format: each turns a source into a SELECT with the same columns.

Only the first lines are read here. DuckDB runs the SELECT later, as a stream, so a file may be larger than memory. Ids
are text, exactly as in the source.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data import sniff
from dgcf.data.columns import ReadOptions as ReadOptions
from dgcf.data.columns import choose_columns
from dgcf.data.paths import listed, local_path, partitioned_below, shown
from dgcf.data.sql import path_literal, quote_name, quote_text
from dgcf.data.text import LONGEST_LINE, Text, plain_text
from dgcf.data.vocabulary import IdKind
from dgcf.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# The number of the split that a column ``split`` names; NULL for anything else.
PART_OF_SPLIT = (
    "CASE lower(split) WHEN 'train' THEN 0 WHEN 'validation' THEN 1 WHEN 'valid' THEN 1 WHEN 'val' THEN 1 "
    "WHEN 'dev' THEN 1 WHEN 'test' THEN 2 END"
)


@dataclass(frozen=True)
class Source:
    """A table to read: ``select`` has the columns user and item (text), and optionally rating, timestamp, place, split.

    ``label`` names it in messages. ``first_line`` is the line of the first row in a text file. ``header_pair`` holds
    the headers of user and item. ``whole_number_ids``: the format has integer ids only. ``listed``: it has no times,
    but the items of each user in a list, with positions ``place`` from 0. ``packed``: the file is so much smaller than
    its rows that it must repeat them. ``path`` is the file that DuckDB reads. ``read_as`` records the detected format.
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
    packed: bool = False
    path: str = ""
    read_as: Mapping[str, Any] = field(default_factory=dict)


def open_source(con: DuckDBPyConnection, source: Any, options: ReadOptions, folder: Path) -> Source:
    """Return the source of a path, a glob, a frame or a matrix; ``folder`` is for temporary files."""
    if isinstance(source, (str, Path)):
        return _open_path(con, str(source), options, folder)
    if hasattr(source, "tocoo"):
        return read_matrix(con, source)
    return read_frame(con, source, options)


def _open_path(con: DuckDBPyConnection, name: str, options: ReadOptions, folder: Path) -> Source:
    if options.format is not None and options.format not in FORMATS:
        near = did_you_mean(options.format, FORMATS)
        raise ConfigError(f"unknown format {options.format!r}, expected one of {', '.join(FORMATS)}{near or '.'}")
    if not name:
        raise DataError("the name of the data is empty, expected a path or a known name (`dgcf data list`).")
    path = local_path(name)
    if glob.has_magic(name) and not path.exists():
        files = _matching(path, options)
        fixed = next(part for part in path.parents if not glob.has_magic(str(part)))
        return read_parquet(con, files, shown(path.name), options, partitioned_below(files, fixed))
    if not path.exists():
        raise DataError(
            f"there is no file {shown(path)}; check the path, or list the known datasets with `dgcf data list`."
        )
    if path.is_dir():
        files = _inside(path)
        return read_parquet(con, files, shown(path.name), options, partitioned_below(files, path))
    if not path.is_file():
        raise DataError(
            f"{shown(path)} is not a regular file, expected a text or Parquet file or a folder of Parquet files."
        )
    if options.format == "parquet" or _is_parquet(path):
        return read_parquet(con, [path], shown(path.name), options)
    text = plain_text(path, options.encoding, folder)
    sample = sniff.read_sample(text)
    return TEXT_READERS[options.format or sniff.find_format(path.name, sample)](text, sample, options)


def _matching(pattern: Path, options: ReadOptions) -> list[Path]:
    """Return the files that a pattern matches."""
    names = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (the pattern may be absolute)
    files = [path for path in map(Path, names) if path.is_file()]
    if not files:
        raise DataError(f"no file matches {shown(pattern)}; check the pattern.")
    if options.format != "parquet" and not all(map(_is_parquet, files)):
        raise DataError(
            f"{shown(pattern)} matches files that are not Parquet; join text files into one, or name one of them."
        )
    return files


def _inside(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder, to any depth."""
    files = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    if not files:
        raise DataError(
            f"{shown(folder)} holds no Parquet file, no prepared dataset (dataset.json) and no split (train.txt); "
            "name a file in it."
        )
    return files


def _is_parquet(path: Path) -> bool:
    if path.suffix.lower() in (".parquet", ".pq"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


# Text -------------------------------------------------------------------------------------------------------------


def read_csv(text: Text, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Read delimited text (.csv, .tsv, any delimiter, quoted, gzipped), with or without a header."""
    delimiter = sniff.find_delimiter(sample, text.name) if options.delimiter is None else options.delimiter
    delimiter = delimiter.replace("\\t", "\t")
    if not delimiter or len(delimiter.encode()) > 4 or set(delimiter) & set('"\r\n'):
        raise ConfigError(
            f"delimiter {delimiter!r} cannot be used, expected one to four characters such as ',' or '::'."
        )
    rows = sniff.split_lines(sample.lines[:100], delimiter)
    if len(rows[0]) < 2:
        raise DataError(f"{text.name} has one column when cut at {delimiter!r}; name what separates its columns.")
    header = _decide_header(rows, options, text.name)
    names = rows[0] if header else [f"column {place}" for place in range(len(rows[0]))]
    roles = choose_columns([name.strip() for name in names], options, text.name, by_position=not header)
    return _delimited(text, sample, options, delimiter, header, names, roles, format="csv")


def _decide_header(rows: list[list[str]], options: ReadOptions, label: str) -> bool:
    if options.header is not None:
        return options.header
    columns = (options.user_col, options.item_col, options.rating_col, options.timestamp_col)
    if any(isinstance(column, str) and column in rows[0] for column in columns):
        return True
    header = sniff.has_header(rows)
    if header is None:
        raise DataError(
            f"cannot tell whether the first line of {label} ({listed(rows[0][:4])}) is a header; name the columns "
            "with --user-col and --item-col, or pass --no-header."
        )
    return header


def read_inter(text: Text, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Read an atomic file of RecBole: tab-separated, not quoted, with a typed header such as ``user_id:token``."""
    header = sample.lines[0].split("\t")
    roles = choose_columns([name.partition(":")[0] for name in header], options, text.name, by_position=False)
    return _delimited(text, sample, options, "\t", True, header, roles, quoted=False, format="inter")


def read_u_data(text: Text, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Read ``u.data`` of MovieLens 100K: tab-separated user, item, rating, timestamp."""
    return _delimited(text, sample, options, "\t", False, _MOVIELENS, _PLACES, quoted=False, format="u.data")


def read_ratings_dat(text: Text, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Read ``ratings.dat`` of MovieLens 1M and 10M: ``user::item::rating::timestamp``."""
    return _delimited(text, sample, options, "::", False, _MOVIELENS, _PLACES, quoted=False, format="ratings.dat")


_MOVIELENS = ["user", "item", "rating", "timestamp"]
_PLACES = {name: place for place, name in enumerate(_MOVIELENS)}


def _delimited(
    text: Text,
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
    table = scan_text(text, sample, delimiter, types, header=header, quote=quote)
    parts = [f"{_id(f'c{roles[role]}', options)} AS {role}" for role in ("user", "item")]
    parts += [f"c{roles[role]} AS {role}" for role in ("rating", "split") if role in roles]
    if "timestamp" in roles:
        parts.append(f"{_text_time('c' + str(roles['timestamp']))} AS timestamp")
    return Source(
        label=text.name,
        packed=text.packed,
        path=str(text.path),
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


def read_adjacency(text: Text, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Read lines ``user item item …`` of integers: the format of NGCF, LightGCN and the paper's authors."""
    table = scan_text(text, sample, "\x1f", ["VARCHAR"], header=False, quote="")
    fields = "list_filter(string_split(replace(c0, chr(9), ' '), ' '), lambda field: field <> '')"
    lists = f"SELECT {fields} AS fields FROM {table} WHERE trim(c0) <> ''"
    return Source(
        label=text.name,
        packed=text.packed,
        path=str(text.path),
        select="SELECT fields[1] AS user, unnest(fields[2:]) AS item, unnest(range(len(fields) - 1)) AS place "
        f"FROM ({lists})",
        listed=True,
        whole_number_ids=True,
        read_as={"format": "adjacency"},
    )


def scan_text(
    text: Text,
    sample: sniff.Sample,
    delimiter: str,
    types: list[str],
    *,
    header: bool,
    quote: str,
) -> str:
    """Return a ``read_csv`` call without detection: every column has a type, every line all columns."""
    columns = ", ".join(f"'c{place}': '{type_name}'" for place, type_name in enumerate(types))
    return (
        f"read_csv({path_literal(text.path)}, auto_detect=false, strict_mode=true, header={header}, "
        f"delim={quote_text(delimiter)}, quote='{quote}', escape='{quote}', columns={{{columns}}}, compression='none', "
        f"max_line_size={LONGEST_LINE}, buffer_size={2 * LONGEST_LINE}, skip={sample.skipped}, hive_partitioning=false)"
    )


TEXT_READERS: dict[str, Callable[[Text, sniff.Sample, ReadOptions], Source]] = {
    "csv": read_csv,
    "inter": read_inter,
    "adjacency": read_adjacency,
    "u.data": read_u_data,
    "ratings.dat": read_ratings_dat,
}
FORMATS = (*TEXT_READERS, "parquet")


# Typed tables -----------------------------------------------------------------------------------------------------


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
    names, types = [row[0] for row in described], [str(row[1]) for row in described]
    roles = choose_columns([*own_names, *names[len(own_names) :]], options, label, by_position=False)
    kinds = {role: _id_kind(names[roles[role]], types[roles[role]], label) for role in ("user", "item")}
    ids = {role: f"CAST({quote_name(names[roles[role]])} AS VARCHAR)" for role in ("user", "item")}
    parts = [f"{_id(column, options)} AS {role}" for role, column in ids.items()]
    if "split" in roles:
        parts.append(f"CAST({quote_name(names[roles['split']])} AS VARCHAR) AS split")
    if "rating" in roles:
        parts.append(f"try_cast({quote_name(names[roles['rating']])} AS DOUBLE) AS rating")
    if "timestamp" in roles:
        column, kind = quote_name(names[roles["timestamp"]]), types[roles["timestamp"]]
        if kind.startswith(("TIMESTAMP", "DATE")):
            column = f"epoch(CAST({column} AS TIMESTAMPTZ))"
        elif kind == "VARCHAR":
            column = _text_time(column)
        parts.append(f"CAST({column} AS DOUBLE) AS timestamp")
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
