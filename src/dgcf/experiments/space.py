"""Search spaces: those of a recipe's settings, and others parsed from ``--search``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, TypeGuard

from dgcf.config import Between, OneOf, Space, Value, parse_settings, search_space
from dgcf.errors import ConfigError
from dgcf.train import Recipe
from dgcf.train.losses import OBJECTIVES

Spaces = dict[str, Space]


def space_of(recipe: Recipe, losses: Iterable[Value] = ()) -> Spaces:
    """Return the spaces of a recipe's settings, the model's own first, without settings that have no effect in it.

    ``losses``: those that are searched, whose settings have an effect, too.
    """
    if recipe.entry.solved:
        return search_space(recipe.model)
    spaces = {**search_space(recipe.model), **search_space(recipe.train)}
    read = (objective.settings for loss, objective in OBJECTIVES.items() if loss in set(losses))
    unused = set(recipe.train.unread).difference(*read)
    if not recipe.model.drops_edges:
        unused.add("edge_dropout")
    return {name: space for name, space in spaces.items() if name not in unused}


def parse_space(word: str) -> tuple[str, Space]:
    """Parse ``l2=1e-5:1e-1:log`` as an interval, ``dim=32,64`` as a choice; return the setting and its space."""
    key, equals, text = (part.strip() for part in word.partition("="))
    if equals and key:
        ends = text.split(":")
        if len(ends) in (2, 3) and ends[2:] in ([], ["log"]):
            low, high = (_value(key, end) for end in ends[:2])
            if _is_number(low) and _is_number(high):
                return key, _between(word, low, high, log=len(ends) == 3)
        elif len(ends) == 1 and (values := _distinct(_value(key, part) for part in text.split(","))):
            if len(values) == 1:
                raise ConfigError(f"--search {word} leaves one value; fix it with --set {key}={values[0]} instead.")
            return key, OneOf(values)
    raise ConfigError(
        f"--search {word} is no search space; write key=low:high, key=low:high:log or key=a,b,c, "
        "such as l2=1e-5:1e-1:log or dim=32,64."
    )


def _value(key: str, text: str) -> Any:
    return parse_settings([f"{key}={text}"])[key] if text.strip() else None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _distinct(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return each value once, in order; nothing if a value is missing."""
    distinct = tuple(dict.fromkeys(values))
    return () if None in distinct else distinct


def _between(word: str, low: float, high: float, *, log: bool) -> Between:
    if not (isfinite(low) and isfinite(high)):
        raise ConfigError(f"--search {word} goes from {low} to {high}; give two finite numbers.")
    if not low < high:
        raise ConfigError(f"--search {word} goes from {low} to {high}; give the lower number first, then the higher.")
    if log and low <= 0:
        raise ConfigError(f"--search {word} begins at {low}, which a logarithmic scale does not have; begin above 0.")
    return Between(low, high, log)


def match_type(space: Space, example: Value) -> Space:
    """Return the space with real bounds if the setting is real: ``edge_dropout=0:1`` is not an integer 0 or 1."""
    if isinstance(space, Between) and isinstance(example, float):
        return replace(space, low=float(space.low), high=float(space.high))
    return space


def extremes(space: Space) -> tuple[Value, ...]:
    """Return the values that must be valid for the whole space to be."""
    return space.values if isinstance(space, OneOf) else (space.low, space.high)


def contains(space: Space, value: object) -> bool:
    """Return whether a value lies in the space."""
    if isinstance(space, OneOf):
        return value in space.values
    return _is_number(value) and space.low <= value <= space.high


def format_spaces(spaces: Mapping[str, Space]) -> dict[str, str]:
    """Return the spaces as ``--search`` takes them."""
    return {
        name: ",".join(map(str, space.values))
        if isinstance(space, OneOf)
        else f"{space.low}:{space.high}{':log' if space.log else ''}"
        for name, space in spaces.items()
    }
