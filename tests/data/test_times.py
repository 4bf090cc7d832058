"""Times: every recognised form is read back as the same moment; a column that can be read in two ways is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data import load
from dgcf.data.columns import ReadOptions
from dgcf.data.interactions import RatingFilter, collect
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.data.times import seconds_of
from dgcf.errors import ConfigError, DataError

TEMPORAL = Preparation(split=Split("temporal"))
FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M:%S+00:00",
    "%Y/%m/%d",
    "%d/%m/%Y",
    "%d/%m/%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%d/%m/%y %H:%M",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M",
    "%d-%m-%Y %H:%M",
    "%m/%d/%Y",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %I:%M %p",
    "%m/%d/%Y, %I:%M:%S %p",
    "%m-%d-%Y",
    "%d %b %Y",
    "%d-%b-%Y %H:%M:%S",
    "%d-%b-%y",
    "%d %B %Y",
    "%B %d, %Y",
    "%b %d, %Y %H:%M:%S",
    "%m %d, %Y",
    "%Y.%m.%d",
    "%Y.%m.%d %H:%M",
    "%a %b %d %H:%M:%S +0000 %Y",
    "%a, %d %b %Y %H:%M:%S +0000",
    "%d/%b/%Y:%H:%M:%S +0000",
)
moments = st.lists(
    st.datetimes(datetime(1971, 1, 1), datetime(2068, 1, 1)).map(lambda t: t.replace(tzinfo=UTC)),
    min_size=1,
    max_size=6,
)


def times_of(path: Path, options: ReadOptions = ReadOptions()) -> list[float]:
    """Return the times of the rows by user id, as the reader gives them."""
    rows = collect([path], options, RatingFilter(), time="needed")
    assert rows.timestamp is not None
    return rows.timestamp[np.argsort([int(rows.users.texts[u]) for u in rows.user_idx])].tolist()


def write(path: Path, texts: Sequence[str]) -> Path:
    lines = "".join(f'{place},x,"{text}"\n' for place, text in enumerate(texts))
    path.write_text(f"user,item,timestamp\n{lines}")
    return path


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=4)
@given(moments=moments, padded=st.booleans())
def test_every_recognised_form_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, form: str, moments: list[datetime], padded: bool
) -> None:
    # One day above 12 tells day-first from month-first dates.
    moments = [*moments, datetime(2010, 12, 24, 15, 30, 59, tzinfo=UTC)]
    texts = [moment.strftime(form) for moment in moments]
    if not padded and form.startswith(("%d/", "%m/", "%d.")):
        texts = [text.removeprefix("0").replace("/0", "/").replace(".0", ".") for text in texts]
        if form.endswith(("%y", "%y %H:%M")):
            return  # a year of one digit
    expected = [datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() for text in texts]
    path = write(tmp_path_factory.mktemp("times") / "rows.csv", texts)
    assert times_of(path) == expected
    if "+" not in form and not form.endswith("Z"):
        assert times_of(path, ReadOptions(timestamp_format=form)) == expected


@settings(max_examples=30)
@given(st.lists(st.integers(10**9, 2 * 10**9), min_size=1, max_size=5), st.sampled_from([1, 1000]), st.booleans())
def test_seconds_and_milliseconds_keep_their_number(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], unit: int, decimal: bool
) -> None:
    texts = [f"{second * unit}{'.5' if decimal else ''}" for second in seconds]
    assert times_of(write(tmp_path_factory.mktemp("times") / "rows.csv", texts)) == [float(text) for text in texts]


def test_order_of_day_and_month_comes_from_the_whole_column(tmp_path: Path) -> None:
    days = [datetime(2010, 12, 1, tzinfo=UTC) + timedelta(days=day) for day in range(40)]
    texts = [f"{day.day}/{day.month}/{day.year} 8:26" for day in days]
    dataset = load(write(tmp_path / "rows.csv", texts), TEMPORAL)
    assert dataset.record["read"][0]["times"] == "day first"
    assert times_of(tmp_path / "rows.csv") == [day.timestamp() + 8 * 3600 + 26 * 60 for day in days]
    texts = [f"{day.month}/{day.day}/{day.year} 8:26" for day in days]
    dataset = load(write(tmp_path / "rows.csv", texts), TEMPORAL)
    assert dataset.record["read"][0]["times"] == "month first"


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["1/12/2010 8:26", "2/12/2010 9:00"], r"no day is above 12.*'%d/%m/%Y %H:%M'.*'%m/%d/%Y %H:%M'"),
        (["1/12/2010"], r"no day is above 12.*'%d/%m/%Y' if the day comes first, or '%m/%d/%Y' if the month"),
        (["13/12/2010", "12/13/2010"], "not all written alike"),
        (["13/12/2010", "13.11.2010", "14/12/2010"], "not all written alike"),
        (["soon", "later"], "line 2 of rows.csv has a timestamp that is neither a number nor a date, 'soon'"),
        (["24/12/2010", "31/11/2010", "25/12/2010"], "line 3 of rows.csv has a timestamp .*'31/11/2010'"),
        (["2010-12-24", "2010-13-24", "2010-12-25"], "line 3 of rows.csv has a timestamp .*'2010-13-24'"),
    ],
    ids=["clock", "date", "both", "signs", "words", "no-such-day", "no-such-month"],
)
def test_unclear_times_are_refused_with_what_to_do(tmp_path: Path, texts: list[str], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        load(write(tmp_path / "rows.csv", texts), TEMPORAL)
    assert "--timestamp-format" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dates_of_fifty_years_are_one_unit(tmp_path: Path) -> None:
    assert times_of(write(tmp_path / "rows.csv", ["1971-01-01", "2020-01-01"])) == [31536000, 1577836800]
    with pytest.raises(DataError, match="different units"):
        times_of(write(tmp_path / "rows.csv", ["31536000", "2020-01-01"]))


def test_given_format_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ["1/12/2010", "2/12/2010"])
    for form, month in (("%d/%m/%Y", 12), ("%m/%d/%Y", 1)):
        first = times_of(path, ReadOptions(timestamp_format=form))[0]
        assert datetime.fromtimestamp(first, UTC).month == month


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (
            "%d/%m/%Y",
            r"line 2 of rows\.csv has a timestamp that --timestamp-format '%d/%m/%Y' does not fit, '2010-12-01'",
        ),
        ("%Y-%m", "does not fit, '2010-12-01'"),
        ("%Q", "is not a format of strptime"),
        ("dd/mm/yyyy", "expected a format of strptime"),
        ("", "expected a format of strptime"),
    ],
)
def test_format_that_fits_no_line_is_refused(tmp_path: Path, form: str, sentence: str) -> None:
    path = write(tmp_path / "rows.csv", ["2010-12-01", "2010-12-02"])
    for preparation in (TEMPORAL, None):  # a random split does not use the times
        with pytest.raises((DataError, ConfigError), match=sentence):
            load(path, preparation, ReadOptions(timestamp_format=form))


def test_one_line_that_the_format_does_not_fit_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ["24/12/2010", "25/12/2010", "2010-12-26"])
    with pytest.raises(DataError, match=r"line 4 of rows\.csv has a timestamp .* does not fit, '2010-12-26'; correct"):
        load(path, read=ReadOptions(timestamp_format="%d/%m/%Y"))
    path = write(tmp_path / "rows.csv", ["24/12/2010", "25/12/2010", "26/12/2010"])
    dataset = load(path, read=ReadOptions(timestamp_format="%d/%m/%Y"))
    assert "time" not in dataset.values  # checked, and not kept


def test_format_without_a_column_of_times_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item\na,x\n")
    with pytest.raises(DataError, match="no timestamp column, for which --timestamp-format was given"):
        load(tmp_path / "rows.csv", read=ReadOptions(timestamp_format="%Y"))


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda t: t.replace(microsecond=0)))
def test_iso_times_of_conditions_are_those_of_duckdb(moment: datetime) -> None:
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        expected = con.execute("SELECT epoch($1::TIMESTAMPTZ)", [str(moment)]).fetchall()[0][0]
    assert seconds_of(str(moment)) == expected
