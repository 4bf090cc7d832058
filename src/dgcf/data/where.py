"""Conditions on rows, such as ``Quantity > 0 and Country = 'France'``: checked, and written anew as SQL.

DuckDB only parses the text of the user, into a tree. The condition that DuckDB runs is written here from that tree,
node by node, out of the columns of the source, quoted constants and the operators and functions below. A tree with
anything else (a subquery, a table, another function, a second statement) is refused, so that no text can read files or
settings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dgcf.data import times
from dgcf.data.paths import listed
from dgcf.data.sql import place, quote_text, read_in_order, text_as_number
from dgcf.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Kind = Literal["number", "text", "time", "boolean", "other"]
LONGEST = 10_000
"""Largest number of characters of a condition."""
_EXAMPLE = "give a condition such as \"Quantity > 0 and Country = 'France'\""
_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_LIKE = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}
_ARITHMETIC = ("+", "-", "*", "/", "%")
# The arguments and the result of each function.
_FUNCTIONS: dict[str, tuple[tuple[Kind, ...], Kind]] = {
    "lower": (("text",), "text"),
    "upper": (("text",), "text"),
    "trim": (("text",), "text"),
    "length": (("text",), "number"),
    "starts_with": (("text", "text"), "boolean"),
    "ends_with": (("text", "text"), "boolean"),
    "contains": (("text", "text"), "boolean"),
    "abs": (("number",), "number"),
    "round": (("number",), "number"),
}


@dataclass(frozen=True)
class Field:
    """A column of a source: its name, its value in SQL and the kind of the value.

    ``untyped``: the source is text, so that the kind (here ``text``) follows from the values of the column.
    """

    name: str
    sql: str
    kind: Kind
    untyped: bool = False


def typed_field(name: str, column: str, type_name: str) -> Field:
    """Return a typed column for conditions."""
    if type_name == "VARCHAR":
        return Field(name, column, "text", untyped=True)
    if type_name.startswith(("ENUM", "UUID")):
        return Field(name, f"CAST({column} AS VARCHAR)", "text")
    if type_name.startswith(("TIMESTAMP", "DATE")):
        return Field(name, f"epoch(CAST({column} AS TIMESTAMPTZ))", "time")
    if type_name == "BOOLEAN":
        return Field(name, column, "boolean")
    if type_name in ("DOUBLE", "FLOAT"):
        return Field(name, _not_nan(column), "number")
    number = type_name.endswith(("INT", "INTEGER")) or type_name.startswith("DECIMAL")
    return Field(name, column, "number" if number else "other")


def _not_nan(column: str) -> str:
    """Return the SQL of numbers with NaN as NULL, because DuckDB takes it for the largest number."""
    return f"nullif({column}, 'nan'::DOUBLE)"


@dataclass(frozen=True)
class Table:
    """A table of a source: the name for messages, what to select from, its columns, the line of the first row, and
    whether the day is first in dates that can be read in two ways."""

    label: str
    sql: str
    fields: Sequence[Field]
    first_line: int | None = None
    day_first: bool | None = None

    def find(self, name: str) -> Field:
        """Return the column with a name; upper and lower case may differ if no other column has the same letters."""
        exact = [field for field in self.fields if field.name == name]
        alike = exact or [field for field in self.fields if field.name.lower() == name.lower()]
        if len(alike) == 1:
            return alike[0]
        names = [field.name for field in self.fields]
        if alike:
            raise DataError(f"{self.label} has {len(alike)} columns {name!r}, of which --where names one; rename one.")
        raise DataError(
            f"{self.label} has no column {name!r}, which --where names; it has {listed(names)} (text is quoted by ', a "
            f'name with blanks by "){did_you_mean(name, names) or "."}'
        )


@dataclass(frozen=True)
class _Value:
    """An expression: its SQL, its kind, the text of a constant, and the text of a column that has another kind."""

    sql: str
    kind: Kind
    constant: str | None = None
    raw: str | None = None
    name: str = ""


def compile_condition(con: DuckDBPyConnection, condition: str, table: Table) -> str:
    """Return the SQL of a condition on the columns of a table; refuse anything but a condition on its rows."""
    try:
        value = _Compiler(con, table).compile(_tree(con, condition, table))
    except RecursionError:
        raise _unreadable(condition, "it is nested too deeply") from None
    if value.kind != "boolean":
        raise ConfigError(f"--where {_short(condition)} is no condition, which is true or false; {_EXAMPLE}.")
    return value.sql


def _tree(con: DuckDBPyConnection, condition: str, table: Table) -> dict[str, Any]:
    """Parse a condition; refuse texts that are more than one expression."""
    if any("\ud800" <= sign <= "\udfff" for sign in condition):
        raise ConfigError("the condition of --where has bytes that are not UTF-8; type it again.")
    if not condition.strip() or len(condition) > LONGEST:
        size = f"has more than {LONGEST:,} characters" if condition.strip() else "is empty"
        raise ConfigError(f"the condition of --where {size}; {_EXAMPLE}.")

    def parse(text: str) -> dict[str, Any]:
        query = f"SELECT 1 FROM t WHERE {text}"
        parsed = json.loads(con.execute("SELECT json_serialize_sql($1)", [query]).fetchall()[0][0])
        if parsed.get("error") or len(parsed["statements"]) != 1:
            reason = str(parsed.get("error_message", "it has several statements")).splitlines()[0]
            raise _unreadable(condition, _reason(reason, table))
        node = _without_places(parsed["statements"][0])
        return node if isinstance(node, dict) else {}

    given, plain = parse(condition), parse("true")
    tree = given["node"].pop("where_clause", None)
    plain["node"].pop("where_clause")
    if given != plain or not isinstance(tree, dict):
        raise ConfigError(f"--where {_short(condition)} is more than one condition; {_EXAMPLE}.")
    return tree


def _reason(message: str, table: Table) -> str:
    """Return why DuckDB cannot parse a condition."""
    if "depth" in message:
        return "it is nested too deeply"
    if "Only SELECT statements" in message:
        return "it has several statements"
    word = re.search(r'near "(.+)"', message)
    if word and any(field.name.lower() == word[1].lower() for field in table.fields):
        return f'the column {word[1]} is also a word of SQL: write it as "{word[1]}"'
    return message


def _unreadable(condition: str, reason: str) -> ConfigError:
    return ConfigError(f"--where {_short(condition)} cannot be read ({reason}); {_EXAMPLE}.")


def _without_places(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_places(value) for key, value in node.items() if not key.startswith("query_location")}
    return [_without_places(value) for value in node] if isinstance(node, list) else node


class _Compiler:
    """Writes a parsed tree as SQL; each node gives its SQL and its kind."""

    def __init__(self, con: DuckDBPyConnection, table: Table) -> None:
        self.con, self.table = con, table
        self.columns: dict[str, _Value] = {}

    def compile(self, node: Mapping[str, Any]) -> _Value:
        write = getattr(self, f"_{str(node.get('class')).lower()}", None)
        if write is None:
            raise _unknown(_words(node))
        value: _Value = write(node)
        return value

    def _constant(self, node: Mapping[str, Any]) -> _Value:
        kind, text = node["literal"]["kind"], node["literal"]["text"]
        if kind == "STRING":
            return _Value(quote_text(text), "text", constant=text)
        if kind in ("INTEGER", "NUMERIC"):
            return _Value(_number(text), "number", constant=text)
        if kind == "BOOLEAN":
            return _Value("true" if text == "true" else "false", "boolean")
        raise _unknown("NULL" if kind == "NULL_LITERAL" else f"a constant of kind {kind.lower()}")

    def _column_ref(self, node: Mapping[str, Any]) -> _Value:
        names = node["column_names"]
        if len(names) != 1:
            raise _unknown(f"the name {'.'.join(names)}")
        field = self.table.find(names[0])
        if field.name not in self.columns:
            self.columns[field.name] = self._typed(field)
        return self.columns[field.name]

    def _typed(self, field: Field) -> _Value:
        """Return a column as a value; an untyped one is of the kind of all its values: numbers, times, or text."""
        if field.kind == "other":
            raise DataError(
                f"column {field.name!r} of {self.table.label} holds no text, numbers or times; use another."
            )
        if not field.untyped:
            return _Value(field.sql, field.kind, name=field.name)
        column, number = field.sql, _not_nan(text_as_number(field.sql))
        value = _Value(column, "text", raw=column, name=field.name)
        # Every written date has two numbers with a sign between them.
        filled, numbers, dates = self.con.execute(
            "SELECT count(t), count(try_cast(t AS DOUBLE)), "
            "count(*) FILTER (regexp_matches(t, '[0-9].*[^0-9].*[0-9]')) "
            f"FROM (SELECT nullif(trim({column}), '') AS t FROM {self.table.sql})"
        ).fetchall()[0]
        if numbers == filled:
            return replace(value, sql=number, kind="number")
        if numbers or dates < filled:
            return value
        form = times.recognise(self.con, self.table.sql, column, day_first=self.table.day_first)
        time = times.iso_or_number(column) if form is None else form.epoch(column)
        read = f"SELECT count(*) FILTER ({time} > {times.YEAR_1000}) FROM {self.table.sql}"
        read_as_time = self.con.execute(read).fetchall()[0][0]
        return replace(value, sql=time, kind="time") if read_as_time == filled else value

    def _conjunction(self, node: Mapping[str, Any]) -> _Value:
        word = {"CONJUNCTION_AND": " AND ", "CONJUNCTION_OR": " OR "}[node["type"]]
        return _Value(f"({word.join(self._boolean(child) for child in node['children'])})", "boolean")

    def _operator(self, node: Mapping[str, Any]) -> _Value:
        kind, children = node["type"], node["children"]
        if kind == "OPERATOR_NOT":
            return _Value(f"(NOT {self._boolean(children[0])})", "boolean")
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            value = self.compile(children[0])
            # Blank text is a missing value, as it is for ids.
            text = value.raw or (value.sql if value.kind == "text" else None)
            inner = value.sql if text is None else f"nullif(trim({text}), '')"
            return _Value(f"({inner} IS {'NOT ' if 'NOT' in kind else ''}NULL)", "boolean")
        if kind == "COMPARE_IN":
            first, *others = map(self.compile, children)
            return _Value(f"({' OR '.join(self._compared(first, '=', other) for other in others)})", "boolean")
        raise _unknown(_words(node))

    def _comparison(self, node: Mapping[str, Any]) -> _Value:
        if node["type"] not in _COMPARISONS:
            raise _unknown(_words(node))
        left, right = self.compile(node["left"]), self.compile(node["right"])
        return _Value(self._compared(left, _COMPARISONS[node["type"]], right), "boolean")

    def _between(self, node: Mapping[str, Any]) -> _Value:
        value, low, high = (self.compile(node[name]) for name in ("input", "lower", "upper"))
        return _Value(f"({self._compared(value, '>=', low)} AND {self._compared(value, '<=', high)})", "boolean")

    def _function(self, node: Mapping[str, Any]) -> _Value:
        name = node["function_name"]
        plain = not (node["distinct"] or node["filter"] or node["order_bys"]["orders"] or node["schema"])
        values = [self.compile(argument["expression"]) for argument in node["arguments"]]
        if plain and name in _LIKE and len(values) == 2:
            text, pattern = map(self._text, values)
            return _Value(f"({text} {_LIKE[name]} {pattern})", "boolean")
        if plain and name in _ARITHMETIC and len(values) in (1, 2):
            parts = [f"CAST({self._number(value)} AS DOUBLE)" for value in values]
            return _Value(f"({name}{parts[0]})" if len(parts) == 1 else f"({f' {name} '.join(parts)})", "number")
        kinds, result = _FUNCTIONS.get(name, ((), "other"))
        if not plain or result == "other" or len(kinds) != len(values):
            raise _unknown(f"{name}()")
        parts = [self._text(v) if kind == "text" else self._number(v) for kind, v in zip(kinds, values, strict=True)]
        return _Value(f"{name}({', '.join(parts)})", result)

    def _cast(self, node: Mapping[str, Any]) -> _Value:
        """Casts are allowed where they say what the column or the constant is already: dates, and times."""
        value, to = self.compile(node["child"]), str(node["type_expr"].get("type_name", "")).upper()
        if to not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME"):
            raise _unknown(f"a cast to {to.lower()}")
        return _Value(self._time(value), "time")

    def _boolean(self, node: Mapping[str, Any]) -> str:
        value = self.compile(node)
        if value.kind != "boolean":
            raise ConfigError(f"--where uses {_named(value)} as a condition, which is true or false; {_EXAMPLE}.")
        return value.sql

    def _text(self, value: _Value) -> str:
        if value.raw is not None or value.kind == "text":
            return value.raw or value.sql
        if value.kind == "number" and value.constant is None:
            return f"CAST({value.sql} AS VARCHAR)"  # a typed column of whole numbers, such as ids
        raise ConfigError(f"--where uses {_named(value)} as text; quote a text by '.")

    def _number(self, value: _Value) -> str:
        if value.kind == "number":
            return value.sql
        if value.raw is not None and value.kind == "text":
            raise DataError(self._not_numbers(value))
        raise ConfigError(f"--where uses {_named(value)} as a number; leave the quotes of a number out.")

    def _time(self, value: _Value) -> str:
        if value.kind == "time":
            return value.sql
        if value.constant is not None and value.kind == "text":
            seconds = times.seconds_of(value.constant)
            if seconds is not None:
                return repr(seconds)
            raise ConfigError(f"--where has the time {value.constant!r}, expected one such as '2011-12-01 08:26'.")
        raise ConfigError(f"--where uses {_named(value)} as a time, which it is not.")

    def _compared(self, left: _Value, sign: str, right: _Value) -> str:
        kinds = {left.kind, right.kind}
        if "time" in kinds:
            parts = self._time(left), self._time(right)
        elif kinds == {"number", "text"}:
            parts = self._number_with_text(left, right, sign), self._number_with_text(right, left, sign)
        elif len(kinds) == 1:
            parts = left.sql, right.sql
        else:
            raise ConfigError(f"--where compares {_named(left)} with {_named(right)}, which are of different kinds.")
        return f"({parts[0]} {sign} {parts[1]})"

    def _number_with_text(self, value: _Value, other: _Value, sign: str) -> str:
        """Return one side of a comparison of a number with a text: by text if the column is text and they are equal."""
        number, text = (value, other) if value.kind == "number" else (other, value)
        if text.constant is None:
            raise DataError(self._not_numbers(text))
        if number.raw is not None and sign in ("=", "<>"):
            return number.raw if value is number else value.sql
        if value is number:
            return value.sql
        try:
            return _number(repr(float(text.constant)))
        except (ValueError, ConfigError):
            raise ConfigError(f"--where compares {_named(number)} with the text {text.constant!r}.") from None

    def _not_numbers(self, value: _Value) -> str:
        """Return the message for a column of text that is used as numbers: with a text that is none, and its row."""
        if value.raw is None:
            return f"--where uses {_named(value)} of {self.table.label} as a number, which it is not."
        read_in_order(self.con)
        row, text = self.con.execute(
            "SELECT min(n), min_by(t, n) "
            f"FROM (SELECT row_number() OVER () AS n, {value.raw} AS t FROM {self.table.sql}) "
            "WHERE trim(t) <> '' AND try_cast(t AS DOUBLE) IS NULL"
        ).fetchall()[0]
        return (
            f"--where uses column {value.name!r} as a number, but {place(row, self.table.first_line)} of "
            f"{self.table.label} has the text {text[:40]!r} there; correct it, or compare with a text in quotes (')."
        )


def _number(text: str) -> str:
    """Return a number of the parser as SQL: whole numbers exactly, others as DOUBLE."""
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return text
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"--where has the number {text[:40]}, expected a finite one.")
    return f"CAST({quote_text(repr(value))} AS DOUBLE)"


def _words(node: Mapping[str, Any]) -> str:
    kind = str(node.get("type") or node.get("class"))
    return {"SUBQUERY": "a subquery", "CASE_EXPR": "CASE", "VALUE_PARAMETER": "a parameter"}.get(kind, kind.lower())


def _named(value: _Value) -> str:
    if value.constant is not None:
        return f"the constant {value.constant[:40]!r}"
    return f"column {value.name!r}" if value.name else "an expression"


def _short(condition: str) -> str:
    return repr(condition if len(condition) <= 60 else condition[:60] + "…")


def _unknown(what: str) -> ConfigError:
    functions = ", ".join(sorted(_FUNCTIONS))
    return ConfigError(
        f"--where holds {what}, expected columns, constants, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, comparisons, "
        f"+ - * / %, dates in quotes and the functions {functions}."
    )
