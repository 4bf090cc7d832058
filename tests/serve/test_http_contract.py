"""The table of routes, the OpenAPI document, the client and the page agree on the interface."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import httpx
import pytest

from dgcf import serve
from dgcf.client import AsyncClient, answers, calls
from dgcf.client.calls import Call
from dgcf.client.clients import Methods
from dgcf.serve.server.routes import ROUTES, choose, routes_of
from tests.serve.in_process import InProcess, page_calls

EVENT: answers.Event = {"user": "u00001", "item": "i00001", "kind": "like", "weight": 2.0, "time": 1.5, "key": "k1"}
CALLS: dict[str, Callable[[], Call[Any]]] = {
    "recommend": lambda: calls.recommend("u00001", k=3, seen=True, why=True),
    "recommend_users": lambda: calls.recommend_users(["u00001", "nobody"], k=3, only=["i00001"], exclude=["i00002"]),
    "recommend_for": lambda: calls.recommend_for(["i00001"], ["i00002"], user="u00001", k=3, why=True),
    "similar_items": lambda: calls.similar_items("i00001", k=3),
    "similar_users": lambda: calls.similar_users("u00001", k=3),
    "explain": lambda: calls.explain("u00001", "i00001", top=2),
    "explain_for": lambda: calls.explain_for(["i00001"], "i00003", ["i00002"], user="u00001", top=2),
    "items": lambda: calls.items("silent", cursor="Mg", limit=3),
    "item": lambda: calls.item("i00001"),
    "put_item": lambda: calls.put_item("new", title="New", attributes={"genre": "Noir", "year": 1949}, hidden=True),
    "delete_item": lambda: calls.delete_item("new"),
    "send_event": lambda: calls.send_event("u00001", "i00001", "like", weight=2.0, time=1.5, key="k0"),
    "send_events": lambda: calls.send_events([EVENT]),
    "user": lambda: calls.user("u00001", limit=3),
    "remove_event": lambda: calls.remove_event("k1"),
    "forget_user": lambda: calls.forget_user("u00001"),
    "export_events": lambda: calls.export_events("events.parquet", since=1),
    "model": calls.model,
    "reload": calls.reload,
    "models": calls.models,
    "rollback": lambda: calls.rollback(1),
    "refresh": calls.refresh,
    "refresh_state": calls.refresh_state,
    "experiments": calls.experiments,
    "health": calls.health,
}
WITHOUT_ANSWER = {"delete_item", "remove_event", "export_events", "health"}


def test_every_route_is_documented_and_every_documented_route_is_in_the_table(service: InProcess) -> None:
    documented = {
        (path, method.upper()): operation
        for path, methods in service.document.openapi["paths"].items()
        for method, operation in methods.items()
    }
    table = {(path, method): scope for path, scopes in ROUTES.items() for method, scope in scopes.items()}
    assert documented.keys() == table.keys()
    assert {where for where, operation in documented.items() if "security" not in operation} == {
        where for where, scope in table.items() if scope is None
    }
    names = [operation["operationId"] for operation in documented.values()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in documented.values())


def test_the_client_has_every_method_that_is_tested_here() -> None:
    assert {name for name in vars(Methods) if not name.startswith("_")} == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_the_client_is_a_documented_request(service: InProcess, name: str) -> None:
    call = CALLS[name]()
    route, _ = choose(routes_of(call.path), call.method)
    operation = service.document.operation(route.template, call.method)
    options = {part["name"]: part["schema"] for part in operation.get("parameters", ()) if part["in"] == "query"}
    assert call.query.keys() <= options.keys()
    if call.body:
        forms = operation["requestBody"]["content"]["application/json"]["schema"]
        names = [one["$ref"].rpartition("/")[2] for one in forms.get("oneOf", [forms])]
        assert sum(service.document.validator(name).is_valid(json.loads(call.body)) for name in names) == 1
    else:
        assert "requestBody" not in operation


@pytest.mark.parametrize("name", sorted(CALLS.keys() - WITHOUT_ANSWER))
def test_an_answer_of_the_client_has_the_documented_fields(service: InProcess, name: str) -> None:
    call = CALLS[name]()
    route, _ = choose(routes_of(call.path), call.method)
    responses = service.document.operation(route.template, call.method)["responses"]
    schemas = [
        one
        for status, response in responses.items()
        if status.startswith("2")
        for schema in [response["content"]["application/json"]["schema"]]
        for one in schema.get("oneOf", [schema])
    ]
    agreeing = [one for one in schemas if agree(one, returned_by(name), service.document.openapi)]
    assert agreeing
    assert len(agreeing) == len(schemas) or name in ("recommend_users", "recommend_for")


def test_the_client_carries_out_every_call(service: InProcess, tmp_path: Path) -> None:
    async def carry_out() -> dict[str, Any]:
        transport = httpx.ASGITransport(service.app)
        async with AsyncClient("http://127.0.0.1", transport=transport) as client:
            results = {}
            for name, build in CALLS.items():
                call = build()
                target = tmp_path / "events.parquet" if call.target is not None else None
                results[name] = await client._carry_out(calls.export_events(target) if target else call)
            return results

    results = service.run(carry_out())
    assert results["health"] == {"ready": True, "detail": None}
    assert results["export_events"].read_bytes()[:4] == b"PAR1"
    for name in CALLS.keys() - WITHOUT_ANSWER:
        assert fits(results[name], returned_by(name)), (name, results[name])


def test_the_page_calls_documented_routes_only() -> None:
    called = page_calls(Path(serve.__file__).parent / "page")
    assert ("POST", "/v1/recommend") in called
    assert ("GET", "/v1/explain/{}/{}") in called
    for method, template in called:
        assert choose(routes_of(template.replace("{}", "x")), method)


# -- types of the client ----------------------------------------------------------------------------------------------

PLAIN: dict[Any, set[str]] = {
    str: {"string"},
    int: {"integer"},
    float: {"integer", "number"},
    bool: {"boolean"},
    NoneType: {"null"},
}


def returned_by(name: str) -> Any:
    """Return the type of the result of a call."""
    return get_args(get_type_hints(getattr(calls, name))["return"])[0]


def fields_of(hint: Any) -> dict[str, tuple[bool, Any]]:
    """Return type and presence of each field of a TypedDict."""
    hints = get_type_hints(hint, include_extras=True)
    return {
        name: (True, type_) if get_origin(type_) is not NotRequired else (False, get_args(type_)[0])
        for name, type_ in hints.items()
    }


def agree(schema: dict[str, Any], hint: Any, document: dict[str, Any]) -> bool:
    """Return whether a type describes what a schema allows: the same fields, and values of the type."""
    if "$ref" in schema:
        return agree(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], hint, document)
    if hint is Any:
        return True
    if "anyOf" in schema:
        return all(agree(one, hint, document) for one in schema["anyOf"])
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(agree(schema, one, document) for one in of)
    if is_typeddict(hint):
        required, properties = schema.get("required", ()), schema.get("properties", {})
        fields = fields_of(hint)
        return properties.keys() == fields.keys() and all(
            (name in required) == present and agree(properties[name], type_, document)
            for name, (present, type_) in fields.items()
        )
    if origin is Literal:
        return set(schema.get("enum", [schema.get("const")])) == set(of)
    if origin is list:
        return schema.get("type") == "array" and agree(schema["items"], of[0], document)
    if origin is dict:
        more = schema.get("additionalProperties")
        inner = more if isinstance(more, dict) else {}
        return schema.get("type") == "object" and (of[1] is Any or agree(inner, of[1], document))
    return schema.get("type") in PLAIN[hint]


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value has a type of the client."""
    origin, of = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        fields = fields_of(hint)
        required = {name for name, (present, _) in fields.items() if present}
        present = isinstance(value, dict) and required <= value.keys() <= fields.keys()
        return present and all(fits(one, fields[name][1]) for name, one in value.items())
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in of)
    if origin is Literal:
        return value in of
    if origin is list:
        return isinstance(value, list) and all(fits(one, of[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(one, of[1]) for one in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return hint is Any or (isinstance(value, hint) and (hint is bool or not isinstance(value, bool)))
