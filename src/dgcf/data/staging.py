"""Staging: DuckDB reads the rows of sources into a table, filters and counts them, and refuses invalid rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dgcf.data import times
from dgcf.data.history import Removed
from dgcf.data.paths import shorten
from dgcf.data.readers import ReadOptions
from dgcf.data.sniff import is_number
from dgcf.data.source import PART_OF_SPLIT, Source, with_time_format
from dgcf.data.sql import place, read_in_order
from dgcf.errors import DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLANK = "({0} IS NULL OR trim({0}) = '')"
MISSING = f"({_BLANK.format('user')} OR {_BLANK.format('item')})"
SKIPPED = "rows without a user or item id"
_FIRST_ROWS = 1000


@dataclass(frozen=True)
class Staged:
    """The rows in the table ``staged``: the sources as they were read, the SQL condition of the rows that all filters
    keep, the number of rows before any filter, what each filter removed, and whether the table counts repeats in a
    column ``times``."""

    sources: tuple[Source, ...]
    passed: str
    rows_read: int
    removed: tuple[Removed, ...]
    packed: bool

    @property
    def counted(self) -> str:
        """The SQL of the number of rows that a group of staged ones stands for."""
        return "sum(times)" if self.packed else "count(*)"


@dataclass(frozen=True)
class _Check:
    """A condition of invalid rows; ``role`` is the column to show, ``what`` and ``advice`` the words for it."""

    role: str
    test: str
    what: str
    advice: str = "correct or remove it and try again"

    def problem(self, text: str) -> str:
        """Return what is wrong with a text."""
        if self.role == "rating" and text.strip() and not is_number(text):
            return f"the rating {shorten(text)}, which is not a number"
        return f"{self.what}, {shorten(text)}" if text.strip() else self.what


_SKIP = "correct it, or leave such rows out with --missing skip"
_RATING = "correct it, or name another --rating-col (none ignores ratings)"
_CHECKS = (
    _Check("user", _BLANK.format("user"), "an empty user id", _SKIP),
    _Check("item", _BLANK.format("item"), "an empty item id", _SKIP),
    _Check("rating", "fine IS NOT TRUE", "a rating that is not a finite number", _RATING),
    _Check(
        "timestamp",
        f"isfinite(timestamp) IS NOT TRUE OR timestamp < {times.YEAR_1000}",
        "a timestamp that is neither a number nor a date",
        "correct or remove it, or name the form of all times with --timestamp-format",
    ),
    _Check(
        "weight",
        "isfinite(weight) IS NOT TRUE OR weight < 0",
        "a weight that is not a number from 0 on",
        "correct it, or leave such rows out with --where",
    ),
    _Check("split", "part IS NULL", "a split that is none of train, validation and test"),
)


def _unlike(form: str) -> _Check:
    """Return the check of times against the format that was given for them."""
    check = next(check for check in _CHECKS if check.role == "timestamp")
    what = f"a timestamp that --timestamp-format {form!r} does not fit"
    return replace(check, what=what, advice="correct or remove it, or give the format that all times have")


def stage(
    con: DuckDBPyConnection,
    sources: Sequence[Source],
    options: ReadOptions,
    filters: Sequence[tuple[str, str]],
    *,
    roles: Sequence[str],
    split_column: bool,
) -> Staged:
    """Read the rows that pass the filters into the table ``staged``; ``roles`` are its further columns of numbers.

    ``filters`` are names and SQL conditions on the columns of a source, applied after those of the options. A row
    whose condition is NULL passes: it is refused as invalid.
    """
    steps = [(f"where {options.where}", "kept")] if options.where is not None else []
    steps += [(SKIPPED, f"NOT {MISSING}")] if options.missing == "skip" else []
    steps += [(name, f"({condition}) IS NOT FALSE") for name, condition in filters]
    passed = " AND ".join(condition for _, condition in steps) or "true"
    opened = _read(con, sources, passed, roles, split_column, options.day_first)
    staged = Staged(tuple(opened), passed, 0, (), any(source.packed for source in opened))
    for check, count in _invalid(con, staged, roles):
        if check.role == "timestamp" and options.timestamp_format is not None:
            check = _unlike(options.timestamp_format)
        raise DataError(_bad_rows(con, opened, check, count, passed))
    if not steps:
        return replace(staged, rows_read=int(con.execute(f"SELECT {staged.counted} FROM staged").fetchall()[0][0] or 0))
    rows_read, removed = _count_steps(con, opened, steps)
    return replace(staged, rows_read=rows_read, removed=removed)


def _read(
    con: DuckDBPyConnection,
    sources: Sequence[Source],
    passed: str,
    roles: Sequence[str],
    split_column: bool,
    day_first: bool | None,
) -> list[Source]:
    """Fill the table ``staged``; times that are neither numbers nor ISO 8601 are recognised.

    The first rows usually tell; only if later ones alone are of another form, the table is filled again.
    """
    opened = list(sources)
    if "timestamp" not in roles:
        _fill(con, opened, passed, roles, split_column)
        return opened
    unread = next(check for check in _CHECKS if check.role == "timestamp").test
    for part, source in enumerate(opened):
        first = f"(SELECT * FROM ({source.rows()}) LIMIT {_FIRST_ROWS})"
        if (
            _own_times(source)
            and con.execute(f"SELECT 1 FROM {first} WHERE {passed} AND ({unread}) LIMIT 1").fetchall()
        ):
            opened[part] = _recognised(con, source, day_first)
    _fill(con, opened, passed, roles, split_column)
    parts = {part for (part,) in con.execute(f"SELECT DISTINCT part FROM staged WHERE {unread}").fetchall()}
    again = [
        _recognised(con, source, day_first)
        if source is sources[part] and _own_times(source) and (part in parts or (split_column and parts))
        else source
        for part, source in enumerate(opened)
    ]
    if any(source is not before for source, before in zip(again, opened, strict=True)):
        con.execute("DROP TABLE staged")
        _fill(con, again, passed, roles, split_column)
    return again


def _own_times(source: Source) -> bool:
    """Return whether the times of a source are a column of its own, whose form was not given."""
    return "timestamp" in source.raw and "times" not in source.read_as


def _recognised(con: DuckDBPyConnection, source: Source, day_first: bool | None) -> Source:
    """Return the source with the form of its times recognised; as it is if they have none."""
    condition = f"({source.condition}) IS TRUE"
    try:
        form = times.recognise(con, source.table, source.raw["timestamp"], condition, day_first)
    except DataError as problem:
        raise DataError(f"{source.label}: {problem}") from None
    return source if form is None else with_time_format(source, form)


def _fill(
    con: DuckDBPyConnection, sources: Sequence[Source], passed: str, roles: Sequence[str], split_column: bool
) -> None:
    more = "".join(f", {role}" for role in roles)
    selects = [
        f"SELECT user, item, {_fine(source)} AS fine, "
        f"({PART_OF_SPLIT if split_column else part})::TINYINT AS part{more} FROM ({source.rows()}) WHERE {passed}"
        for part, source in enumerate(sources)
    ]
    con.execute(f"CREATE TEMP TABLE staged AS {_merge_repeats(' UNION ALL '.join(selects), sources, roles)}")


def _merge_repeats(rows: str, sources: Sequence[Source], roles: Sequence[str]) -> str:
    """Return the query with repeats merged and counted, if a small file may hold billions of equal rows."""
    if not any(source.packed for source in sources):
        return rows
    # Grouped by validity, so that the maximum or the sum does not hide an invalid number.
    merged = {"timestamp": "max(timestamp) AS timestamp", "weight": "sum(weight) AS weight"}
    valid = {"timestamp": "isfinite(timestamp)", "weight": "isfinite(weight) AND weight >= 0"}
    more, groups = ("".join(f", {one[role]}" for role in roles) for one in (merged, valid))
    return (
        f"SELECT user, item, fine, part, count(*) AS times{more} FROM ({rows}) GROUP BY user, item, fine, part{groups}"
    )


def _fine(source: Source) -> str:
    return "isfinite(rating)" if source.has("rating") else "true"


def _count_steps(
    con: DuckDBPyConnection, sources: Sequence[Source], steps: Sequence[tuple[str, str]]
) -> tuple[int, tuple[Removed, ...]]:
    """Return the number of rows, and what each step removed of rows, users and items, in one pass over the sources."""
    conditions = [" AND ".join(["true", *(condition for _, condition in steps[:n])]) for n in range(len(steps) + 1)]
    rating = {True: "rating", False: "NULL::DOUBLE AS rating"}
    rows = " UNION ALL ".join(
        f"SELECT user, item, {rating[source.has('rating')]}, kept FROM ({source.rows()})" for source in sources
    )
    user, item = (f"CASE WHEN NOT {_BLANK.format(what)} THEN {what} END" for what in ("user", "item"))
    counts = con.execute(
        "SELECT "
        + ", ".join(
            f"count(*) FILTER ({passed}), count(DISTINCT {user}) FILTER ({passed}), "
            f"count(DISTINCT {item}) FILTER ({passed})"
            for passed in conditions
        )
        + f" FROM ({rows})"
    ).fetchall()[0]
    left = [counts[3 * n : 3 * n + 3] for n in range(len(steps) + 1)]
    removed = (
        Removed(name, *(int(one - other) for one, other in zip(before, after, strict=True)))
        for (name, _), before, after in zip(steps, left, left[1:], strict=False)
    )
    return int(left[0][0]), tuple(removed)


def _invalid(con: DuckDBPyConnection, staged: Staged, roles: Sequence[str]) -> Iterator[tuple[_Check, int]]:
    """Yield each check that rows do not pass, and their number."""
    for check in _CHECKS:
        if check.role in roles or check.role not in ("timestamp", "weight"):
            count = con.execute(f"SELECT {staged.counted} FROM staged WHERE {check.test}").fetchall()[0][0]
            if count:
                yield check, int(count)


def _bad_rows(con: DuckDBPyConnection, sources: Sequence[Source], check: _Check, count: int, passed: str) -> str:
    """Return the message for the first invalid row; the source is read again, in order."""
    read_in_order(con)
    for source in sources:
        if check.role in ("timestamp", "weight") and not source.has(check.role):
            continue
        value = source.raw.get(check.role) or source.columns.get(check.role, "NULL")
        rows = source.rows(row="row_number() OVER ()", value=f"CAST({value} AS VARCHAR)")
        part = PART_OF_SPLIT if source.has("split") else "0"
        row, text = con.execute(
            "SELECT min(row), min_by(value, row) "
            f"FROM (SELECT *, {_fine(source)} AS fine, {part} AS part FROM ({rows})) "
            f"WHERE {passed} AND ({check.test})"
        ).fetchall()[0]
        if row is not None:
            where = f"{place(row, source.first_line)} of {source.label}"
            others = f" ({count:,} such rows in all)" if count > 1 else ""
            return f"{where} has {check.problem(text or '')}{others}; {check.advice}."
    return f"{sources[0].label} has {check.what}; {check.advice}."
