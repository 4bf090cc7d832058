"""Titles: what an item is called, from the files in which people keep it."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

from dgcf.data import sniff
from dgcf.errors import DataError

_TITLE_NAMES = ("title", "name", "movie_title", "item_title", "product_title", "item_name", "product_name")


def read_titles(path: str | Path, encoding: str = "utf-8") -> dict[str, str]:
    """Raw item id → title, from a table with an item and a title column, or a file of MovieLens or RecBole."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"there is no titles file {file}; check the path given with --titles.")
    name = file.name.lower()
    if name == "movies.dat":
        return {row[0]: row[1] for row in _rows(file, "latin-1", "::") if len(row) >= 2}
    if name == "u.item":
        return {row[0]: row[1] for row in _rows(file, "latin-1", "|") if len(row) >= 2}
    encoding = sniff.canonical_encoding(encoding)
    sample = sniff.read_sample(file, encoding)
    if ":token" in sample.lines[0]:
        return _recbole_titles(file)
    return _table_titles(file, sample, encoding)


def _rows(file: Path, encoding: str, delimiter: str) -> Iterator[list[str]]:
    with gzip.open(file, "rt", encoding=encoding) if file.suffix == ".gz" else file.open(encoding=encoding) as lines:
        for line in lines:
            yield line.rstrip("\r\n").split(delimiter)


def _recbole_titles(file: Path) -> dict[str, str]:
    """RecBole's ``.item``: the year, kept apart there, goes back into the title, for films that share a name."""
    rows = _rows(file, "utf-8", "\t")
    names = [field.partition(":")[0] for field in next(rows)]
    try:
        id_place, title_place = names.index("item_id"), names.index("movie_title")
    except ValueError:
        raise DataError(f"{file.name} has no columns item_id and movie_title, it has {', '.join(names)}.") from None
    year_place = names.index("release_year") if "release_year" in names else None
    titles = {}
    for row in rows:
        year = row[year_place].strip() if year_place is not None and year_place < len(row) else ""
        titles[row[id_place]] = f"{row[title_place]} ({year})" if year.isdecimal() else row[title_place]
    return titles


def _table_titles(file: Path, sample: sniff.Sample, encoding: str) -> dict[str, str]:
    delimiter = sniff.find_delimiter(sample, file.name)
    if len(delimiter) > 1:
        raise DataError(f"{file.name} is separated by {delimiter!r}, expected a CSV with an item and a title column.")
    open_text = gzip.open if sample.gzipped else open
    with open_text(file, "rt", encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as lines:
        rows = csv.reader(lines, delimiter=delimiter)
        names = [name.strip() for name in next(rows)]
        item = next((place for place, name in enumerate(names) if sniff.role_of(name) == "item"), None)
        title = next((place for place, name in enumerate(names) if name.lower() in _TITLE_NAMES), None)
        if item is None or title is None:
            raise DataError(
                f"{file.name} has the columns {', '.join(names[:8])}, expected one for the item (such as item_id) and "
                "one named title or name."
            )
        return {row[item]: row[title] for row in rows if len(row) > max(item, title)}
