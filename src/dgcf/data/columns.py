"""Options for reading a source, and the choice of the columns of users, items, ratings, times, titles and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from dgcf.data import sniff
from dgcf.data.paths import absolute_source, listed
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.stored import check_type

Column = str | int
Missing = Literal["error", "skip"]
OPTIONAL = ("rating", "timestamp", "title", "weight")
"""Roles that a source may lack, and that the column ``none`` ignores."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read a source; None means that the option is detected.

    A column is given by its header or its position (0 is the first). The column ``none`` ignores ratings, times or
    titles. ``timestamp_format`` is a format of ``strptime``; ``day_first`` says which number of dates such as 1/12/2011
    is the day, if no day above 12 does. ``where`` is a condition that rows must meet, as
    ``dgcf.data.where`` reads it. ``missing="skip"`` leaves rows without a user or an item out; ``error`` refuses them.
    ``titles`` is a file of item titles, and ``titles_item_col`` and ``titles_title_col`` are its columns.
    """

    format: str | None = None
    user_col: Column | None = None
    item_col: Column | None = None
    rating_col: Column | None = None
    timestamp_col: Column | None = None
    title_col: Column | None = None
    weight_col: Column | None = None
    timestamp_format: str | None = None
    day_first: bool | None = None
    where: str | None = None
    missing: Missing = "error"
    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    text_ids: bool = False
    trim_ids: bool = False
    titles: str | None = None
    titles_item_col: Column | None = None
    titles_title_col: Column | None = None

    def __post_init__(self) -> None:
        if self.missing not in get_args(Missing):
            near = did_you_mean(str(self.missing), get_args(Missing)) or "."
            raise ConfigError(f"--missing is {self.missing!r}, expected error or skip{near}")
        if self.timestamp_format is not None and "%" not in self.timestamp_format:
            raise ConfigError(
                f"--timestamp-format is {self.timestamp_format!r}, expected a format of strptime such as "
                "'%d/%m/%Y %H:%M'."
            )
        if self.titles is None and (self.titles_item_col, self.titles_title_col) != (None, None):
            raise ConfigError("columns of a titles file were given without --titles; name the file with --titles.")

    @property
    def columns(self) -> dict[str, Column | None]:
        """The column given for each role."""
        return {
            "user": self.user_col,
            "item": self.item_col,
            "rating": self.rating_col,
            "timestamp": self.timestamp_col,
            "title": self.title_col,
            "weight": self.weight_col,
        }

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from the defaults, for ``of_record``; the titles file by its absolute path."""
        titles = None if self.titles is None else absolute_source(self.titles)
        default = asdict(ReadOptions())
        return {name: value for name, value in asdict(replace(self, titles=titles)).items() if value != default[name]}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> ReadOptions:
        """Return the options of ``given``, as a run records them; raise InvalidFileError for other values."""
        return check_type({**asdict(cls()), **record}, cls)

    def refuse_for_prepared(self, name: str) -> None:
        """Raise ConfigError if an option is for reading a file; titles can be added to a prepared dataset."""
        given = [option for option in self.given if not option.startswith("titles") and option != "encoding"]
        if given:
            raise ConfigError(
                f"{name} is read and prepared already, so that --{given[0].replace('_', '-')} has no effect; name the "
                "file that it was made from, or leave the option out."
            )


@dataclass(frozen=True)
class SourceAsRead:
    """A source that is to be read again with the same options; a prepared dataset in its place needs none of them."""

    source: Any
    read: ReadOptions

    def __str__(self) -> str:
        return str(self.source)


def choose_columns(names: list[str], options: ReadOptions, label: str, *, by_position: bool) -> dict[str, int]:
    """Return the column of each role: as given, else by common names, else (``by_position``) the first two."""
    given = options.columns
    if len(names) < 2:
        raise DataError(f"{label} has one column, expected at least user and item.")
    roles = {"user": 0, "item": 1} if by_position else _known_columns(names, given, label)
    for role, column in given.items():
        if column == "none" and role in OPTIONAL:
            roles.pop(role, None)
        elif column is not None:
            roles[role] = position(column, names, role, label, f"--{role}-col")
    for role in ("user", "item"):
        if role not in roles:
            raise DataError(
                f"no column of {label} is known as the {role} (it has {listed(names)}); name it with --{role}-col."
            )
    if roles["user"] == roles["item"]:
        raise DataError(f"user and item are the same column of {label}; name them with --user-col and --item-col.")
    if given["title"] is None and roles.get("title") in (roles["user"], roles["item"]):
        del roles["title"]  # a column that was given as an id
    return roles


def _known_columns(names: list[str], given: Mapping[str, Column | None], label: str) -> dict[str, int]:
    """Return the columns with common names; raise DataError if two could have the same role."""
    roles: dict[str, int] = {}
    for role in sniff.ROLE_NAMES:
        matches = sniff.columns_of(role, names)
        if given.get(role) is not None:
            continue
        repeated = len({names[place].lower() for place in matches}) < len(matches)
        if len(matches) > 1 and ((repeated and role != "title") or role in ("user", "item")):
            columns = " and ".join(repr(names[place]) for place in matches)
            advice = (
                "rename one" if role == "split" else f"name one with --{role}-col (equal names by a position from 0)"
            )
            raise DataError(f"columns {columns} of {label} could each be the {role}; {advice}.")
        if len(matches) == 1:
            roles[role] = matches[0]
    return roles


def position(column: Column, names: list[str], role: str, label: str, option: str) -> int:
    """Return the position of a column that ``option`` names by its header or its position."""
    if isinstance(column, str) and names.count(column) > 1:
        raise DataError(
            f"{label} has {names.count(column)} columns named {column!r}; name the {role} by its position from 0."
        )
    if isinstance(column, str) and column in names:
        return names.index(column)
    if str(column).isdecimal() and int(column) < len(names):
        return int(column)
    raise DataError(
        f"{label} has no column {column!r} for the {role}, it has {listed(names)}; correct {option}"
        f"{did_you_mean(str(column), names) or '.'}"
    )
