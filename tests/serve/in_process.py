"""The HTTP application in this process, without a server: every answer is held against the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import jsonschema_rs
from fastapi import FastAPI

from dgcf.serve.engine import Engine
from dgcf.serve.events.store import EventStore
from dgcf.serve.http.app import create_app
from dgcf.serve.refresh.refresher import Refresher
from dgcf.serve.server.log import Log
from dgcf.serve.server.routes import choose, routes_of
from dgcf.serve.settings import Limits, Settings

T = TypeVar("T")
SECONDS = 60
LIMITS = Limits(k=50, rows=200, reasons=40, users=5, items=20, events=8, page=10, id_bytes=64, body_bytes=20_000)
FIGURES: dict[str, Any] = {
    "model": 1,
    "model_loaded": "2026-05-01T12:00:00+00:00",
    "uptime_seconds": 1.5,
    "workers": 1,
    "ready_workers": 1,
    "requests": {
        "total": 1,
        "per_second": 0.5,
        "by_route": [{"route": "/v1/items", "requests": 1, "errors": 0, "p50_ms": 1.0, "p99_ms": None}],
        "by_status": {"2xx": 1, "4xx": 0, "5xx": 0},
    },
    "latency_ms": {"p50": 1.0, "p90": 1.0, "p99": None},
    "history": [
        {"time": "2026-05-01T12:00:00+00:00", "requests_per_second": 0.5, "p50_ms": 1.0, "p99_ms": 2.0, "errors": 0}
    ],
    "events": {"stored": 0, "last_minute": 0, "duplicates": 0, "store_bytes": 4096},
    "memory_bytes": 1,
    "dgcf": "0.1.0",
}


@dataclass(frozen=True)
class Reply:
    """An answer; ``headers`` by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class InProcess:
    """An application with an engine and a store of its own, in an event loop of a thread."""

    def __init__(self, model: Path, data: Path, limits: Limits = LIMITS, **options: Any) -> None:
        self.settings = Settings(model, data, limits=limits, **options)
        self.store = EventStore.open(self.settings.events_file)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.engine = self.run(self._engine())
        self.refresher = Refresher(self.settings, self.store, self.engine.publishing, Log(2))
        self.app: FastAPI = create_app(
            self.engine,
            self.store,
            self.settings,
            operations=lambda: FIGURES,
            metrics=lambda: b"dgcf_up 1\n",
            refresher=self.refresher,
        )
        self.document = Document(self.app)

    async def _engine(self) -> Engine:
        engine = Engine(self.settings, self.store)
        await engine.start()
        return engine

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, in the loop of the application."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def close(self) -> None:
        self.run(self.refresher.close())
        self.run(self.engine.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(
        self,
        method: str,
        target: str | bytes,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        app: FastAPI | None = None,
    ) -> Reply:
        """Send a request, and check the answer against the document. ``target``: path and query as they are sent.

        ``body``: bytes, or a value that is sent as JSON.
        """
        given = {"host": "127.0.0.1", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given = {"content-type": "application/json", **given}
        raw, _, query = (target.encode() if isinstance(target, str) else target).partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": raw.decode("latin-1"),
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {"request_id": "test-1"},
        }
        reply = self.run(_exchange(app or self.app, scope, body or b""))
        self.document.check(method, raw.decode("latin-1"), reply)
        return reply

    def get(self, target: str | bytes, **options: Any) -> Reply:
        return self.request("GET", target, **options)

    def post(self, target: str, body: Any, **options: Any) -> Reply:
        return self.request("POST", target, body, **options)


async def _exchange(app: Callable[..., Coroutine[Any, Any, None]], scope: dict[str, Any], body: bytes) -> Reply:
    messages: list[dict[str, Any]] = []
    parts = [body[: len(body) // 2], body[len(body) // 2 :]] if len(body) > 1 else [body]
    sent = 0

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent == len(parts):
            await asyncio.sleep(SECONDS)  # the client waits for the answer
        sent += 1
        return {"type": "http.request", "body": parts[sent - 1], "more_body": sent < len(parts)}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start, *rest = messages
    headers: dict[str, str] = {}
    for name, value in start["headers"]:
        assert name.decode() not in headers, f"the header {name} is repeated"
        headers[name.decode()] = value.decode("latin-1")
    content = b"".join(message.get("body", b"") for message in rest)
    assert not rest[-1].get("more_body")
    return Reply(start["status"], headers, content)


class Document:
    """The OpenAPI document, that answers are held against."""

    def __init__(self, app: FastAPI) -> None:
        self.openapi = app.openapi()
        self._validators: dict[str, Any] = {}

    def operation(self, template: str, method: str) -> dict[str, Any]:
        found: dict[str, Any] = self.openapi["paths"][template][method.lower()]
        return found

    def validator(self, name: str) -> Any:
        """Return the validator of one of the schemas."""
        if name not in self._validators:
            root = {"$ref": f"#/components/schemas/{name}", "components": self.openapi["components"]}
            self._validators[name] = jsonschema_rs.validator_for(root)
        return self._validators[name]

    def check(self, method: str, path: str, reply: Reply) -> None:
        """Check status, media type, body and headers of an answer; ``path`` is percent-encoded."""
        if "content-length" in reply.headers and method != "HEAD":
            assert int(reply.headers["content-length"]) == len(reply.body)
        wanted, routes = {"HEAD": "GET"}.get(method, method), routes_of(path)
        if not any(wanted in route.scopes for route in routes):
            assert reply.status == (405 if routes else 404)
            if method != "HEAD":
                self.validator("Problem").validate(reply.json)
            return
        template = choose(routes, method)[0].template
        response = self.operation(template, wanted)["responses"].get(str(reply.status))
        assert response is not None, f"{method} {template} has no status {reply.status} in the document"
        assert set(map(str.lower, response.get("headers", {}))) <= reply.headers.keys() or reply.status >= 400
        self._check_body(response.get("content", {}), reply, method)

    def _check_body(self, content: dict[str, Any], reply: Reply, method: str) -> None:
        if not content or method == "HEAD":
            assert reply.body == b""
            return
        media_type = reply.headers["content-type"].partition(";")[0]
        documented = content.get(media_type) or content["*/*"]
        schema = documented["schema"]
        names = [one["$ref"].rpartition("/")[2] for one in schema.get("oneOf", [schema]) if "$ref" in one]
        if names and sum(self.validator(name).is_valid(reply.json) for name in names) != 1:
            self.validator(names[0]).validate(reply.json)
            raise AssertionError(f"the answer fits several of the schemas {names}")


@cache
def page_calls(folder: Path) -> frozenset[tuple[str, str]]:
    """Return method and template of the calls of the page's scripts, with ``{}`` for parameters."""
    calls = set[tuple[str, str]]()
    for script in folder.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        for verb, where in re.findall(r"(?<![.\w])(get|post|remove)\((path\([^)]*\)|\"[a-z/]+\")", text):
            if where.startswith("path("):
                words = [word.strip() for word in where[5:-1].split(",")]
                template = "/".join(word.strip('"') if word.startswith('"') else "{}" for word in words)
            else:
                template = where.strip('"')
            calls.add(({"get": "GET", "post": "POST", "remove": "DELETE"}[verb], f"/v1/{template}"))
    return frozenset(calls)


def limited(**limits: Any) -> Limits:
    """Return the limits of the tests with some others."""
    return replace(LIMITS, **limits)
