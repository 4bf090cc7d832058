"""Recognise how a column of text writes times: ISO 8601, numbers, or dates whose parts are in another order.

Numbers and ISO 8601 (``2011-12-01 08:26``) are read without a look at the column. Other texts are recognised over the
whole column, so that ``1/12/2011`` is never read by a guess: one day above 12 tells the order of day and month.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dgcf.data.sql import quote_text, text_as_number
from dgcf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DAY_FIRST, MONTH_FIRST = "day first", "month first"
"""What the orders of day and month are called."""
YEAR_1000 = -30_610_224_000.0
"""The year 1000 in seconds from 1970: what is read as earlier was not written year first, such as 12/01/10."""
# Two numbers and a year, in one of several orders, and perhaps a clock.
_NUMBERS = (
    r"^(\d{1,2})([/.-])(\d{1,2})[/.-](\d{4}|\d{2})"
    r"(?:(?:, ?|T| +)\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?)?$"
)
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M%p", "%I:%M:%S %p", "%I:%M:%S%p")
_GLUES = (" ", ", ", "T")
# Dates with the name of a month, and forms of published datasets that ISO 8601 does not have.
_DATES = (
    *(f"%d{sign}{month}{sign}{year}" for month in ("%b", "%B") for year in ("%Y", "%y") for sign in " -"),
    *("%b %d, %Y", "%B %d, %Y", "%m %d, %Y", "%Y.%m.%d", "%Y%m%d"),
)
_WITH_ZONE = ("%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %z", "%d/%b/%Y:%H:%M:%S %z")


@dataclass(frozen=True)
class TimeFormat:
    """A way to write times: ``formats`` of ``strptime`` to try in turn, and what to call them."""

    formats: tuple[str, ...]
    words: str

    def epoch(self, column: str) -> str:
        """Return the SQL expression of a text column's times in seconds from 1970; NULL for another text."""
        return f"epoch(try_strptime(trim({column}), [{', '.join(map(quote_text, self.formats))}]))"


def iso_or_number(column: str) -> str:
    """Return the SQL expression of a text column's times if they are numbers or ISO 8601; NULL for another text."""
    return f"coalesce({text_as_number(column)}, epoch(try_cast({column} AS TIMESTAMPTZ)))"


def given_format(con: DuckDBPyConnection, text: str) -> TimeFormat:
    """Return the format that the user gave; refuse one that DuckDB cannot read."""
    import duckdb

    try:
        con.execute(f"SELECT try_strptime('', {quote_text(text)})").fetchall()
    except duckdb.Error as problem:
        raise ConfigError(
            f"--timestamp-format {text!r} is not a format of strptime that is supported; give one such as "
            "'%d/%m/%Y %H:%M'."
        ) from problem
    return TimeFormat((text,), repr(text))


def recognise(
    con: DuckDBPyConnection, table: str, column: str, condition: str = "true", day_first: bool | None = None
) -> TimeFormat | None:
    """Return the format of a text column that is neither numbers nor ISO 8601, or None if it is no column of times.

    Most texts decide; the others are refused later. If neither days nor ``day_first`` tell days from months, raise
    DataError.
    """
    rows = f"(SELECT trim({column}) AS t FROM {table} WHERE ({condition}) AND trim({column}) <> '')"
    texts = f"(SELECT t, count(*) AS n FROM {rows} GROUP BY t)"
    parsed = f"(SELECT t, n, regexp_extract(t, '{_NUMBERS}', ['first', 'sign', 'second', 'year']) AS p FROM {texts})"
    dated = "p.year <> ''"
    counted, usual, first, second, wide, narrow, signs, sign, example = con.execute(
        f"SELECT coalesce(sum(n), 0), coalesce(sum(n) FILTER ({iso_or_number('t')} > {YEAR_1000}), 0), "
        f"max(try_cast(p.first AS INT)) FILTER ({dated}), max(try_cast(p.second AS INT)) FILTER ({dated}), "
        "coalesce(sum(n) FILTER (strlen(p.year) = 4), 0), coalesce(sum(n) FILTER (strlen(p.year) = 2), 0), "
        f"count(DISTINCT p.sign) FILTER ({dated}), min(p.sign) FILTER ({dated}), min(t) FILTER ({dated}) FROM {parsed}"
    ).fetchall()[0]
    if usual > counted / 2:
        return None
    if wide + narrow > counted / 2:
        alike = signs == 1 and not (wide and narrow) and not (narrow and sign == "-") and min(first, second) <= 12
        return _by_order(first, second, sign, "%Y" if wide else "%y", example, alike, day_first)
    forms = [
        TimeFormat((date, *(f"{date}{glue}{clock}" for glue in _GLUES for clock in _CLOCKS)), f"such as {_shown(date)}")
        for date in _DATES
    ]
    forms.append(TimeFormat(_WITH_ZONE, "with a time zone"))
    # %Y reads 10 as the year 10: such a form does not fit.
    counted_forms = ", ".join(f"coalesce(sum(n) FILTER ({form.epoch('t')} > {YEAR_1000}), 0)" for form in forms)
    counts = con.execute(f"SELECT {counted_forms} FROM {texts}").fetchall()[0]
    return next((form for form, count in zip(forms, counts, strict=True) if count > counted / 2), None)


def _by_order(
    first: int, second: int, sign: str, year: str, example: str, alike: bool, day_first: bool | None
) -> TimeFormat:
    """Return the order of day and month that all dates allow; refuse none and both. The arguments describe the column:
    the largest numbers in the first and second place, the separator, the form of the year. ``day_first`` decides if no
    number is above 12."""
    by_day, by_month = sign.join(("%d", "%m", year)), sign.join(("%m", "%d", year))
    unclear = max(first, second) <= 12
    if not alike or (unclear and day_first is None):
        why = "no day is above 12, which would tell days from months" if alike else "they are not all written alike"
        clock = " %H:%M" if ":" in example else ""
        raise DataError(
            f"dates such as {example[:40]!r} can be read in more than one way ({why}); pass "
            + ("--day-first or --month-first, or " if alike else "")
            + f"--timestamp-format '{by_day}{clock}' if the day comes first, or '{by_month}{clock}' if the month does."
        )
    by_days = bool(day_first) if unclear else first > 12
    date = by_day if by_days else by_month
    clocks = [f"{date}{glue}{clock}" for glue in _GLUES for clock in _CLOCKS]
    return TimeFormat((date, *clocks), DAY_FIRST if by_days else MONTH_FIRST)


def _shown(date: str) -> str:
    return repr(datetime(2011, 12, 24, tzinfo=UTC).strftime(date))


def seconds_of(text: str) -> float | None:
    """Return an ISO 8601 date or time in seconds from 1970, or None for another text; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
