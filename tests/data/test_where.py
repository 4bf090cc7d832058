"""Conditions on rows: the same rows as plain Python keeps, and no text reads anything but columns and constants."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data import load
from dgcf.data.columns import ReadOptions
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.errors import ConfigError, DataError, DgcfError

WHOLE = Preparation(split=Split("none"))
COUNTRIES = ("France", "Côte d'Ivoire", "EIRE", "united kingdom", "", " ")
Rows = list[tuple[float | None, str]]
Test = Callable[[float | None, str], bool | None]
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def is_missing(text: str) -> bool:
    return not text.strip()


numbers = st.sampled_from([-2.0, -0.5, 0.0, 1.0, 2.0, 3.0])
comparisons = st.builds(
    lambda sign, n: (
        f"Quantity {sign} {n:g}",
        lambda quantity, country: None if quantity is None else COMPARE[sign](quantity, n),
    ),
    st.sampled_from(sorted(COMPARE)),
    numbers,
)
countries = st.builds(
    lambda sign, name: (
        f"Country {sign} {quoted(name)}",
        lambda quantity, country: None if is_missing(country) else COMPARE[sign](country, name),
    ),
    st.sampled_from(["=", "<>"]),
    st.sampled_from(COUNTRIES[:4]),
)
ranges = st.builds(
    lambda low, high: (
        f"Quantity BETWEEN {low:g} AND {high:g}",
        lambda quantity, country: None if quantity is None else low <= quantity <= high,
    ),
    numbers,
    numbers,
)
lists = st.builds(
    lambda names: (
        f"Country IN ({', '.join(map(quoted, names))})",
        lambda quantity, country: None if is_missing(country) else country in names,
    ),
    st.lists(st.sampled_from(COUNTRIES[:4]), min_size=1, max_size=3),
)
nulls = st.sampled_from(
    [
        ("Quantity IS NULL", lambda quantity, country: quantity is None),
        ("Quantity IS NOT NULL", lambda quantity, country: quantity is not None),
        ("Country IS NULL", lambda quantity, country: is_missing(country)),
        ("lower(Country) = 'eire'", lambda quantity, country: None if is_missing(country) else country == "EIRE"),
        ("Country LIKE 'F%'", lambda quantity, country: None if is_missing(country) else country.startswith("F")),
        ("Quantity * 2 - 1 > 2", lambda quantity, country: None if quantity is None else quantity * 2 - 1 > 2),
    ]
)


def both(left: Any, right: Any) -> Any:
    """Return AND of truth values with NULL."""
    return False if left is False or right is False else None if None in (left, right) else True


def combine(word: str, left: tuple[str, Test], right: tuple[str, Test]) -> tuple[str, Test]:
    def test(quantity: float | None, country: str) -> bool | None:
        one, other = left[1](quantity, country), right[1](quantity, country)
        if word == "AND":
            return both(one, other)
        inverted = both(None if one is None else not one, None if other is None else not other)
        return None if inverted is None else not inverted

    return f"({left[0]}) {word} ({right[0]})", test


def negate(inner: tuple[str, Test]) -> tuple[str, Test]:
    def test(quantity: float | None, country: str) -> bool | None:
        value = inner[1](quantity, country)
        return None if value is None else not value

    return f"NOT ({inner[0]})", test


conditions = st.recursive(
    st.one_of(comparisons, countries, ranges, lists, nulls),
    lambda inner: st.one_of(st.builds(combine, st.sampled_from(["AND", "OR"]), inner, inner), st.builds(negate, inner)),
    max_leaves=5,
)
tables = st.lists(st.tuples(st.one_of(st.none(), numbers), st.sampled_from(COUNTRIES)), min_size=1, max_size=8)


def frame_of(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "user": [f"u{place}" for place in range(len(rows))],
            "item": ["x"] * len(rows),
            "Quantity": [np.nan if quantity is None else quantity for quantity, _ in rows],
            "Country": [country for _, country in rows],
        }
    )


@settings(max_examples=60)
@given(tables, conditions, st.sampled_from(["csv", "pandas", "polars"]))
def test_condition_keeps_the_rows_that_plain_python_keeps(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, condition: tuple[str, Test], kind: str
) -> None:
    text, test = condition
    # A blank country is a missing value for IS NULL, and text for the other tests.
    rows = [(quantity, country if country.strip() else "") for quantity, country in rows]
    frame, blank = frame_of(rows), "" if kind == "csv" else None
    source: Any = frame.assign(Country=frame["Country"].replace("", blank) if blank is None else frame["Country"])
    if kind == "csv":
        source = tmp_path_factory.mktemp("where") / "rows.csv"
        frame.to_csv(source, index=False)
    elif kind == "polars":
        source = pl.from_pandas(source)
    if kind == "csv" and all(quantity is None for quantity, _ in rows):
        return  # an empty column of a text file is neither numbers nor text
    expected = {f"u{place}" for place, row in enumerate(rows) if test(*row) is True}
    if not expected:
        with pytest.raises(DataError, match="leaves no interaction"):
            load(source, WHOLE, ReadOptions(where=text))
        return
    dataset = load(source, WHOLE, ReadOptions(where=text))
    assert set(dataset.users) == expected
    assert dataset.record["rows"] == len(rows)
    assert dataset.record["filters"][0]["filter"] == f"where {text}"
    assert dataset.record["filters"][0]["pairs"] == len(rows) - len(expected)


HOSTILE = {
    "subquery": "(SELECT 1) = 1",
    "exists": "EXISTS (SELECT 1)",
    "scalar subquery": "Quantity > (SELECT count(*) FROM read_csv('/etc/passwd'))",
    "any": "Quantity = ANY (SELECT 1)",
    "table function": "read_csv('/etc/passwd') IS NULL",
    "text of a file": "contains(read_text('/etc/passwd'), 'root')",
    "glob": "glob('/etc/*') = 'x'",
    "environment": "getenv('HOME') = '/root'",
    "setting": "current_setting('threads') = '1'",
    "variable": "getvariable('x') = 1",
    "evaluation": "query('SELECT 1') = 1",
    "copy": "COPY x TO '/tmp/x'",
    "attach": "ATTACH '/tmp/x.db'",
    "pragma": "PRAGMA version",
    "install": "INSTALL httpfs",
    "set": "SET threads = 1",
    "statement after": "Quantity > 0; COPY x TO '/tmp/x'",
    "parenthesis closed": "Quantity > 0) OR (1 = 1",
    "union": "Quantity > 0 UNION SELECT 1",
    "from": "true FROM read_csv('/etc/passwd')",
    "limit": "Quantity > 0 LIMIT 1",
    "order": "Quantity > 0 ORDER BY 1",
    "group": "Quantity > 0 GROUP BY 1",
    "aggregate": "sum(Quantity) > 1",
    "window": "row_number() OVER () > 1",
    "random": "random() > 0.5",
    "lambda": "x -> x + 1",
    "star": "*",
    "columns": "columns('Q.*') > 0",
    "position": "#1 > 0",
    "parameter": "Quantity > $1",
    "list": "[1, 2][1] = 1",
    "struct": "{'a': 1}.a = 1",
    "cast": "Quantity::BLOB = 'x'",
    "other table": "main.rows > 1",
    "other column": "rowid = 1",
    "file name": "filename = 'x'",
    "number alone": "1",
    "text alone": "'/etc/passwd'",
    "null": "Quantity = NULL",
    "collation": "Country COLLATE nocase = 'x'",
    "regular expression": "Country ~ '(a+)+$'",
    "nul byte": "Quantity > 0\0",
    "lone surrogate": "\ud800 > 1",
    "letter that is no sign": "Quantity ＞ 0",
    "digits of another script": "Quantity > ٣",
    "comment that does not end": "Quantity > 0 /*",
    "quote that does not end": "Country = 'x",
    "unfinished": "Quantity > 0 AND",
    "parentheses": "(" * 3000 + "true" + ")" * 3000,
    "negations": "NOT " * 990 + "true",
    "sums": "1" + "+1" * 2000 + " > 0",
    "too long": "Quantity > 0 OR " * 1000 + "true",
    "infinite": "Quantity > 1e999",
    "empty": "",
    "blank": " \n\t",
    "no such column": "Quantty > 0",
    "text as a number": "Country > 1",
    "number as text": "Quantity > 'many'",
    "time as another": "Date > '13/12/2010'",
    "time as a number": "Date > 5",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_other_texts_are_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.csv").write_text(
        "user,item,Quantity,Country,Date\na,x,1,France,1/12/2010 8:26\nb,y,-2,EIRE,13/12/2010 9:00\n"
    )
    with pytest.raises(DgcfError) as caught:
        load(tmp_path / "rows.csv", WHOLE, ReadOptions(where=HOSTILE[name]))
    message = str(caught.value)
    assert message.count("\n") == 0
    assert "--where" in message
    assert "serialized" not in message  # how DuckDB words it
    assert len(message) < 500
    assert not list(tmp_path.glob("x*"))


def test_message_names_the_line_of_a_text_that_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item,n\na,x,1\nb,y,lots\n")
    with pytest.raises(DataError, match=r"line 3 of rows\.csv has the text 'lots'"):
        load(tmp_path / "rows.csv", WHOLE, ReadOptions(where="n > 0"))


def test_misspelt_column_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item,Quantity\na,x,1\n")
    with pytest.raises(DataError, match="did you mean 'Quantity'"):
        load(tmp_path / "rows.csv", WHOLE, ReadOptions(where="Quantty > 0"))


def test_column_that_is_a_word_of_sql_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item,when\na,x,1\nb,y,2\n")
    with pytest.raises(ConfigError, match='the column when is also a word of SQL: write it as "when"'):
        load(tmp_path / "rows.csv", WHOLE, ReadOptions(where="when > 1"))
    assert set(load(tmp_path / "rows.csv", WHOLE, ReadOptions(where='"when" > 1')).users) == {"b"}


def test_times_are_compared_as_times(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item,time\na,x,1/12/2010 8:26\nb,y,13/12/2010 9:00\nc,z,2/1/2011 0:00\n")
    for where, users in (
        ("time >= '2010-12-13'", {"b", "c"}),
        ("time < DATE '2010-12-13'", {"a"}),
        ("time BETWEEN '2010-12-01' AND '2010-12-13 09:00'", {"a", "b"}),
        ("time >= '2011-01-02T01:00+01:00'", {"c"}),
    ):
        assert set(load(tmp_path / "rows.csv", WHOLE, ReadOptions(where=where)).users) == users


def test_condition_on_a_typed_table(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "user": [1, 2, 3],
            "item": ["x", "y", "z"],
            "paid": [True, False, True],
            "day": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]),
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    for source in (frame, tmp_path / "rows.parquet"):
        for where, users in (("paid", {1, 3}), ("NOT paid", {2}), ("user >= 2 AND day < '2022-01-01'", {2})):
            assert set(load(source, WHOLE, ReadOptions(where=where)).users) == users


def test_prepared_datasets_refuse_reading_options(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item\na,x\nb,y\n")
    dataset = load(tmp_path / "rows.csv", WHOLE)
    dataset.save(tmp_path / "set")
    for source in (dataset, tmp_path / "set"):
        with pytest.raises(ConfigError, match="read and prepared already, so that --where has no effect"):
            load(source, read=ReadOptions(where="user = 'a'"))
