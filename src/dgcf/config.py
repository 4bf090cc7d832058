"""Settings: from TOML files and ``key=value`` words to checked, frozen dataclasses.

Each dataclass is defined in the package that it configures and checks its own ranges. This module checks names and
types, with pydantic where it is installed.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import os
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from dgcf.errors import ConfigError, did_you_mean
from dgcf.stored import InvalidFileError, check_type, read_member

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    C = TypeVar("C", bound=DataclassInstance)

SETTINGS_BYTES = 2**20
"""Largest size of a settings file."""
DOTS = 200
"""Largest number of dots in a key: the time to parse it grows with the square."""
_BETWEEN_SIGNS = re.compile(rb"[=,\[\]{}\n]")
SHOWN = 200
"""Number of characters of a wrong value that a message shows."""

T = TypeVar("T")
Value = bool | int | float | str | None
"""The value of a setting."""


@dataclasses.dataclass(frozen=True)
class Between:
    """A search space: numbers from ``low`` to ``high``, integers if both are, on a linear or logarithmic scale."""

    low: float
    high: float
    log: bool = False


@dataclasses.dataclass(frozen=True)
class OneOf:
    """A search space: unordered values."""

    values: tuple[Value, ...]


Space = Between | OneOf


def tunable(default: T, space: Space) -> T:
    """Return a dataclass field with a default and the space that ``dgcf tune`` searches."""
    return dataclasses.field(default=default, metadata={"space": space})


def search_space(settings: DataclassInstance | type[DataclassInstance]) -> dict[str, Space]:
    """Return the search spaces of the tunable fields, in the order of the fields."""
    return {field.name: field.metadata["space"] for field in dataclasses.fields(settings) if "space" in field.metadata}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """The description of a setting: type and meaning in words, and a search space if it is tunable."""

    name: str
    default: Value
    kind: str
    about: str
    space: Space | None

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"name": "layers", "default": 3, "type": "int", "about": …, "space": {"values": [1, 2]}}``."""
        space = None if self.space is None else dataclasses.asdict(self.space)
        return {"name": self.name, "default": self.default, "type": self.kind, "about": self.about, "space": space}


def parameters(defaults: DataclassInstance) -> list[Parameter]:
    """Return the descriptions of the settings of a dataclass, in the order of its fields."""
    kind = type(defaults)
    hints, descriptions, spaces = get_type_hints(kind), field_descriptions(kind), search_space(kind)
    return [
        Parameter(name, getattr(defaults, name), _in_words(hints[name]), descriptions.get(name, ""), spaces.get(name))
        for name in (field.name for field in dataclasses.fields(defaults))
    ]


@functools.cache
def field_descriptions(kind: type) -> Mapping[str, str]:
    """Return the docstrings below the fields of a dataclass and its bases, read from the source."""
    descriptions: dict[str, str] = {}
    for part in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in itertools.pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    descriptions[name] = " ".join(text.replace("``", "`").split())
    return descriptions


def _in_words(hint: Any) -> str:
    """Return a type in words: ``int``, ``mean | last``, ``int | none``."""
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    if members := get_args(hint):
        return " | ".join(map(_in_words, members))
    return "none" if hint is type(None) else str(hint.__name__)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file of at most 1 MiB; ``model`` and ``preset``, if present, are texts."""
    try:
        data = read_member(Path(os.path.realpath(path, strict=True)), SETTINGS_BYTES)
        if max(part.count(b".") for part in _BETWEEN_SIGNS.split(data)) > DOTS:
            raise InvalidFileError(f"a key of more than {DOTS} parts")
        content = check_type(tomllib.loads(data.decode("utf-8")), dict[str, Any])
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}; give a TOML file of settings.") from problem
    except RecursionError as problem:
        raise ConfigError(f"{path} is nested too deep; write lines such as `layers = 3`.") from problem
    except ValueError as problem:  # of the path, the encoding, the syntax or a value
        raise ConfigError(f"{path} is not TOML ({shorten(problem)}); write lines such as `layers = 3`.") from problem
    for name in ("model", "preset"):
        if not isinstance(content.get(name, ""), str):
            raise ConfigError(f"{name} in {path} is {shorten(repr(content[name]))}, expected a name in quotes.")
    return content


def shorten(text: object) -> str:
    """Return a text cut to the length that messages show."""
    shown = str(text)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def parse_settings(words: Iterable[str]) -> dict[str, object]:
    """Return ``["layers=3", "epsilon=auto"]`` as a mapping; the last of a repeated key counts."""
    settings: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"setting {shorten(repr(word))} has no key and value; write it as key=value, such as layers=3."
            )
        settings[key.strip()] = _literal(value.strip())
    return settings


def _literal(text: str) -> object:
    """Return the number, truth value or other TOML value that a text denotes, or else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):  # before TOML, which refuses .5 and 1.
        with contextlib.suppress(ValueError):
            return number(text)
    with contextlib.suppress(ValueError, RecursionError):
        return tomllib.loads(f"value = {text}")["value"]
    return text


