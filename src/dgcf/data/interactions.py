"""From sources to checked pairs of indices: DuckDB reads, checks and numbers the ids; NumPy takes over from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dgcf.data.paths import listed, shown
from dgcf.data.readers import PART_OF_SPLIT, ReadOptions, Source, open_source
from dgcf.data.sql import connect, sentence
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TimeUse = Literal["kept", "needed", "used", "ignored"]
"""``kept``: the time of each pair, or its place in its user's list; ``used``: times, where they are known."""
APART = 1e9
"""From one file of lists to the next: what is listed in validation comes after all of train."""
_MAX_IDS = 2**31 - 1


@dataclass(frozen=True)
class RatingFilter:
    """Which ratings count as an interaction: at least ``minimum``, or one of ``values``."""

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
        if self.values is not None:
            return f"rating IN ({', '.join(repr(float(value)) for value in self.values) or 'NULL'})"
        return f"rating >= {float(self.minimum or 0)!r}"


@dataclass(frozen=True, eq=False)
class Interactions:
    """Rows of (user, item) by index, in no particular order, repeats included (but those in ``merged``).

    ``user_idx``, ``item_idx``: (n,) int32; ``timestamp``: (n,) float64, or None where they were not asked for;
    ``part``: (n,) int8, the number of the source a row came from or, with ``split_column``, what that column says
    (0 train, 1 validation, 2 test). ``merged``: how many repeats of each part were merged while they were read, the
    latest time kept, because their source consists of little else. ``notes`` are things that a careful reader would
    ask about.
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

    def __len__(self) -> int:
        return len(self.user_idx)

    def keep(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Interactions:
        """Some of the rows; the vocabularies stay."""
        return replace(
            self,
            user_idx=self.user_idx[mask],
            item_idx=self.item_idx[mask],
            part=self.part[mask],
            timestamp=None if self.timestamp is None else self.timestamp[mask],
        )

    def compact(self) -> Interactions:
        """The same rows, with the ids that no row uses left out of the vocabularies."""
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
) -> Interactions:
    """Read the sources (one, or one per given split) into rows of indices under a common vocabulary.

    ``split_column``: whether a column named ``split`` is to be heeded.
    """
    import duckdb

    with connect() as (con, folder):
        opened: list[Source] = []
        try:
            for source in sources:
                opened.append(open_source(con, source, options, folder))
            if time == "kept":
                opened = [_timed_by_place(source, part) for part, source in enumerate(opened)]
            timed = time in ("kept", "needed") or (time == "used" and all(source.timestamp for source in opened))
            heeded = split_column and len(opened) == 1 and opened[0].split
            rows_read = _stage(con, opened, ratings, timed, heeded)
            return _number(con, opened, options, rows_read, timed, heeded)
        except (duckdb.Error, RuntimeError) as problem:
            if "interrupted" in str(problem).lower():  # Ctrl-C while DuckDB was at work
                raise KeyboardInterrupt from problem
            if not isinstance(problem, duckdb.Error):
                raise
            named = [source.label for source in opened if source.path and source.path in str(problem)]
            # While the sources are being opened, it is the next one.
            labels = [*named, *map(_label, sources[len(opened) :]), *(source.label for source in opened[-1:])]
            raise DataError(sentence(str(problem), labels[0])) from problem


def _label(source: Any) -> str:
    return shown(Path(source).name) if isinstance(source, (str, Path)) else f"the {type(source).__name__}"


def _timed_by_place(source: Source, part: int) -> Source:
    """A source whose pairs have an order: a list's places are its times."""
    if source.timestamp:
        return source
    if not source.listed:
        raise DataError(
            f"{source.label} has no timestamp column, so that there is no order to keep; name it with --timestamp-col, "
            "or leave --keep-order and recency out."
        )
    return replace(
        source, select=f"SELECT *, place + {part * APART!r} AS timestamp FROM ({source.select})", timestamp=True
    )


