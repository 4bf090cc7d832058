"""A source of rows: the SQL of its columns, and what readers know about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dgcf.data.columns import ReadOptions
from dgcf.data.times import TimeFormat
from dgcf.data.vocabulary import IdKind
from dgcf.data.where import Field
from dgcf.errors import DataError

# The number of the split that a column ``split`` names; NULL for anything else.
PART_OF_SPLIT = (
    "CASE lower(split) WHEN 'train' THEN 0 WHEN 'validation' THEN 1 WHEN 'valid' THEN 1 WHEN 'val' THEN 1 "
    "WHEN 'dev' THEN 1 WHEN 'test' THEN 2 END"
)


NUMBERS = ("rating", "timestamp", "weight")
"""Roles whose values are read as numbers."""


@dataclass(frozen=True)
class Source:
    """A table to read: ``columns`` are the SQL expressions of user and item (text), and optionally of rating,
    timestamp, place, split, title and weight, on ``table``. Rows that do not meet ``condition`` are left out.

    ``label`` names it in messages. ``raw`` are the texts that ratings, times and weights are read from, for messages.
    ``fields`` are all columns, which a condition can name. ``first_line`` is the line of the first row in a text file.
    ``header_pair`` holds the headers of user and item. ``whole_number_ids``: the format has integer ids only.
    ``listed``: it has no times, but the items of each user in a list, with positions ``place`` from 0. ``packed``: the
    file is so much smaller than its rows that it must repeat them. ``path`` is the file that DuckDB reads. ``read_as``
    records the detected format.
    """

    label: str
    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    condition: str = "true"
    listed: bool = False
    user_kind: IdKind = "text"
    item_kind: IdKind = "text"
    first_line: int | None = None
    header_pair: tuple[str, str] | None = None
    whole_number_ids: bool = False
    packed: bool = False
    path: str = ""
    read_as: Mapping[str, Any] = field(default_factory=dict)

    def has(self, role: str) -> bool:
        """Return whether there is a column of a role, such as ``timestamp``."""
        return role in self.columns

    @property
    def dated(self) -> bool:
        """Whether all times are dates: of a typed column, or texts in a format."""
        return self.columns.get("timestamp", "").startswith("epoch(")

    def rows(self, **more: str) -> str:
        """Return the query of all rows: a column per role, ``kept`` (whether the row meets the condition), and more."""
        columns = {**self.columns, "kept": f"({self.condition}) IS TRUE", **more}
        return f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in columns.items())} FROM {self.table}"


def with_time_format(source: Source, form: TimeFormat) -> Source:
    """Return a source whose texts of times are read in a format; a column of times that are no text stays."""
    if not source.has("timestamp"):
        raise DataError(
            f"{source.label} has no timestamp column, for which --timestamp-format was given; name it with "
            "--timestamp-col."
        )
    if "timestamp" not in source.raw:
        raise DataError(f"the times of {source.label} are no text; leave --timestamp-format out.")
    raw = source.raw["timestamp"]
    fields = tuple(
        replace(f, sql=form.epoch(raw), kind="time", untyped=False) if f.sql == raw else f for f in source.fields
    )
    columns = {**source.columns, "timestamp": form.epoch(raw)}
    return replace(source, columns=columns, fields=fields, read_as={**source.read_as, "times": form.words})


def id_expression(column: str, options: ReadOptions) -> str:
    """Return the SQL expression of an id column of texts."""
    return f"trim({column}, chr(9) || ' ')" if options.trim_ids else column
