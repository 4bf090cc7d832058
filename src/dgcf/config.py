"""Settings: TOML and ``key=value`` words to checked, frozen dataclasses; every later room is configured through here.

The dataclasses themselves live in the room that they configure and check their own ranges, so they work without
pydantic; here their types are checked too, and an unknown key is refused with the nearest known one.
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
"""The largest file of settings that is read."""
DOTS = 200
"""The most parts of a dotted key: the time to read one grows with their square."""
_BETWEEN_SIGNS = re.compile(rb"[=,\[\]{}\n]")
SHOWN = 200
"""How many letters of a wrong value are shown."""


@dataclasses.dataclass(frozen=True)
class Between:
    """A search space: numbers from ``low`` to ``high``, whole where both are, evenly or on a logarithmic scale."""

    low: float
    high: float
    log: bool = False


@dataclasses.dataclass(frozen=True)
class OneOf:
    """A search space: a few values, none nearer to one than to another."""

    values: tuple[Any, ...]


Space = Between | OneOf


def tunable(default: Any, space: Space) -> Any:
    """A field of a settings dataclass with the space in which ``dgcf tune`` looks for a better value."""
    return dataclasses.field(default=default, metadata={"space": space})


def search_space(settings: DataclassInstance | type[DataclassInstance]) -> dict[str, Space]:
    """The fields of a settings dataclass that are worth searching, in their order."""
    return {field.name: field.metadata["space"] for field in dataclasses.fields(settings) if "space" in field.metadata}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One setting as a person reads of it: ``kind`` and ``about`` in words, ``space`` where it is worth searching."""

    name: str
    default: Any
    kind: str
    about: str
    space: Space | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: ``{"name": "layers", "default": 3, "type": "int", "about": …, "space": {"values": [1, 2]}}``."""
        space = None if self.space is None else dataclasses.asdict(self.space)
        return {"name": self.name, "default": self.default, "type": self.kind, "about": self.about, "space": space}


def parameters(defaults: DataclassInstance) -> list[Parameter]:
    """The settings of a dataclass, in their order, each with the sentence that stands below it in the source."""
    kind = type(defaults)
    hints, told, spaces = get_type_hints(kind), field_descriptions(kind), search_space(kind)
    return [
        Parameter(name, getattr(defaults, name), _in_words(hints[name]), told.get(name, ""), spaces.get(name))
        for name in (field.name for field in dataclasses.fields(defaults))
    ]


@functools.cache
def field_descriptions(kind: type) -> Mapping[str, str]:
    """The sentences below the fields of a dataclass and those it inherits, which Python itself does not keep."""
    found: dict[str, str] = {}
    for part in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in itertools.pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.replace("``", "`").split())
    return found


def _in_words(hint: Any) -> str:
    """A type as one would say it: ``int``, ``mean | last``, ``int | none``."""
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    if members := get_args(hint):
        return " | ".join(map(_in_words, members))
    return "none" if hint is type(None) else str(hint.__name__)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings of a TOML file of at most 1 MiB; ``model`` and ``preset`` are names where it has them."""
    try:
        data = read_member(Path(os.path.realpath(path, strict=True)), SETTINGS_BYTES)
        if max(part.count(b".") for part in _BETWEEN_SIGNS.split(data)) > DOTS:
            raise InvalidFileError(f"a key of more than {DOTS} parts")
        found = check_type(tomllib.loads(data.decode("utf-8")), dict[str, Any])
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}; give a TOML file of settings.") from problem
    except RecursionError as problem:
        raise ConfigError(f"{path} is nested too deep; write lines such as `layers = 3`.") from problem
    except ValueError as problem:  # of the path, the encoding, the syntax or a value
        raise ConfigError(f"{path} is not TOML ({shorten(problem)}); write lines such as `layers = 3`.") from problem
    for name in ("model", "preset"):
        if not isinstance(found.get(name, ""), str):
            raise ConfigError(f"{name} in {path} is {shorten(repr(found[name]))}, expected a name in quotes.")
    return found


