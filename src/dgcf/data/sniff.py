"""Detect format, delimiter and header of a text file from its first lines."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

from dgcf.data.paths import shown
from dgcf.data.text import LONGEST_LINE, Text
from dgcf.errors import DataError

SAMPLE_BYTES = 1 << 16
_WHOLE = re.compile(r"-?[0-9]+")
DELIMITERS = ("\t", "::", ",", ";", "|", " ")

# Common names of columns, lower case and without separators. Of names in several groups, the first group counts.
ROLE_NAMES = {
    "user": (
        "user userid uid customer customerid customerno customernumber customerkey cust custid client clientid visitor "
        "visitorid reviewer reviewerid shopper shopperid buyer buyerid member memberid listener listenerid reader "
        "readerid",
        "account accountid household householdid householdkey username login",
        "session sessionid",
    ),
    "item": (
        "parentasin",
        "item itemid itemno itemcode iid movie movieid film filmid product productid productno productcode asin sku "
        "stockcode article articleid articleno book bookid isbn track trackid song songid artist artistid business "
        "businessid location locationid venue venueid game gameid app appid recipe recipeid course courseid contentid",
    ),
    "rating": ("rating ratings score stars overall value ratingvalue bookrating starrating reviewscore",),
    "split": ("split",),
    "timestamp": (
        "timestamp time date datetime ts unixreviewtime eventtime eventdate eventtimestamp createdat invoicedate "
        "orderdate ordertime orderdatetime purchasedate transactiondate transactiondt tdat",
        "reviewtime reviewdate",
    ),
    "title": (
        "title itemtitle itemname producttitle productname movietitle moviename booktitle tracktitle trackname "
        "songtitle songname gametitle",
        "name",
        "description itemdescription productdescription",
    ),
}
ROLES = {
    name: (role, rank)
    for role, groups in ROLE_NAMES.items()
    for rank, names in enumerate(groups)
    for name in names.split()
}


@dataclass(frozen=True)
class Sample:
    """The complete, decoded lines at the beginning of a text file."""

    lines: list[str]
    skipped: int
    """Number of empty lines before the first one."""


def read_sample(text: Text) -> Sample:
    """Return the first lines of a checked text; refuse empty files and other formats."""
    with text.path.open("rb") as stream:
        raw = stream.read(SAMPLE_BYTES)
        if len(raw) == SAMPLE_BYTES:
            # Complete lines only, but always the first one.
            raw = raw[: raw.rfind(b"\n") + 1] or raw + (b"" if b"\r" in raw else stream.readline(LONGEST_LINE))
    # The text is valid: only a character cut at the end of the sample can be invalid.
    lines = re.split(r"\r\n|\n|\r", raw.decode("utf-8-sig", errors="ignore"))
    filled = [place for place, line in enumerate(lines) if line.strip(" \t")]
    if not filled:
        raise DataError(f"{text.name} is empty, expected lines of data; write or download it again.")
    _refuse_other_kinds(lines[filled[0]], text.name)
    return Sample([lines[place] for place in filled], skipped=filled[0])


def _refuse_other_kinds(first: str, name: str) -> None:
    """Refuse first lines that are neither header nor data."""
    if first.startswith(("{", "[")):
        raise DataError(f"{name} looks like JSON, which is not read; convert it to CSV or Parquet.")
    if first.startswith("#") or first.lower().startswith("sep="):
        raise DataError(f"{name} begins with a line that is neither header nor data ({shown(first[:30])}); remove it.")


def find_format(name: str, sample: Sample) -> str:
    """Return ``inter``, ``u.data``, ``ratings.dat``, ``adjacency`` or ``csv``, by name and then by content."""
    stem = name.lower().removesuffix(".gz")
    if stem.endswith(".inter"):
        return "inter"
    if stem in ("u.data", "ratings.dat"):
        return stem
    first = sample.lines[0]
    if ":token" in first and "\t" in first:
        return "inter"
    rows = [line.split() for line in sample.lines]
    if all(_WHOLE.fullmatch(field) for row in rows for field in row) and not any("\t" in line for line in sample.lines):
        # Numbers separated by blanks: a table has as many in every line, lists do not.
        widths = {len(row) for row in rows}
        if len(widths) > 1 or stem in ("train.txt", "validation.txt", "valid.txt", "val.txt", "test.txt"):
            return "adjacency"
        if max(widths) > 2:
            raise DataError(
                f"{name} has {max(widths)} numbers in every line, which may be a table or lists 'user item "
                "item …'; pass --format csv or --format adjacency."
            )
    if all(line.count("::") == 3 for line in sample.lines):
        return "ratings.dat"
    if all(_is_u_data(line) for line in sample.lines):
        return "u.data"
    return "csv"


def _is_u_data(line: str) -> bool:
    fields = line.split("\t")
    return len(fields) == 4 and all(field.isdecimal() for field in fields) and len(fields[3]) >= 9


def find_delimiter(sample: Sample, name: str) -> str:
    """Return the delimiter that cuts every line into the same number (at least two) of fields."""
    best, best_width = "", 1
    for delimiter in DELIMITERS:
        widths = {len(row) for row in split_lines(sample.lines[:100], delimiter)}
        # Only equal widths decide here; a ragged line has its own message later.
        width = max(widths) if len(widths) == 1 else 0
        if width > best_width:
            best, best_width = delimiter, width
    if best:
        return best
    counts = {delimiter: sum(delimiter in line for line in sample.lines[:100]) for delimiter in DELIMITERS}
    likely = max(counts, key=lambda delimiter: counts[delimiter])
    if counts[likely] * 2 < len(sample.lines[:100]):
        raise DataError(
            f"{name} has one column, expected at least user and item; if the columns are separated by something "
            "unusual, name it with --delimiter."
        )
    return likely


def split_lines(lines: list[str], delimiter: str) -> list[list[str]]:
    """Cut lines into fields as DuckDB will."""
    if len(delimiter) > 1:
        return [line.split(delimiter) for line in lines]
    try:
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))
    except csv.Error:
        return [line.split(delimiter) for line in lines]


def role_of(column: str) -> str | None:
    """Return the role of a column with a common name: ``user``, ``item``, ``rating``, ``timestamp``, …"""
    return _ranked_role(column)[0]


def columns_of(role: str, names: list[str]) -> list[int]:
    """Return the positions of the columns that have the most usual names for a role; several if that is unclear."""
    ranks = {place: rank for place, name in enumerate(names) for at, rank in [_ranked_role(name)] if at == role}
    return [place for place, rank in ranks.items() if rank == min(ranks.values())]


def _ranked_role(column: str) -> tuple[str | None, int]:
    return ROLES.get("".join(letter for letter in column.lower() if letter.isalnum()), (None, 0))


def has_header(rows: list[list[str]]) -> bool | None:
    """Return whether the first row is a header; None if that is unclear."""
    first, rest = rows[0], rows[1:]
    if {"user", "item"} <= {role_of(field) for field in first}:
        return True
    columns = list(zip(*(row for row in rest if len(row) == len(first)), strict=True))
    above_numbers = any(
        not is_number(name) and all(is_number(field) for field in column)
        for name, column in zip(first, columns, strict=False)
    )
    is_data = any(is_number(field) for field in first)
    return above_numbers if above_numbers != is_data else None


def is_number(field: str) -> bool:
    """Return whether a text is a number as Python reads it."""
    try:
        float(field)
    except ValueError:
        return False
    return True
