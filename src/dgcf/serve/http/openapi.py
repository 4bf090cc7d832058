"""The OpenAPI document: an exact schema for every answer and every problem of every operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from dgcf.serve.errors import KINDS
from dgcf.serve.http.answers import Problem
from dgcf.serve.http.bodies import JSON
from dgcf.serve.http.operation import Content, Operation
from dgcf.serve.http.problems import MEDIA_TYPE as PROBLEM
from dgcf.version import __version__

REF = "#/components/schemas/{model}"
ALWAYS = (400, 405, 408, 414, 422, 431, 429, 500, 503)
"""Statuses that every operation can end with."""
GUARDED = (401, 403, 421)
WITH_BODY = (413, 415)
RETRY = (429, 503)
TITLE = "dgcf"
DESCRIPTION = "Recommendations that take events at once, explain themselves, and follow new models without downtime."
_ETAG = {"ETag": {"description": "Identifies the answer; send it in If-None-Match.", "schema": {"type": "string"}}}
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait before a repetition.", "schema": {"type": "integer", "minimum": 0}}
}
_WHAT = {304: "The client has this answer already."}


def parts_of(operation: Operation) -> dict[str, Any]:
    """Return the arguments of FastAPI's route that describe an operation."""
    parameters = [part.document() for part in operation.ids]
    parameters += [part.document() for part in operation.parameters]
    extra: dict[str, Any] = {"parameters": parameters} if parameters else {}
    if operation.body is not None:
        schemas = [{"$ref": REF.format(model=name)} for name in names_of(operation)]
        extra["requestBody"] = operation.body.document(schemas)
    if not operation.open:
        extra["security"] = [{"token": []}, {}]
    return {
        "operation_id": operation.name,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [operation.tag],
        "responses": _responses(operation),
        "openapi_extra": extra,
    }


def names_of(operation: Operation) -> list[str]:
    """Return the names of the schemas of the forms of a body."""
    return (
        [] if operation.body is None else [str(form.json_schema()["title"]) for form in operation.body.forms.values()]
    )


def _responses(operation: Operation) -> dict[int | str, dict[str, Any]]:
    responses: dict[int | str, dict[str, Any]] = {}
    for status, content in operation.answers.items():
        responses[status] = _answer(content, tagged=operation.tagged)
    if operation.tagged:
        responses[304] = {"description": _WHAT[304], "headers": _ETAG}
    statuses = {*ALWAYS, *operation.problems}
    statuses |= set() if operation.open else set(GUARDED)
    statuses |= set() if operation.body is None else set(WITH_BODY)
    statuses |= {404} if operation.ids else set()
    for status in sorted(statuses):
        responses[status] = {
            "description": f"{KINDS[status][1]}.",
            "content": {PROBLEM: {"schema": {"$ref": REF.format(model="Problem")}}},
            **({"headers": _RETRY_AFTER} if status in RETRY else {}),
        }
    return responses


def _answer(content: Content, *, tagged: bool) -> dict[str, Any]:
    headers: dict[str, Any] = dict(_ETAG) if tagged else {}
    for name, what in content.headers.items():
        headers[name] = {"description": what, "schema": {"type": "string"}}
    response: dict[str, Any] = {"description": content.description} | ({"headers": headers} if headers else {})
    if content.model is not None:
        refs = [{"$ref": REF.format(model=model.__name__)} for model in models_of(content)]
        response["content"] = {JSON: {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}}}
    elif content.media_type is not None:
        binary = not content.media_type.startswith("text/") and content.media_type != JSON
        schema = {"type": "object"} if content.media_type == JSON else {"type": "string"}
        response["content"] = {content.media_type: {"schema": schema | ({"format": "binary"} if binary else {})}}
    return response


def models_of(content: Content) -> tuple[type[BaseModel], ...]:
    """Return the models of the JSON that an answer holds."""
    if content.model is None:
        return ()
    return content.model if isinstance(content.model, tuple) else (content.model,)


def components(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the schemas of all answers, problems and bodies."""
    models: dict[type[BaseModel], None] = {Problem: None}
    for operation in operations:
        for content in operation.answers.values():
            models |= dict.fromkeys(models_of(content))
    mode: JsonSchemaMode = "serialization"
    _, document = models_json_schema([(model, mode) for model in models], ref_template=REF)
    schemas: dict[str, Any] = document["$defs"]
    for operation in operations:
        for form in () if operation.body is None else operation.body.forms.values():
            schemas |= _form(form)
    return {
        "schemas": dict(sorted(schemas.items())),
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "A token of the scope that the route needs."}
        },
    }


def _form(form: TypeAdapter[Any]) -> dict[str, Any]:
    schema = form.json_schema(ref_template=REF)
    inner = schema.pop("$defs", {})
    return {**inner, schema["title"]: schema}


def about() -> dict[str, Any]:
    """Return the arguments of FastAPI that describe the service."""
    return {"title": TITLE, "description": DESCRIPTION, "version": __version__}