def shorten(text: object) -> str:
    """The beginning of a text that may be long, for a message."""
    shown = str(text)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """``["layers=3", "epsilon=auto"]`` as a mapping; of a repeated key the last one counts, as on any command line."""
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"setting {shorten(repr(word))} has no key and value; write it as key=value, such as layers=3."
            )
        settings[key.strip()] = _literal(value.strip())
    return settings


def _literal(text: str) -> Any:
    """A number, a truth value or any other TOML value where the text is one; else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):  # before TOML, which refuses .5 and 1.
        with contextlib.suppress(ValueError):
            return number(text)
    with contextlib.suppress(ValueError, RecursionError):
        return tomllib.loads(f"value = {text}")["value"]
    return text


def refuse_unknown(settings: Iterable[str], known: Iterable[str], whose: str) -> None:
    """Stop at the first key that nobody knows, and offer the nearest that somebody does."""
    names = sorted(known)
    for key in settings:
        if key not in names:
            hint = did_you_mean(key[:SHOWN], names) or f"; it has {', '.join(names) or 'none'}."
            raise ConfigError(f"{whose} has no setting {shorten(repr(key))}{hint}")


def configure(defaults: C, settings: Mapping[str, Any], whose: str) -> C:
    """``defaults`` with ``settings`` over them, every name, type and range checked; ``whose`` names it in messages."""
    fields = {field.name: getattr(defaults, field.name) for field in dataclasses.fields(defaults) if field.init}
    refuse_unknown(settings, fields, whose)
    values = {**fields, **_typed(type(defaults), settings, whose)}
    return type(defaults)(**values)


def _typed(kind: type, settings: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """The settings, each of the type that its field has."""
    hints = get_type_hints(kind)
    try:
        from pydantic import TypeAdapter, ValidationError
    except ImportError:  # a training machine may have torch and little else
        return {key: _plainly_typed(value, hints[key], f"{key} of {whose}", key) for key, value in settings.items()}
    found = {}
    for key, value in settings.items():
        try:
            # Strict: what comes from TOML or key=value has its type already; "3" for 3 or true for 1 is a slip.
            found[key] = TypeAdapter(hints[key]).validate_python(value, strict=True)
        except ValidationError as problem:
            # A union complains once for each of its members.
            kinds = [str(error["msg"]).removeprefix("Input should be ") for error in problem.errors()]
            expected = " or ".join(dict.fromkeys(kinds)).replace("a valid ", "")
            raise ConfigError(
                f"{key} of {whose} is {shorten(repr(value))}, expected {expected}; change it with --set {key}=…"
            ) from None
    return found


def _plainly_typed(value: Any, hint: Any, what: str, key: str) -> Any:
    try:
        return check_type(value, hint)
    except InvalidFileError as problem:
        raise ConfigError(f"{what} is {str(problem).removeprefix('it is ')}; change it with --set {key}=…") from None


def require_range(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    """Refuse a number outside [low, high] (or (low, high]), infinities and not-a-number included."""
    if not ((low < value if open_low else low <= value) and value <= high):
        span = (
            f"{'above' if open_low else 'from'} {low:g} to {high:g}"
            if high < float("inf")
            else (f"a number {'above' if open_low else 'from'} {low:g}{'' if open_low else ' on'}")
        )
        raise ConfigError(f"{name} is {shorten(repr(value))}, expected {span}; change it with --set {name}=…")


def require_one_of(name: str, value: str, known: Iterable[str]) -> None:
    """Refuse a word that is not among the known ones, and offer the nearest."""
    words = list(known)
    if value not in words:
        hint = did_you_mean(str(value)[:SHOWN], words) or f"; change it with --set {name}={words[0]}"
        raise ConfigError(f"{name} is {shorten(repr(value))}, expected {' or '.join(words)}{hint}")
