"""Read item titles: from a column of the interactions, a table, or a file of MovieLens or RecBole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data import sniff
from dgcf.data.columns import Column, ReadOptions, position
from dgcf.data.paths import listed, local_path, shown
from dgcf.data.readers import scan_text
from dgcf.data.sql import connect, quote_name, sentence
from dgcf.data.tables import parquet_table
from dgcf.data.text import Text, plain_text
from dgcf.errors import DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from dgcf.data.staging import Staged

LARGEST = 256 << 20
"""Largest number of characters of all ids and titles, which are held in memory."""
ALIKE = 0.5
"""Share of the rows of an item that must have its title, if the column was not given but found by its name."""
# Delimiters of files known by their name; the first two columns are id and title.
_MOVIELENS = {"movies.dat": "::", "u.item": "|"}


@dataclass(frozen=True)
class _Layout:
    """Positions of the columns of a file, and its delimiter."""

    delimiter: str
    width: int
    item: int
    title: int
    year: int | None = None
    header: bool = True
    quote: str = ""


@dataclass(frozen=True)
class ColumnTitles:
    """Titles by raw item id from ``column`` of the interactions; ``several`` items have more than one text there.

    ``used`` is False if the column was found by its name and holds other texts in most rows of an item, such as the
    titles of reviews.
    """

    column: str
    titles: Mapping[str, str] = field(default_factory=dict)
    several: int = 0
    used: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the entry in the record of a dataset."""
        return {"column": self.column, "items": len(self.titles), "several": self.several, "used": self.used}


def titles_of_rows(con: DuckDBPyConnection, staged: Staged, *, named: bool) -> ColumnTitles | None:
    """Return the most frequent title of each item, from the column of titles; of equally frequent ones the longest.

    ``named``: the column was given, so its texts are titles however much they vary.
    """
    sources = [source for source in staged.sources if source.has("title")]
    if not sources:
        return None
    name = str(sources[0].read_as["columns"]["title"])
    rows = " UNION ALL ".join(
        f"SELECT item, trim(title) AS title FROM ({s.rows()}) WHERE {staged.passed}" for s in sources
    )
    con.execute(
        "CREATE TEMP TABLE titles AS SELECT item, count(*) AS texts, sum(n) AS n, max(n) AS most, "
        "arg_max(title, (n, strlen(title), title)) AS title "
        f"FROM (SELECT item, title, count(*) AS n FROM ({rows}) WHERE title <> '' AND item IS NOT NULL GROUP BY ALL) "
        "GROUP BY item"
    )
    repeated, alike, several, size = con.execute(
        "SELECT sum(n) FILTER (n > 1), sum(most) FILTER (n > 1), count(*) FILTER (texts > 1), "
        "sum(strlen(item) + strlen(title)) FROM titles"
    ).fetchall()[0]
    large = int(size or 0) > LARGEST
    if named and large:
        raise DataError(_too_large(sources[0].label))
    if large or (not named and repeated and alike < ALIKE * repeated):
        return ColumnTitles(name, used=False)
    return ColumnTitles(name, dict(con.execute("SELECT item, title FROM titles").fetchall()), int(several))


def _too_large(name: str) -> str:
    return f"{name} holds more than {LARGEST >> 20} MiB of titles; keep the columns and rows that are needed."


def titles_of(read: ReadOptions) -> dict[str, str] | None:
    """Return titles by raw item id from the titles file of the options, or None if they name none."""
    if read.titles is None:
        return None
    return read_titles(read.titles, read.encoding, item_col=read.titles_item_col, title_col=read.titles_title_col)


