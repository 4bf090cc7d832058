"""Interactions: DuckDB reads sources, checks rows and numbers the ids; the result is NumPy arrays of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dgcf.data.history import Removed
from dgcf.data.paths import listed, shown
from dgcf.data.readers import ReadOptions, open_source
from dgcf.data.source import Source
from dgcf.data.sql import connect, sentence, text_as_number
from dgcf.data.staging import Staged, stage
from dgcf.data.titles import ColumnTitles, titles_of_rows
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TimeUse = Literal["kept", "needed", "used", "ignored"]
"""``kept``: the time of each pair, or its position in the list of its user; ``used``: times, if known."""
APART = 1e9
"""Distance in time from one file of lists to the next: validation comes after train."""
_MAX_IDS = 2**31 - 1


@dataclass(frozen=True)
class RatingFilter:
    """The ratings that count as interactions: at least ``minimum``, or one of ``values``."""

    minimum: float | None = None
    values: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.minimum is not None and self.values is not None:
            raise ConfigError("a rating threshold and a set of ratings were both given; choose one of them.")
        for number in (self.minimum, *(self.values or ())):
            if number is not None and not math.isfinite(number):
                raise ConfigError(f"the rating {number} to filter by is not a finite number; give one such as 4.")

    def __bool__(self) -> bool:
        return self.minimum is not None or self.values is not None

    def __str__(self) -> str:
        if self.values is not None:
            return f"rating in {{{', '.join(f'{value:g}' for value in self.values)}}}"
        return f"rating >= {self.minimum:g}"

    def condition(self) -> str:
        """Return the filter as an SQL condition."""
        if self.values is not None:
            return f"rating IN ({', '.join(repr(float(value)) for value in self.values) or 'NULL'})"
        return f"rating >= {float(self.minimum or 0)!r}"


@dataclass(frozen=True, eq=False)
class Interactions:
    """Rows of user and item indices in no particular order, repeats included.

    ``user_idx``, ``item_idx``: (n,) int32. ``timestamp``: (n,) float64, or None if times are not needed. ``part``: (n,)
    int8, the number of the source of a row or, with ``split_column``, the split in that column (0 train, 1 validation,
    2 test). ``merged``: number of repeats of each part that were merged while reading, because the source consists of
    little else; the latest time is kept. ``notes``: remarks on the data for the user. ``removed``: what the filters
    removed while reading. ``titles``: titles of items from a column of the rows. ``weight``: (n,) float64, finite and
    at least 0, or None without weights.
    """

    users: Vocabulary
    items: Vocabulary
    user_idx: NDArray[np.int32]
    item_idx: NDArray[np.int32]
    part: NDArray[np.int8]
    timestamp: NDArray[np.float64] | None
    rows_read: int
    sources: tuple[Source, ...] = ()
    split_column: bool = False
    notes: tuple[str, ...] = ()
    merged: tuple[int, int, int] = (0, 0, 0)
    removed: tuple[Removed, ...] = ()
    titles: ColumnTitles | None = None
    weight: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.user_idx)

    def keep(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Interactions:
        """Return the chosen rows with the same vocabularies."""
        return replace(
            self,
            user_idx=self.user_idx[mask],
            item_idx=self.item_idx[mask],
            part=self.part[mask],
            timestamp=None if self.timestamp is None else self.timestamp[mask],
            weight=None if self.weight is None else self.weight[mask],
        )

    def compact(self) -> Interactions:
        """Return the same rows with unused ids removed from the vocabularies."""
        users, user_idx = _compact(self.users, self.user_idx)
        items, item_idx = _compact(self.items, self.item_idx)
        return replace(self, users=users, items=items, user_idx=user_idx, item_idx=item_idx)


def _compact(vocabulary: Vocabulary, index: NDArray[np.int32]) -> tuple[Vocabulary, NDArray[np.int32]]:
    used = np.zeros(len(vocabulary), dtype=bool)
    used[index] = True
    if used.all():
        return vocabulary, index
    renumber = np.cumsum(used, dtype=np.int32) - 1
    return vocabulary.take(np.flatnonzero(used)), renumber.astype(np.int32)[index]


def collect(
    sources: Sequence[Any],
    options: ReadOptions,
    ratings: RatingFilter,
    *,
    time: TimeUse = "ignored",
    split_column: bool = False,
    count: bool = False,
) -> Interactions:
    """Read sources (one, or one per ready-made split) into rows of indices under common vocabularies.

    ``split_column``: use a column named ``split``. ``count``: the weight of a row is the number of rows that it stands
    for, in place of a column.
    """
    import duckdb

    with connect() as (con, folder):
        opened: list[Source] = []
        try:
            for source in sources:
                opened.append(open_source(con, source, options, folder))
            if time == "kept":
                opened = [_with_positions_as_times(source, part) for part, source in enumerate(opened)]
            timed = time in ("kept", "needed") or (time == "used" and all(s.has("timestamp") for s in opened))
            if count and options.weight_col is not None:
                raise ConfigError("weights are a column or the number of events, not both; leave one of them out.")
            _require_columns(opened, options, ratings, timed)
            split_column = split_column and len(opened) == 1 and opened[0].has("split")
            filters = [(str(ratings), ratings.condition())] if ratings else []
            roles = (*(["timestamp"] if timed else []), *(["weight"] if options.weight_col is not None else []))
            # A format that was given must fit, whether or not the times are used.
            checked = ("timestamp",) if options.timestamp_format is not None and not timed else ()
            staged = stage(con, opened, options, filters, roles=(*roles, *checked), split_column=split_column)
            return _number(con, staged, options, roles, split_column=split_column, count=count)
        except (duckdb.Error, RuntimeError) as problem:
            if "interrupted" in str(problem).lower():  # Ctrl-C during a query
                raise KeyboardInterrupt from problem
            if not isinstance(problem, duckdb.Error):
                raise
            raise DataError(sentence(str(problem), _failed_source(sources, opened, str(problem)))) from problem


def _failed_source(sources: Sequence[Any], opened: Sequence[Source], problem: str) -> str:
    """Return the name of the source that a problem is of: the one that it names, or else the next to be opened."""
    named = [source.label for source in opened if source.path and source.path in problem]
    return [*named, *map(_label, sources[len(opened) :]), *(source.label for source in opened[-1:])][0]


def _label(source: Any) -> str:
    return shown(Path(source).name) if isinstance(source, (str, Path)) else f"the {type(source).__name__}"


def _with_positions_as_times(source: Source, part: int) -> Source:
    """Return a source with times; for lists, the positions are the times."""
    if source.has("timestamp"):
        return source
    if not source.listed:
        raise DataError(
            f"{source.label} has no timestamp column, so that there is no order to keep; name it with --timestamp-col, "
            "or leave --keep-order and recency out."
        )
    position = f"{source.columns['place']} + {part * APART!r}"
    return replace(source, columns={**source.columns, "timestamp": position})


def _require_columns(sources: Sequence[Source], options: ReadOptions, ratings: RatingFilter, timed: bool) -> None:
    for source in sources:
        if options.weight_col is not None and not source.has("weight"):
            raise DataError(f"{source.label} has no column of weights; leave --weight-col out.")
        if ratings and not source.has("rating"):
            raise DataError(f"{source.label} has no rating column to filter by; name it with --rating-col.")
        if timed and not source.has("timestamp"):
            advice = "name it with --timestamp-col"
            if source.listed:
                advice = "to use the order of its lists, add --keep-order"
            raise DataError(
                f"{source.label} has no timestamp column, which this split or --keep-times needs; {advice}."
            )


def _number(
    con: DuckDBPyConnection,
    staged: Staged,
    options: ReadOptions,
    roles: Sequence[str],
    *,
    split_column: bool,
    count: bool,
) -> Interactions:
    """Number the ids and fetch the rows as indices."""
    sources = staged.sources
    if not staged.rows_read:
        lines = "a line 'user item item …'" if sources[0].whole_number_ids else "at least one user and item"
        raise DataError(f"{sources[0].label} has no rows, expected {lines}.")
    _refuse_repeated_header(con, sources)
    if "timestamp" in roles:
        _refuse_mixed_times(con, sources)
    users = _vocabulary(con, "user", sources, options)
    items = _vocabulary(con, "item", sources, options)
    selected = [*roles, *(["times::DOUBLE AS weight" if staged.packed else "1::DOUBLE AS weight"] if count else [])]
    columns = con.execute(
        f"SELECT {', '.join(['u.idx::INTEGER AS user', 'i.idx::INTEGER AS item', 'part', *selected])} "
        f"FROM staged JOIN user_ids u USING (user) JOIN item_ids i USING (item)"
    ).fetchnumpy()
    return Interactions(
        users,
        items,
        np.asarray(columns["user"]),
        np.asarray(columns["item"]),
        np.asarray(columns["part"]),
        np.asarray(columns["timestamp"]) if "timestamp" in columns else None,
        staged.rows_read,
        sources,
        split_column,
        _notes(con),
        _merged(con, staged),
        staged.removed,
        titles_of_rows(con, staged, named=options.title_col is not None),
        np.asarray(columns["weight"]) if "weight" in columns else None,
    )


def _merged(con: DuckDBPyConnection, staged: Staged) -> tuple[int, int, int]:
    merged = f"SELECT part, {staged.counted} - count(*) FROM staged GROUP BY part"
    by_part = dict(con.execute(merged).fetchall())
    return int(by_part.get(0, 0)), int(by_part.get(1, 0)), int(by_part.get(2, 0))


def _refuse_repeated_header(con: DuckDBPyConnection, sources: Sequence[Source]) -> None:
    """Raise DataError if a header is among the rows, as in concatenated files."""
    for source in sources:
        if source.header_pair is not None:
            query = "SELECT count(*) FROM staged WHERE user = $1 AND item = $2"
            if con.execute(query, source.header_pair).fetchall()[0][0]:
                raise DataError(
                    f"{source.label} repeats its header ({listed(source.header_pair)}) among the rows; remove those "
                    "lines, or pass --no-header if they are data."
                )


def _refuse_mixed_times(con: DuckDBPyConnection, sources: Sequence[Source]) -> None:
    """Raise DataError for seconds mixed with milliseconds, or dates as numbers: they would order the rows wrongly."""
    low, high = con.execute("SELECT min(timestamp), max(timestamp) FROM staged").fetchall()[0]
    if low is not None and low > 1e6 and high > 50 * low and any(_times_are_numbers(con, source) for source in sources):
        raise DataError(
            f"the times of {sources[0].label} run from {low:.0f} to {high:.0f}, which look like different units; bring "
            "them to one, such as seconds."
        )


def _times_are_numbers(con: DuckDBPyConnection, source: Source) -> bool:
    """Return whether any time of a source is a number, and not a date."""
    if source.dated:
        return False
    raw = source.raw.get("timestamp")
    if raw is None:
        return True
    query = f"SELECT count({text_as_number(raw)}) FROM {source.table} WHERE ({source.condition}) IS TRUE"
    return bool(con.execute(query).fetchall()[0][0])


def _notes(con: DuckDBPyConnection) -> tuple[str, ...]:
    notes = []
    for what in ("user", "item"):
        count, example = con.execute(
            f"SELECT count(*), min({what}) FROM {what}_ids WHERE {what} <> trim({what}, chr(9) || ' ')"
        ).fetchall()[0]
        if count:
            notes.append(
                f"{count:,} {what} ids begin or end with a blank, such as {example!r}: they differ from the same ids "
                "without it; pass --trim-ids to cut the blanks off."
            )
    return tuple(notes)


def _vocabulary(con: DuckDBPyConnection, what: str, sources: Sequence[Source], options: ReadOptions) -> Vocabulary:
    """Number the ids of users or items in the table ``user_ids`` or ``item_ids``, and return them."""
    # By length, then bytes: the order of the vocabulary. strlen counts bytes; text is compared by UTF-8 bytes.
    con.execute(
        f"CREATE TEMP TABLE {what}_ids AS "
        f"SELECT {what}, (row_number() OVER (ORDER BY strlen({what}), {what}) - 1) AS idx "
        f"FROM (SELECT DISTINCT {what} FROM staged)"
    )
    count = con.execute(f"SELECT count(*) FROM {what}_ids").fetchall()[0][0]
    if count > _MAX_IDS:
        raise DataError(f"there are {count:,} {what}s, expected at most {_MAX_IDS:,}; filter the data first.")
    if con.execute(f"SELECT count(*) FROM {what}_ids WHERE contains({what}, chr(0))").fetchall()[0][0]:
        raise DataError(f"{sources[0].label} has a {what} id with a NUL byte, expected text; remove the NUL byte.")
    if not options.text_ids:
        _check_whole_numbers(con, what, sources)
    lengths: list[NDArray[np.int64]] = []
    blob = bytearray()
    cursor = con.execute(f"SELECT {what} FROM {what}_ids ORDER BY idx")
    while rows := cursor.fetchmany(100_000):
        encoded = [row[0].encode() for row in rows]
        blob += b"".join(encoded)
        lengths.append(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), *lengths]).cumsum()
    kinds = {source.user_kind if what == "user" else source.item_kind for source in sources}
    kind = kinds.pop() if len(kinds) == 1 else "text"
    return Vocabulary(what, np.frombuffer(bytes(blob), dtype=np.uint8), offsets, kind)


def _check_whole_numbers(con: DuckDBPyConnection, what: str, sources: Sequence[Source]) -> None:
    """Refuse negative ids among integers (they mark missing ids), and any other ids if the format needs integers."""
    source = sources[0]
    counted, whole, negative, example = con.execute(
        f"SELECT count(*), count(*) FILTER (regexp_full_match({what}, '-?[0-9]+')), "
        f"count(*) FILTER (regexp_full_match({what}, '-[0-9]+')), min({what}) FILTER ({what} LIKE '-%') FROM {what}_ids"
    ).fetchall()[0]
    if negative and whole == counted:
        raise DataError(
            f"{what} {example} of {source.label} is a negative number, expected ids from 0 on (-1 often marks a "
            "missing id); remove such rows, or pass --text-ids to read all ids as text."
        )
    if source.whole_number_ids:
        bad = con.execute(
            f"SELECT min({what}) FROM {what}_ids "
            f"WHERE try_cast({what} AS BIGINT) IS NULL OR NOT regexp_full_match({what}, '[0-9]+')"
        ).fetchall()[0][0]
        if bad is not None:
            raise DataError(
                f"{what} {bad[:40]!r} of {source.label} is not a whole number from 0 to 2^63-1, as lines of 'user item "
                "item …' need; if the file is a table, pass --format csv."
            )