def refuse_unknown(settings: Iterable[str], known: Iterable[str], whose: str) -> None:
    """Raise ConfigError for the first unknown key, with the nearest known one."""
    names = sorted(known)
    for key in settings:
        if key not in names:
            hint = did_you_mean(key[:SHOWN], names) or f"; it has {', '.join(names) or 'none'}."
            raise ConfigError(f"{whose} has no setting {shorten(repr(key))}{hint}")


def configure(defaults: C, settings: Mapping[str, object], whose: str) -> C:
    """Return ``defaults`` with checked ``settings`` in place; ``whose`` names the owner in messages."""
    fields = {field.name: getattr(defaults, field.name) for field in dataclasses.fields(defaults) if field.init}
    refuse_unknown(settings, fields, whose)
    values = {**fields, **_check_types(type(defaults), settings, whose)}
    return type(defaults)(**values)


def _check_types(kind: type, settings: Mapping[str, object], whose: str) -> dict[str, object]:
    """Return the settings, each of the type of its field."""
    hints = get_type_hints(kind)
    try:
        from pydantic import TypeAdapter, ValidationError
    except ImportError:  # training needs only torch, NumPy and SciPy
        return {key: _check_plain_type(value, hints[key], f"{key} of {whose}", key) for key, value in settings.items()}
    values: dict[str, object] = {}
    for key, value in settings.items():
        try:
            # Strict: values of TOML and key=value are typed already; "3" for 3 or true for 1 is a mistake.
            values[key] = TypeAdapter(hints[key]).validate_python(value, strict=True)
        except ValidationError as problem:
            # A union reports one error per member.
            kinds = [str(error["msg"]).removeprefix("Input should be ") for error in problem.errors()]
            expected = " or ".join(dict.fromkeys(kinds)).replace("a valid ", "")
            raise ConfigError(
                f"{key} of {whose} is {shorten(repr(value))}, expected {expected}; change it with --set {key}=…"
            ) from None
    return values


def _check_plain_type(value: object, hint: Any, what: str, key: str) -> object:
    try:
        result: object = check_type(value, hint)
    except InvalidFileError as problem:
        raise ConfigError(f"{what} is {str(problem).removeprefix('it is ')}; change it with --set {key}=…") from None
    return result


def require_range(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise ConfigError unless a number is in [low, high] (or (low, high]); infinities and NaN are not."""
    if not ((low < value if open_low else low <= value) and value <= high):
        span = (
            f"{'above' if open_low else 'from'} {low:g} to {high:g}"
            if high < float("inf")
            else (f"a number {'above' if open_low else 'from'} {low:g}{'' if open_low else ' on'}")
        )
        raise ConfigError(f"{name} is {shorten(repr(value))}, expected {span}; change it with --set {name}=…")


def require_one_of(name: str, value: str, known: Iterable[str]) -> None:
    """Raise ConfigError unless a word is one of ``known``, with the nearest of them."""
    words = list(known)
    if value not in words:
        hint = did_you_mean(str(value)[:SHOWN], words) or f"; change it with --set {name}={words[0]}"
        raise ConfigError(f"{name} is {shorten(repr(value))}, expected {' or '.join(words)}{hint}")