def read_titles(
    path: str | Path, encoding: str = "utf-8", *, item_col: Column | None = None, title_col: Column | None = None
) -> dict[str, str]:
    """Return titles by raw item id, from a table with an item and a title column or a file of MovieLens or RecBole."""
    import duckdb

    file = local_path(path)
    if not file.is_file():
        raise DataError(f"there is no titles file {shown(file)}; check the path given with --titles.")
    given = (item_col, title_col)
    with connect() as (con, folder):
        titles: dict[str, str] = {}
        size = 0
        try:
            con.execute("SET preserve_insertion_order = true")  # the later of two titles counts
            if (table := parquet_table(file)) is not None:
                query = _select_typed(con, table, shown(file.name), given)
            else:
                query = _select_text(_text(file, encoding, folder), file, given)
            cursor = con.execute(query)
            while rows := cursor.fetchmany(1024):
                for item, title, released in rows:
                    # RecBole has the year in a column; films may share a name without it.
                    titles[item] = f"{title} ({released})" if released.isdecimal() else title
                    size += len(item) + len(title)
                if size > LARGEST:
                    raise DataError(_too_large(shown(file.name)))
        except duckdb.Error as problem:
            raise DataError(sentence(str(problem), shown(file.name))) from problem
    return titles


def _select_text(text: Text, file: Path, given: tuple[Column | None, Column | None]) -> str:
    sample = sniff.read_sample(text)
    layout = _layout(file, sample, text.name, given)
    types = ["VARCHAR"] * layout.width
    table = scan_text(text, sample, layout.delimiter, types, header=layout.header, quote=layout.quote)
    year = "''" if layout.year is None else f"trim(coalesce(c{layout.year}, ''))"
    return f"SELECT coalesce(c{layout.item}, ''), coalesce(c{layout.title}, ''), {year} FROM {table}"


def _select_typed(con: DuckDBPyConnection, table: str, name: str, given: tuple[Column | None, Column | None]) -> str:
    names = [str(row[0]) for row in con.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()]
    columns = (f"coalesce(CAST({quote_name(names[place])} AS VARCHAR), '')" for place in _columns(names, name, given))
    return f"SELECT {', '.join(columns)}, '' FROM {table}"


def _columns(names: list[str], label: str, given: tuple[Column | None, Column | None]) -> tuple[int, int]:
    """Return the columns of items and titles: as given, or by their names."""
    places = []
    for role, column in zip(("item", "title"), given, strict=True):
        if column is not None:
            places.append(position(column, names, role, label, f"--titles-{role}-col"))
            continue
        columns = sniff.columns_of(role, names)
        if not columns:
            raise DataError(
                f"{label} has the columns {listed(names)}, expected one for the item (such as item_id) and one named "
                "title or name; name them with --titles-item-col and --titles-title-col."
            )
        places.append(columns[0])
    return places[0], places[1]


def _text(file: Path, encoding: str, folder: Path) -> Text:
    """Return the checked text; files of MovieLens are latin-1 in some editions and UTF-8 in others."""
    try:
        return plain_text(file, encoding, folder)
    except DataError:
        if file.name.lower() not in _MOVIELENS:
            raise
        return plain_text(file, "latin-1", folder)


def _layout(file: Path, sample: sniff.Sample, name: str, given: tuple[Column | None, Column | None]) -> _Layout:
    first = sample.lines[0]
    if (delimiter := _MOVIELENS.get(file.name.lower())) and given == (None, None):
        width = len(first.split(delimiter))
        if width < 2:
            raise DataError(f"{name} has one column when cut at {delimiter!r}, expected an id and a title.")
        return _Layout(delimiter, width, 0, 1, header=False)
    if ":token" in first and given == (None, None):
        names = [field.partition(":")[0] for field in first.split("\t")]
        place = {column: at for at, column in enumerate(names)}
        if not {"item_id", "movie_title"} <= set(place):
            raise DataError(f"{name} has no columns item_id and movie_title, it has {listed(names)}.")
        return _Layout("\t", len(names), place["item_id"], place["movie_title"], place.get("release_year"))
    delimiter = sniff.find_delimiter(sample, name)
    if len(delimiter) > 1:
        raise DataError(f"{name} is separated by {delimiter!r}, expected a CSV with an item and a title column.")
    names = [field.strip() for field in sniff.split_lines([first], delimiter)[0]]
    item, title = _columns(names, name, given)
    return _Layout(delimiter, len(names), item, title, quote='"')
