"""Options for reading a source, and the choice of the user, item, rating and timestamp columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dgcf.data import sniff
from dgcf.data.paths import listed
from dgcf.errors import DataError, did_you_mean

Column = str | int


@dataclass(frozen=True)
class ReadOptions:
    """How to read a source; None means that the option is detected.

    A column is given by its header or its position (0 is the first). ``rating_col="none"`` ignores ratings.
    """

    format: str | None = None
    user_col: Column | None = None
    item_col: Column | None = None
    rating_col: Column | None = None
    timestamp_col: Column | None = None
    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    text_ids: bool = False
    trim_ids: bool = False


def choose_columns(names: list[str], options: ReadOptions, label: str, *, by_position: bool) -> dict[str, int]:
    """Return the column of each role: as given, else by common names, else (``by_position``) the first two."""
    given = {
        "user": options.user_col,
        "item": options.item_col,
        "rating": options.rating_col,
        "timestamp": options.timestamp_col,
    }
    if len(names) < 2:
        raise DataError(f"{label} has one column, expected at least user and item.")
    roles = {"user": 0, "item": 1} if by_position else _known_columns(names, given, label)
    for role, column in given.items():
        if column == "none" and role in ("rating", "timestamp"):
            roles.pop(role, None)
        elif column is not None:
            roles[role] = _position(column, names, role, label)
    for role in ("user", "item"):
        if role not in roles:
            raise DataError(
                f"no column of {label} is known as the {role} (it has {listed(names)}); name it with --{role}-col."
            )
    if roles["user"] == roles["item"]:
        raise DataError(f"user and item are the same column of {label}; name them with --user-col and --item-col.")
    return roles


def _known_columns(names: list[str], given: Mapping[str, Column | None], label: str) -> dict[str, int]:
    """Return the columns with common names; raise DataError if two could have the same role."""
    roles: dict[str, int] = {}
    for role in (*given, "split"):
        matches = [position for position, name in enumerate(names) if sniff.role_of(name) == role]
        repeated = len({names[position].lower() for position in matches}) < len(matches)
        if len(matches) > 1 and given.get(role) is None and (repeated or role in ("user", "item")):
            columns = " and ".join(repr(names[position]) for position in matches)
            advice = (
                "rename one" if role == "split" else f"name one with --{role}-col (equal names by a position from 0)"
            )
            raise DataError(f"columns {columns} of {label} could each be the {role}; {advice}.")
        if len(matches) == 1 and given.get(role) is None:
            roles[role] = matches[0]
    return roles


def _position(column: Column, names: list[str], role: str, label: str) -> int:
    if isinstance(column, str) and names.count(column) > 1:
        raise DataError(
            f"{label} has {names.count(column)} columns named {column!r}; name the {role} by its position from 0."
        )
    if isinstance(column, str) and column in names:
        return names.index(column)
    if str(column).isdecimal() and int(column) < len(names):
        return int(column)
    raise DataError(
        f"{label} has no column {column!r} for the {role}, it has {listed(names)}; correct --{role}-col"
        f"{did_you_mean(str(column), names) or '.'}"
    )
