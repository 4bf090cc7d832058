"""Parameters of a request: identifiers in the path, options in the query; each states its schema and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from dgcf.errors import did_you_mean
from dgcf.serve.http.paths import decode_segment
from dgcf.serve.http.problems import InvalidError

MOST_ERRORS = 20
_SHOWN = 40
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Parameter:
    """An option of the query. ``read`` returns its value, or raises ``ValueError`` with what was expected."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    default: Any = None

    def document(self) -> dict[str, Any]:
        """Return the parameter as an object of OpenAPI."""
        schema = dict(self.schema) | ({} if self.default is None else {"default": self.default})
        return {
            "name": self.name,
            "in": "query",
            "required": False,
            "description": self.description,
            "schema": schema,
        }


@dataclass(frozen=True)
class Segment:
    """An identifier in the path, percent-encoded, of at most ``limit`` bytes of UTF-8."""

    name: str
    description: str
    limit: int
    example: str

    def document(self) -> dict[str, Any]:
        """Return the parameter as an object of OpenAPI."""
        return {
            "name": self.name,
            "in": "path",
            "required": True,
            "description": self.description,
            "schema": {"type": "string", "minLength": 1, "maxLength": self.limit},
            "example": self.example,
        }

    def read(self, encoded: str) -> str:
        """Return the identifier of a segment of a path."""
        try:
            text = decode_segment(encoded)
        except ValueError as problem:
            raise InvalidError.of("path", self.name, str(problem)) from None
        if len(text) * 4 > self.limit and len(text.encode()) > self.limit:
            size = len(text.encode())
            raise InvalidError.of("path", self.name, f"has {size:,} bytes, expected at most {self.limit:,}.")
        return text


def integer(name: str, description: str, low: int, high: int, default: int | None = None) -> Parameter:
    """Return an option that is a whole number from ``low`` to ``high``."""

    def read(text: str) -> int:
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) <= 19 and low <= int(text) <= high:
            return int(text)
        raise ValueError(f"expected a whole number from {low:,} to {high:,}.")

    return Parameter(name, description, {"type": "integer", "minimum": low, "maximum": high}, read, default)


def boolean(name: str, description: str, default: bool = False) -> Parameter:
    """Return an option that is ``true`` or ``false``."""

    def read(text: str) -> bool:
        if text not in _BOOLEANS:
            raise ValueError("expected true or false.")
        return _BOOLEANS[text]

    return Parameter(name, description, {"type": "boolean"}, read, default)


def text(name: str, description: str, limit: int, default: str | None = None) -> Parameter:
    """Return an option that is text of at most ``limit`` characters."""

    def read(given: str) -> str:
        if len(given) > limit:
            raise ValueError(f"expected at most {limit:,} characters.")
        return given

    return Parameter(name, description, {"type": "string", "maxLength": limit}, read, default)


def choices(name: str, description: str, allowed: Sequence[str], default: Sequence[str]) -> Parameter:
    """Return an option that is a list of distinct words, separated by commas."""

    def read(given: str) -> tuple[str, ...]:
        words = tuple(given.split(","))
        if not all(word in allowed for word in words) or len(set(words)) < len(words):
            raise ValueError(f"expected a comma-separated list of {', '.join(allowed)}, each once.")
        return words

    one = "|".join(allowed)
    schema = {"type": "string", "pattern": f"^({one})(,({one}))*$", "default": ",".join(default)}
    return Parameter(name, description, schema, read)


class Query:
    """The options that an operation takes."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._known = {parameter.name: parameter for parameter in parameters}
        self._defaults = {parameter.name: parameter.default for parameter in parameters}

    def read(self, query: bytes) -> dict[str, Any]:
        """Return the value of each option; raise ``InvalidError`` for unknown, repeated and invalid ones."""
        values = self._defaults.copy()
        if not query:
            return values
        errors: list[dict[str, str]] = []
        given = set[str]()
        for pair in query.split(b"&"):
            if not pair or len(errors) == MOST_ERRORS:
                continue
            name, _, value = pair.partition(b"=")
            try:
                key = _decode(name)
                self._check_name(key, given)
                given.add(key)
                values[key] = self._known[key].read(_decode(value))
            except ValueError as problem:
                shown = name[:_SHOWN].decode("ascii", "replace")
                errors.append({"in": "query", "at": shown, "detail": _with_value(value, str(problem))})
        if errors:
            raise InvalidError(errors)
        return values

    def _check_name(self, name: str, given: set[str]) -> None:
        if name not in self._known:
            near = did_you_mean(name[:_SHOWN], self._known) or ""
            names = ", ".join(self._known) or "no options"
            raise ValueError(f"this is not an option; the request takes {names}{near}{'' if near else '.'}")
        if name in given:
            raise ValueError("the option is repeated; give it once.")


def _decode(part: bytes) -> str:
    """Return the text of a name or a value of a query."""
    if b"%" not in part and b"+" not in part:
        try:
            return part.decode("ascii")
        except UnicodeDecodeError:
            pass
    try:
        return unquote_to_bytes(part.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the percent-encoded bytes are not UTF-8; encode the text as UTF-8 first.") from None


def _with_value(value: bytes, problem: str) -> str:
    """Return the sentence of an error, with the value where it says what was expected."""
    if not problem.startswith("expected"):
        return problem
    return f"the value is {value[:_SHOWN].decode('ascii', 'replace')!r}, {problem}"
