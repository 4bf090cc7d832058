"""Read what rules need about items: lists of ids, boosts, and tables of attributes. DuckDB reads the tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data import sniff
from dgcf.data.paths import listed, local_path, shown
from dgcf.data.readers import scan_text
from dgcf.data.sql import connect, path_literal, quote_name, sentence
from dgcf.data.tables import id_column
from dgcf.data.text import plain_text
from dgcf.data.where import Field, Table, compile_condition, typed_field
from dgcf.errors import DataError, did_you_mean
from dgcf.recommend.rules import TableOptions

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES = (".csv", ".tsv", ".parquet", ".pq")
"""Suffixes of tables; a list of ids in any other file has one in each line."""
_DELIMITERS = (",", ";", "\t", "|")
_ID_NAMES = ("id", "ids", "items")
_NAME_IT = "name it (item_col, --item-col)"


@dataclass(frozen=True)
class ItemTable:
    """An open table; ``item`` is the SQL of the ids, as text."""

    con: DuckDBPyConnection
    table: Table
    item: str

    @property
    def label(self) -> str:
        return self.table.label

    def column(self, name: str) -> str:
        """Return the SQL of a column as text, NULL where it is blank; raise ``DataError`` if there is none."""
        field = self.table.fields[_place_of(name, [field.name for field in self.table.fields], self.label)]
        return f"nullif(trim(CAST({field.sql} AS VARCHAR)), '')"

    def condition(self, where: str) -> str:
        """Return the SQL of a condition on the columns, which is false where a value is missing."""
        return f"coalesce({compile_condition(self.con, where, self.table)}, false)"

    def rows(self, *expressions: str) -> Iterator[tuple[Any, ...]]:
        """Yield the id as text and the values of SQL expressions, of each row with an id."""
        self.con.execute(
            f"SELECT {', '.join((self.item, *expressions))} FROM {self.table.sql} WHERE trim({self.item}) <> ''"
        )
        while rows := self.con.fetchmany(4096):
            yield from rows


@contextlib.contextmanager
def open_table(source: Any, options: TableOptions = TableOptions(), *, ids_alone: bool = False) -> Iterator[ItemTable]:
    """Open a table of items: a CSV file with a header, a Parquet file, or a data frame.

    With ``ids_alone`` a text file may lack a header, and its lines are ids unless its suffix is that of a table.
    """
    import duckdb

    label = shown(Path(source).name) if isinstance(source, (str, Path)) else f"the {type(source).__name__}"
    try:
        with connect() as (con, folder):
            con.execute("SET preserve_insertion_order = true")
            if not isinstance(source, (str, Path)):
                yield _frame(con, source, label, options)
                return
            file = local_path(source)
            if not file.exists():
                raise DataError(f"there is no file {shown(file)}; check the path.")
            if not file.is_file():
                raise DataError(f"{shown(file)} is not a regular file, expected a CSV, Parquet or text file.")
            if _suffix(file) in (".parquet", ".pq"):
                yield _typed(con, f"read_parquet({path_literal(file)}, hive_partitioning=false)", label, options)
            else:
                yield _text(con, file, folder, options, ids_alone)
    except duckdb.Error as problem:
        raise DataError(sentence(str(problem), label)) from problem


def read_ids(path: Path, options: TableOptions = TableOptions()) -> list[str]:
    """Return the ids of a file: the item column of a table, or the lines of any other file."""
    with open_table(path, options, ids_alone=True) as table:
        return [raw for (raw,) in table.rows()]


def _frame(con: DuckDBPyConnection, frame: Any, label: str, options: TableOptions) -> ItemTable:
    import duckdb

    try:
        con.register("item_table", frame)
    except (duckdb.Error, TypeError) as problem:
        raise DataError(
            f"cannot read a {type(frame).__name__}, expected a path or a pandas, polars or Arrow table."
        ) from problem
    return _typed(con, "item_table", label, options)


def _typed(con: DuckDBPyConnection, relation: str, label: str, options: TableOptions) -> ItemTable:
    described = [(str(row[0]), str(row[1])) for row in con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()]
    names = [name for name, _ in described]
    fields = [typed_field(name, quote_name(name), type_name) for name, type_name in described]
    name, type_name = described[_item_place(names, label, options)]
    _, item = id_column(con, relation, quote_name(name), type_name, name, label)
    return ItemTable(con, Table(label, relation, fields), item)


def _text(con: DuckDBPyConnection, file: Path, folder: Path, options: TableOptions, ids_alone: bool) -> ItemTable:
    """Open a text file; all its columns are text, so that ids stay as they are (007)."""
    text = plain_text(file, options.encoding, folder)
    if ids_alone and text.path.stat().st_size < sniff.SAMPLE_BYTES and not text.path.read_bytes().strip():
        return ItemTable(con, Table(text.name, "(SELECT NULL::VARCHAR AS c0 WHERE false)", ()), "c0")
    sample = sniff.read_sample(text)
    lines = ids_alone and _suffix(file) not in TABLES
    # The first line is the header, or an id; so the sign that it has most separates the columns.
    delimiter = "\x1f" if lines else max(_DELIMITERS, key=sample.lines[0].count)
    names = [name.strip() for name in sniff.split_lines(sample.lines[:1], delimiter)[0]]
    header = not ids_alone or any(_is_item(name, options) for name in names)
    types = ["VARCHAR"] * len(names)
    relation = scan_text(text, sample, delimiter, types, header=header, quote="" if lines else '"')
    fields = [Field(name, f"c{place}", "text", untyped=True) for place, name in enumerate(names)]
    first_line = sample.skipped + (2 if header else 1)
    return ItemTable(con, Table(text.name, relation, fields, first_line), f"c{_item_place(names, text.name, options)}")


def _suffix(file: Path) -> str:
    return Path(file.name.lower().removesuffix(".gz")).suffix


def _item_place(names: Sequence[str], label: str, options: TableOptions) -> int:
    """Return the position of the item column: as named, the only one, that of the training data, or a usual name."""
    if len(names) == 1:
        return 0
    if options.item_col is not None:
        return _place_of(options.item_col, names, label)
    if options.trained_on is not None and names.count(options.trained_on) == 1:
        return names.index(options.trained_on)
    items = sniff.columns_of("item", list(names))
    items = items or [place for place, name in enumerate(names) if name.lower() in _ID_NAMES]
    if len(items) > 1:
        columns = " and ".join(repr(shown(names[place])) for place in items[:2])
        raise DataError(f"columns {columns} of {label} could each be the item; {_NAME_IT}.")
    if not items:
        raise DataError(f"{label} has the columns {listed(list(names))}, expected one for the item; {_NAME_IT}.")
    return items[0]


def _is_item(name: str, options: TableOptions) -> bool:
    """Return whether a name of a column is one of the item."""
    usual = sniff.role_of(name) == "item" or name.lower() in _ID_NAMES
    return usual or name == options.trained_on or (options.item_col or "").lower() == name.lower()


def _place_of(name: str, names: Sequence[str], label: str) -> int:
    """Return the position of a name; upper and lower case may differ if no other name has the same letters."""
    same = [place for place, each in enumerate(names) if each == name]
    same = same or [place for place, each in enumerate(names) if each.lower() == name.lower()]
    if len(same) != 1:
        problem = f"has {len(same)} columns" if same else "has no column"
        raise DataError(f"{label} {problem} {name!r}, it has {listed(names)}{did_you_mean(name, names) or '.'}")
    return same[0]
