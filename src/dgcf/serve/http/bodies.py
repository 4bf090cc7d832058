"""Bodies of requests: read as JSON, and checked against a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from dgcf.errors import did_you_mean
from dgcf.serve.http.parameters import MOST_ERRORS
from dgcf.serve.http.problems import InvalidError, MediaTypeError

JSON = "application/json"
_SHOWN = 40
_MOST_LISTED = 1000
"""A body with more errors is refused without the list, which would take long."""
_OF_KEY = "[key]"
"""The last step of pydantic to the name of an entry of an object."""
_EXPECTED = {
    "model_type": "a JSON object",
    "dict_type": "a JSON object",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "at most {le}",
    "too_long": "at most {max_length} of them, not {actual_length}",
    "too_short": "at least {min_length} of them",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} character",
}
"""What a value should have been, by the error that pydantic gives."""


class Body:
    """A body that is a JSON object of one of several forms.

    ``forms``: the schema of each form, by the field that only this form has; a single form needs none. ``examples``:
    as OpenAPI has them. ``optional``: no body at all is an empty object.
    """

    def __init__(
        self,
        forms: Mapping[str, TypeAdapter[Any]],
        description: str,
        examples: Mapping[str, Any],
        *,
        optional: bool = False,
    ) -> None:
        self.forms, self.description, self.examples = dict(forms), description, dict(examples)
        self.optional = optional
        self._fields = {name for form in self.forms.values() for name in _fields(form.core_schema)}

    async def read(self, scope: Scope, receive: Receive, limit: int) -> Any:
        """Return the checked body; raise an error with status 400, 413, 415 or 422."""
        if not self.optional:
            _check_media_type(scope)
        content = await read_bytes(receive, limit)
        if self.optional:
            if not content:
                return self.check({})
            _check_media_type(scope)
        try:
            value = from_json(content, allow_inf_nan=False)
        except (ValueError, RecursionError) as problem:
            raise HTTPException(400, f"the body is not JSON: {_line(problem)}; send a JSON object in UTF-8.") from None
        return self.check(value)

    def check(self, value: Any) -> Any:
        """Return the body of a JSON value; raise ``InvalidError``."""
        form = self._form_of(value)
        try:
            return form.validate_python(value)
        except ValidationError as problem:
            _refuse(problem, form)

    def _form_of(self, value: Any) -> TypeAdapter[Any]:
        """Return the form of a body; raise ``InvalidError`` if it has the fields of none, or of several."""
        *_, last = self.forms.values()
        if len(self.forms) == 1 or not isinstance(value, dict):
            return last
        given = [field for field in self.forms if field in value]
        if len(given) == 1:
            return self.forms[given[0]]
        if given:
            raise InvalidError.of("body", "", f"the request has both {' and '.join(given)}; send one of them.")
        if not value.keys() <= self._fields:  # a field may be misspelt; the errors of a form say so
            return last
        raise InvalidError.of("body", "", f"the request has neither {' nor '.join(self.forms)}; add one of them.")

    def document(self, schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the body as an object of OpenAPI; ``schemas``: those of the forms."""
        schema = schemas[0] if len(schemas) == 1 else {"oneOf": list(schemas)}
        content: dict[str, Any] = {"schema": schema, "examples": {}}
        content["examples"] = {name: {"value": value} for name, value in self.examples.items()}
        return {"required": not self.optional, "description": self.description, "content": {JSON: content}}


async def read_bytes(receive: Receive, limit: int) -> bytes:
    """Return the body of a request; raise an error with status 413 if it has more than ``limit`` bytes."""
    message = await receive()
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise HTTPException(413, f"the body has more than {limit:,} bytes; send less in one request.")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        message = await receive()


def _check_media_type(scope: Scope) -> None:
    """Refuse a body that is not declared as JSON in UTF-8."""
    given = next((value for name, value in scope["headers"] if name == b"content-type"), b"").decode("latin-1")
    if given == JSON:
        return
    name, *options = (part.strip().lower() for part in given.split(";"))
    charset = next(
        (option.partition("=")[2].strip('"') for option in options if option.startswith("charset=")), "utf-8"
    )
    if name != JSON or charset not in ("utf-8", "utf8"):
        what = f"the media type is {given[:_SHOWN]!r}" if given else "the request has no Content-Type"
        raise MediaTypeError(f"{what}, expected {JSON} in UTF-8; set the header Content-Type.")


def _refuse(problem: ValidationError, form: TypeAdapter[Any]) -> NoReturn:
    count = problem.error_count()
    if count > _MOST_LISTED:
        raise InvalidError.of("body", "", f"{count:,} fields and values are invalid; check what the body is.") from None
    errors = problem.errors(include_url=False, include_input=False)
    raise InvalidError([_entry(error, form) for error in errors[:MOST_ERRORS]]) from None


def _entry(error: ErrorDetails, form: TypeAdapter[Any]) -> dict[str, str]:
    at = "".join(f"/{_escaped(part)}" for part in error["loc"] if part != _OF_KEY)
    return {"in": "body", "at": at, "detail": _sentence(error, form)}


def _sentence(error: ErrorDetails, form: TypeAdapter[Any]) -> str:
    """Return what is wrong with one value, as a sentence."""
    kind = error["type"]
    if kind == "missing":
        return "the field is missing; add it."
    if kind == "extra_forbidden":
        core = form.core_schema
        known = _fields(core) if len(error["loc"]) == 1 else ()
        near = did_you_mean(str(error["loc"][-1])[:_SHOWN], known)
        takes = f"; it takes {', '.join(known)}." if known else "; remove it."
        return f"the request has no such field{near or takes}"
    expected = _EXPECTED.get(kind)
    if expected is not None:
        return f"expected {expected.format(**error.get('ctx', {}))}."
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    if message.startswith("Input should be "):
        return f"expected {message.removeprefix('Input should be ')}."
    return f"{message[:1].lower()}{message[1:]}."


def _fields(schema: Any) -> tuple[str, ...]:
    """Return the names of the fields of a model."""
    while "fields" not in schema:
        if "schema" not in schema:
            return ()
        schema = schema["schema"]
    return tuple(schema["fields"])


def _escaped(part: int | str) -> str:
    """Return a step of a JSON pointer."""
    return str(part)[: _SHOWN * 2].replace("~", "~0").replace("/", "~1")


def _line(problem: BaseException) -> str:
    return str(problem).split("\n")[0][:200] or "it is nested too deeply"
