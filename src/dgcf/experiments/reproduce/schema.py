"""Checks of what recipes contain, without a validation library: a bare GPU machine has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgcf.config import refuse_unknown
from dgcf.errors import ConfigError

SHOWN = 60
"""The most characters of a wrong value that a message shows."""
ON_THE_COMMAND_LINE = "; change it with --set"
"""The start of advice that does not apply to a file."""


@dataclass(frozen=True)
class EntryType:
    """The type of an entry: a test of its value, and the words for what is expected."""

    expected: str
    accepts: Callable[[Any], bool]


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _list_of(value: Any, accepts: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(accepts, value))


WORD = EntryType("text", lambda value: isinstance(value, str))
WORDS = EntryType('a list of words, such as ["dgcf"]', lambda value: _list_of(value, WORD.accepts))
COUNT = EntryType("a whole number from 1 on", lambda value: _whole(value, 1))
COUNT_OR_NONE = EntryType("a whole number from 0 on", lambda value: _whole(value, 0))
TABLE = EntryType("a table, such as { layers = 4 }", lambda value: isinstance(value, dict))
LISTS = EntryType(
    "a table of lists, such as { layers = [1, 2] }",
    lambda value: TABLE.accepts(value) and all(_list_of(values, lambda _: True) for values in value.values()),
)
TABLES = EntryType("a list of tables, such as [{}, { layers = 2 }]", lambda value: _list_of(value, TABLE.accepts))
GRIDS = EntryType("tables, each below a [[grid]] with two brackets", TABLES.accepts)


def check_entries(table: Mapping[str, Any], types: Mapping[str, EntryType], where: str) -> None:
    """Refuse an unknown entry and an entry of another type; ``where`` names the table in messages."""
    refuse_unknown(table, types, where)
    for name, value in table.items():
        if not types[name].accepts(value):
            text = repr(value)
            text = text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
            raise ConfigError(f"{name} of {where} is {text}, expected {types[name].expected}.")


@contextmanager
def errors_name_file(path: Path) -> Iterator[None]:
    """Name ``path`` in errors about settings, instead of the command line."""
    try:
        yield
    except ConfigError as problem:
        message, advice, _ = str(problem).partition(ON_THE_COMMAND_LINE)
        raise ConfigError(f"in {path}, {message}{'; change it there.' if advice else ''}") from problem