# What makes a row unfit. ``fine`` says that the rating is a finite number.
_UNFIT = {
    "an empty user id": "user IS NULL OR trim(user) = ''",
    "an empty item id": "item IS NULL OR trim(item) = ''",
    "a rating that is not a finite number": "fine IS NOT TRUE",
    "a timestamp that is neither a number nor a date": "isfinite(timestamp) IS NOT TRUE",
    "a split that is none of train, validation and test": "part IS NULL",
}


def _stage(
    con: DuckDBPyConnection, sources: Sequence[Source], ratings: RatingFilter, timed: bool, split_column: bool
) -> int:
    """Read into the table ``staged`` what passes the filter, refuse unfit rows, and count all that were read."""
    for source in sources:
        if ratings and not source.rating:
            raise DataError(f"{source.label} has no rating column to filter by; name it with --rating-col.")
        if timed and not source.timestamp:
            todo = "to take the order of its lists for one, add --keep-order" if source.listed else ""
            raise DataError(
                f"{source.label} has no timestamp column, which this split needs; "
                f"{todo or 'name it with --timestamp-col'}."
            )
    # A rating that cannot be compared must not slip through the filter: neither true nor false is kept, and refused.
    where = f"WHERE ({ratings.condition()}) IS NOT FALSE" if ratings else ""
    time = ", timestamp" if timed else ""
    selects = [
        f"SELECT user, item, {_fine(source)} AS fine, "
        f"({PART_OF_SPLIT if split_column else part})::TINYINT AS part{time} FROM ({source.select}) {where}"
        for part, source in enumerate(sources)
    ]
    con.execute(f"CREATE TEMP TABLE staged AS {_each_once(' UNION ALL '.join(selects), sources, timed)}")
    for problem, test in _UNFIT.items():
        if timed or "timestamp" not in test:
            count = con.execute(f"SELECT {_counted(sources)} FROM staged WHERE {test}").fetchall()[0][0]
            if count:
                raise DataError(_bad_rows(con, sources, problem, test, count))
    if not ratings:
        return int(con.execute(f"SELECT {_counted(sources)} FROM staged").fetchall()[0][0] or 0)
    return sum(con.execute(f"SELECT count(*) FROM ({source.select})").fetchall()[0][0] for source in sources)


def _each_once(rows: str, sources: Sequence[Source], timed: bool) -> str:
    """The rows with repeats merged and counted, where a small file may hold billions of equal ones."""
    if not any(source.packed for source in sources):
        return rows
    # A time that is not finite must not hide behind one that is.
    latest, finite = (", max(timestamp) AS timestamp", ", isfinite(timestamp)") if timed else ("", "")
    return (
        f"SELECT user, item, fine, part, count(*) AS times{latest} FROM ({rows}) "
        f"GROUP BY user, item, fine, part{finite}"
    )


def _counted(sources: Sequence[Source]) -> str:
    return "sum(times)" if any(source.packed for source in sources) else "count(*)"


def _fine(source: Source) -> str:
    return "isfinite(rating)" if source.rating else "true"


def _bad_rows(con: DuckDBPyConnection, sources: Sequence[Source], problem: str, test: str, count: int) -> str:
    """Name the first bad row: read again, slowly and in order, now that there is something to say."""
    con.execute("SET threads = 1; SET preserve_insertion_order = true")
    for source in sources:
        if "timestamp" in test and not source.timestamp:
            continue
        part = PART_OF_SPLIT if source.split else "0"
        numbered = (
            f"SELECT *, {_fine(source)} AS fine, {part} AS part, row_number() OVER () AS row FROM ({source.select})"
        )
        found = con.execute(f"SELECT min(row) FROM ({numbered}) WHERE {test}").fetchall()[0][0]
        if found is not None:
            place = f"line {found + source.first_line - 1}" if source.first_line else f"row {found}"
            others = f" ({count:,} such rows in all)" if count > 1 else ""
            return f"{place} of {source.label} has {problem}{others}; correct or remove it and try again."
    return f"{sources[0].label} has {problem}; correct or remove it and try again."


