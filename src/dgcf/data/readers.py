"""Readers, one function per format: each turns a source into a SELECT with the same columns.

Only the first lines are read here. DuckDB runs the SELECT later, as a stream, so a file may be larger than memory. Ids
are text, exactly as in the source.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data import sniff
from dgcf.data.columns import ReadOptions as ReadOptions
from dgcf.data.columns import SourceAsRead as SourceAsRead
from dgcf.data.columns import choose_columns
from dgcf.data.paths import listed, local_path, partitioned_below, shown
from dgcf.data.source import NUMBERS, Source, id_expression, with_time_format
from dgcf.data.sql import path_literal, quote_text, text_as_number
from dgcf.data.tables import is_parquet, read_frame, read_matrix, read_parquet
from dgcf.data.text import LONGEST_LINE, Text, plain_text
from dgcf.data.times import given_format, iso_or_number
from dgcf.data.where import Field, Table, compile_condition
from dgcf.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def open_source(con: DuckDBPyConnection, source: Any, options: ReadOptions, folder: Path) -> Source:
    """Return the source of a path, a glob, a frame or a matrix; ``folder`` is for temporary files."""
    if isinstance(source, (str, Path)):
        opened = _open_path(con, str(source), options, folder)
    elif hasattr(source, "tocoo"):
        opened = read_matrix(con, source)
    else:
        opened = read_frame(con, source, options)
    if options.timestamp_format is not None:
        opened = with_time_format(opened, given_format(con, options.timestamp_format))
    if options.where is not None:
        table = Table(opened.label, opened.table, opened.fields, opened.first_line, options.day_first)
        opened = replace(opened, condition=compile_condition(con, options.where, table))
    return opened


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
    if options.format == "parquet" or is_parquet(path):
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
    if options.format != "parquet" and not all(map(is_parquet, files)):
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
    if any(isinstance(column, str) and column in rows[0] for column in options.columns.values()):
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


def _read_as(role: str, column: str, options: ReadOptions) -> str:
    """Return the expression that reads a column of text in a role."""
    if role in ("title", "split"):
        return column
    if role in ("rating", "weight"):
        return text_as_number(column)
    return iso_or_number(column) if role == "timestamp" else id_expression(column, options)


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
    quote = '"' if quoted and len(delimiter) == 1 else ""
    table = scan_text(text, sample, delimiter, ["VARCHAR"] * len(names), header=header, quote=quote)
    raw = {role: f"c{place}" for role, place in roles.items()}
    return Source(
        label=text.name,
        table=table,
        columns={role: _read_as(role, column, options) for role, column in raw.items()},
        raw={role: raw[role] for role in NUMBERS if role in roles},
        fields=tuple(
            Field(name.partition(":")[0] if format == "inter" else name.strip(), f"c{place}", "text", untyped=True)
            for place, name in enumerate(names)
        ),
        packed=text.packed,
        path=str(text.path),
        first_line=sample.skipped + (2 if header else 1),
        header_pair=(names[roles["user"]], names[roles["item"]]) if header else None,
        read_as={
            "format": format,
            "delimiter": delimiter,
            "header": header,
            "columns": {role: names[place] for role, place in roles.items()},
        },
    )


def read_adjacency(text: Text, sample: sniff.Sample, options: ReadOptions) -> Source:
    """Read lines ``user item item …`` of integers: the format of NGCF, LightGCN and the paper's authors."""
    table = scan_text(text, sample, "\x1f", ["VARCHAR"], header=False, quote="")
    fields = "list_filter(string_split(replace(c0, chr(9), ' '), ' '), lambda field: field <> '')"
    lists = f"SELECT {fields} AS fields FROM {table} WHERE trim(c0) <> ''"
    rows = "SELECT fields[1] AS u, unnest(fields[2:]) AS i, unnest(range(len(fields) - 1)) AS p"
    return Source(
        label=text.name,
        table=f"({rows} FROM ({lists}))",
        columns={"user": "u", "item": "i", "place": "p"},
        fields=(Field("user", "u", "text", untyped=True), Field("item", "i", "text", untyped=True)),
        packed=text.packed,
        path=str(text.path),
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
