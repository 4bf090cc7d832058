"""The HTTP application: FastAPI holds the operations and their documentation, and requests go to them directly.

The path of a request is matched by the table that also decides which token it needs, so the two never disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dgcf.serve.engine.engine import Engine
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.tally import Tally
from dgcf.serve.http import openapi, problems
from dgcf.serve.http.operation import Endpoint, Operation, Service
from dgcf.serve.http.paths import EncodedPath
from dgcf.serve.http.routes import operations as all_operations
from dgcf.serve.http.routes.page import operations as page_operations
from dgcf.serve.refresh.refresher import Refresher
from dgcf.serve.server.refusal import Refusal
from dgcf.serve.server.routes import choose, routes_of
from dgcf.serve.settings import Settings


def create_app(
    engine: Engine,
    store: EventStore,
    settings: Settings,
    *,
    operations: Callable[[], dict[str, Any]],
    metrics: Callable[[], bytes],
    tally: Tally | None = None,
    refresher: Refresher | None = None,
) -> FastAPI:
    """Return the application. ``operations``: the figures of all workers; ``metrics``: the text for Prometheus.

    ``tally``: the counters of arms, those of the engine; ``refresher``: what begins a refresh.

    A ``Refusal`` that ``receive`` raises is raised again, for the server to answer.
    """
    service = Service(engine, store, settings, operations, metrics, tally or Tally(), refresher=refresher)
    app = Application(service)
    app.add([*all_operations(settings.limits), *page_operations(app.openapi)])
    return app


class Application(FastAPI):
    """FastAPI with endpoints that read requests and encode answers themselves."""

    def __init__(self, service: Service) -> None:
        super().__init__(**openapi.about(), openapi_url=None, docs_url=None, redoc_url=None)
        self._service = service
        self._operations: list[Operation] = []
        self._routes: dict[tuple[str, str], _Route] = {}

    def add(self, operations: Sequence[Operation]) -> None:
        """Add operations."""
        for operation in operations:
            route = _Route(operation, Endpoint(operation, self._service))
            self.router.routes.append(route)
            self._operations.append(operation)
            self._routes[operation.path, operation.method] = route

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            document["components"] = openapi.components(self._operations)
            self.openapi_schema = document
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        """Return what answers requests; nothing stands before the endpoints but the reading of encoded paths."""
        return EncodedPath(self._dispatch)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.router(scope, receive, send)
            return
        try:
            matched, _ = choose(routes_of(scope["path"]), scope["method"])
        except Refusal as refusal:
            await problems.refused(refusal, scope)(scope, receive, send)
            return
        method = scope["method"]
        scope["route"] = route = self._routes[matched.template, method]
        await route.handle(scope, receive, send)


class _Route(APIRoute):
    """A route that FastAPI documents, and that answers by its own endpoint."""

    def __init__(self, operation: Operation, endpoint: Endpoint) -> None:
        super().__init__(
            operation.path,
            _documented,
            methods=[operation.method],
            response_model=None,
            status_code=min(operation.answers),
            response_class=Response,
            **openapi.parts_of(operation),
        )
        self._operation = endpoint

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer or the problem; nothing if the client has gone."""
        try:
            response = await self._operation.answer(scope, receive)
        except Refusal:
            raise
        except ClientDisconnect:
            return
        except Exception as problem:
            response = problems.response(problem, scope)
        await response(scope, receive, send)


async def _documented() -> None:
    """Stand for an endpoint in the document, which says of parameters and answers only what operations say."""
