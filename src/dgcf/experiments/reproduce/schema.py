"""What a person writes into a recipe, checked: each entry is of the kind that it should be, or is named in a sentence.

It is checked by hand: a bare machine has no library for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgcf.config import refuse_unknown
from dgcf.errors import ConfigError

SHOWN = 60
"""How many letters of a wrong entry are shown."""
ON_THE_COMMAND_LINE = "; change it with --set"
"""Where the advice begins that is of no use for a file."""


@dataclass(frozen=True)
class Kind:
    """What an entry may be, and how that is called."""

    told: str
    holds: Callable[[Any], bool]


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _list_of(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(holds, value))


def _word(value: Any) -> bool:
    return isinstance(value, str)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


WORD = Kind("text", _word)
WORDS = Kind('a list of words, such as ["dgcf"]', lambda value: _list_of(value, _word))
COUNT = Kind("a whole number from 1 on", lambda value: _whole(value, 1))
COUNT_OR_NONE = Kind("a whole number from 0 on", lambda value: _whole(value, 0))
TABLE = Kind("a table, such as { layers = 4 }", _table)
LISTS = Kind(
    "a table of lists, such as { layers = [1, 2] }",
    lambda value: _table(value) and all(_list_of(one, lambda _: True) for one in value.values()),
)
TABLES = Kind("a list of tables, such as [{}, { layers = 2 }]", lambda value: _list_of(value, _table))
GRIDS = Kind("tables, each below a [[grid]] with two brackets", TABLES.holds)


def require_kinds(about: Mapping[str, Any], kinds: Mapping[str, Kind], where: str) -> None:
    """Refuse an entry that nobody knows, and one of another kind than its own; ``where`` names the file."""
    refuse_unknown(about, kinds, where)
    for name, value in about.items():
        if not kinds[name].holds(value):
            came = repr(value)
            came = came if len(came) <= SHOWN else f"{came[:SHOWN]} …"
            raise ConfigError(f"{name} of {where} is {came}, expected {kinds[name].told}.")


@contextmanager
def of_file(path: Path) -> Iterator[None]:
    """What is wrong with a setting is said of the file that has it; there is no command line to change it on."""
    try:
        yield
    except ConfigError as problem:
        told, advice, _ = str(problem).partition(ON_THE_COMMAND_LINE)
        raise ConfigError(f"in {path}, {told}{'; change it there.' if advice else ''}") from problem