def _number(
    con: DuckDBPyConnection,
    sources: Sequence[Source],
    options: ReadOptions,
    rows_read: int,
    timed: bool,
    split_column: bool,
) -> Interactions:
    """Number the ids, and fetch the fit rows by number."""
    if not rows_read:
        lines = "a line 'user item item …'" if sources[0].whole_number_ids else "at least one user and item"
        raise DataError(f"{sources[0].label} has no rows, expected {lines}.")
    _refuse_repeated_header(con, sources)
    if timed:
        _refuse_mixed_times(con, sources[0])
    for column in ("user", "item"):
        # Length, then bytes: the vocabulary's order. strlen counts bytes; text is compared by its UTF-8 bytes.
        con.execute(
            f"CREATE TEMP TABLE {column}_ids AS "
            f"SELECT {column}, (row_number() OVER (ORDER BY strlen({column}), {column}) - 1) AS idx "
            f"FROM (SELECT DISTINCT {column} FROM staged)"
        )
    users = _vocabulary(con, "user", sources, options)
    items = _vocabulary(con, "item", sources, options)
    columns = con.execute(
        f"SELECT u.idx::INTEGER AS user, i.idx::INTEGER AS item, part{', timestamp' if timed else ''} "
        f"FROM staged JOIN user_ids u USING (user) JOIN item_ids i USING (item)"
    ).fetchnumpy()
    return Interactions(
        users,
        items,
        np.asarray(columns["user"]),
        np.asarray(columns["item"]),
        np.asarray(columns["part"]),
        np.asarray(columns["timestamp"]) if timed else None,
        rows_read,
        tuple(sources),
        split_column,
        _notes(con),
        _merged(con, sources),
    )


def _merged(con: DuckDBPyConnection, sources: Sequence[Source]) -> tuple[int, int, int]:
    merged = f"SELECT part, {_counted(sources)} - count(*) FROM staged GROUP BY part"
    by_part = dict(con.execute(merged).fetchall())
    return int(by_part.get(0, 0)), int(by_part.get(1, 0)), int(by_part.get(2, 0))


def _refuse_repeated_header(con: DuckDBPyConnection, sources: Sequence[Source]) -> None:
    """Files that were joined one after the other carry their headers along."""
    for source in sources:
        if source.header_pair is not None:
            found = con.execute(
                "SELECT count(*) FROM staged WHERE user = $1 AND item = $2", source.header_pair
            ).fetchall()
            if found[0][0]:
                raise DataError(
                    f"{source.label} repeats its header ({listed(source.header_pair)}) among the rows; remove those "
                    "lines, or pass --no-header if they are data."
                )


def _refuse_mixed_times(con: DuckDBPyConnection, source: Source) -> None:
    """Seconds beside milliseconds, or dates written as numbers, order the rows wrongly without a word."""
    low, high = con.execute("SELECT min(timestamp), max(timestamp) FROM staged").fetchall()[0]
    if low is not None and low > 1e6 and high > 50 * low:
        raise DataError(
            f"the times of {source.label} run from {low:.0f} to {high:.0f}, which look like different units; bring "
            "them to one, such as seconds."
        )


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
    count = con.execute(f"SELECT count(*) FROM {what}_ids").fetchall()[0][0]
    if count > _MAX_IDS:
        raise DataError(f"there are {count:,} {what}s, expected at most {_MAX_IDS:,}; filter the data first.")
    if con.execute(f"SELECT count(*) FROM {what}_ids WHERE contains({what}, chr(0))").fetchall()[0][0]:
        raise DataError(f"{sources[0].label} has a {what} id with a zero byte in it; is it really text? Mend it first.")
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
    """Refuse a negative id among whole numbers (it marks a missing one), and all but numbers where they are due."""
    source = sources[0]
    counted, whole, negative, example = con.execute(
        f"SELECT count(*), count(*) FILTER (regexp_full_match({what}, '-?[0-9]+')), "
        f"count(*) FILTER (regexp_full_match({what}, '-[0-9]+')), min({what}) FILTER ({what} LIKE '-%') FROM {what}_ids"
    ).fetchall()[0]
    if negative and whole == counted:
        raise DataError(
            f"{what} {example} of {source.label} is a negative number, expected ids from 0 on (-1 often marks a "
            "missing id); remove such rows, or pass --text-ids to take all ids as mere text."
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
