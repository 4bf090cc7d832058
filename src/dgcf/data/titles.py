"""Read item titles from a table, or from a file of MovieLens or RecBole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dgcf.data import sniff
from dgcf.data.paths import listed, local_path, shown
from dgcf.data.readers import scan_text
from dgcf.data.sql import connect, sentence
from dgcf.data.text import Text, plain_text
from dgcf.errors import DataError

LARGEST = 256 << 20
"""Largest number of characters of all ids and titles, which are held in memory."""
_TITLE_NAMES = ("title", "name", "movie_title", "item_title", "product_title", "item_name", "product_name")
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


def read_titles(path: str | Path, encoding: str = "utf-8") -> dict[str, str]:
    """Return titles by raw item id, from a table with an item and a title column or a file of MovieLens or RecBole."""
    import duckdb

    file = local_path(path)
    if not file.is_file():
        raise DataError(f"there is no titles file {shown(file)}; check the path given with --titles.")
    with connect() as (con, folder):
        text = _text(file, encoding, folder)
        sample = sniff.read_sample(text)
        layout = _layout(file, sample, text.name)
        types = ["VARCHAR"] * layout.width
        table = scan_text(text, sample, layout.delimiter, types, header=layout.header, quote=layout.quote)
        year = "''" if layout.year is None else f"trim(coalesce(c{layout.year}, ''))"
        titles: dict[str, str] = {}
        size = 0
        try:
            con.execute("SET preserve_insertion_order = true")  # the later of two titles counts
            cursor = con.execute(
                f"SELECT coalesce(c{layout.item}, ''), coalesce(c{layout.title}, ''), {year} FROM {table}"
            )
            while rows := cursor.fetchmany(1024):
                for item, title, released in rows:
                    # RecBole has the year in a column; films may share a name without it.
                    titles[item] = f"{title} ({released})" if released.isdecimal() else title
                    size += len(item) + len(title)
                if size > LARGEST:
                    raise DataError(
                        f"{text.name} holds more than {LARGEST >> 20} MiB of titles; keep the columns and rows that "
                        "are needed."
                    )
        except duckdb.Error as problem:
            raise DataError(sentence(str(problem), text.name)) from problem
    return titles


def _text(file: Path, encoding: str, folder: Path) -> Text:
    """Return the checked text; files of MovieLens are latin-1 in some editions and UTF-8 in others."""
    try:
        return plain_text(file, encoding, folder)
    except DataError:
        if file.name.lower() not in _MOVIELENS:
            raise
        return plain_text(file, "latin-1", folder)


def _layout(file: Path, sample: sniff.Sample, name: str) -> _Layout:
    first = sample.lines[0]
    if delimiter := _MOVIELENS.get(file.name.lower()):
        width = len(first.split(delimiter))
        if width < 2:
            raise DataError(f"{name} has one column when cut at {delimiter!r}, expected an id and a title.")
        return _Layout(delimiter, width, 0, 1, header=False)
    if ":token" in first:
        names = [field.partition(":")[0] for field in first.split("\t")]
        place = {column: at for at, column in enumerate(names)}
        if not {"item_id", "movie_title"} <= set(place):
            raise DataError(f"{name} has no columns item_id and movie_title, it has {listed(names)}.")
        return _Layout("\t", len(names), place["item_id"], place["movie_title"], place.get("release_year"))
    delimiter = sniff.find_delimiter(sample, name)
    if len(delimiter) > 1:
        raise DataError(f"{name} is separated by {delimiter!r}, expected a CSV with an item and a title column.")
    names = [field.strip() for field in sniff.split_lines([first], delimiter)[0]]
    items = [place for place, column in enumerate(names) if sniff.role_of(column) == "item"]
    titles = [place for place, column in enumerate(names) if column.lower() in _TITLE_NAMES]
    if not items or not titles:
        raise DataError(
            f"{name} has the columns {listed(names)}, expected one for the item (such as item_id) and one named "
            "title or name."
        )
    return _Layout(delimiter, len(names), items[0], titles[0], quote='"')
