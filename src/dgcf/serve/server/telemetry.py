"""Traces of requests by OpenTelemetry, if an endpoint is set in the environment and the extra is installed.

Otherwise nothing of it is imported. A span names the template of the route, never an id, a query or a token.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dgcf.serve.server.log import Log
from dgcf.serve.server.routes import UNMATCHED
from dgcf.version import __version__

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NAME = "dgcf.serve"


def with_traces(
    app: ASGIApp, log: Log, environment: Mapping[str, str] = os.environ
) -> tuple[ASGIApp, Callable[[], Any]]:
    """Return ``app`` with traces, and a function that sends those that wait and ends; ``app`` itself without."""
    if not any(environment.get(name) for name in ENDPOINTS):
        return app, lambda: None
    try:
        trace = import_module("opentelemetry.sdk.trace")
        processor = import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor
        exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter
        resource = import_module("opentelemetry.sdk.resources").Resource
    except ImportError as problem:
        reason = f"{problem.name} is not installed; install it with: pip install 'dgcf[telemetry]'."
        log.write("no traces", "warning", reason=reason)
        return app, lambda: None
    service = {"service.name": environment.get("OTEL_SERVICE_NAME", "dgcf"), "service.version": __version__}
    provider = trace.TracerProvider(resource=resource.create(service))
    provider.add_span_processor(processor(exporter()))
    return Traced(app, provider), provider.shutdown


class Traced:
    """Wraps the guard: a span for each request, within the trace that the client names."""

    def __init__(self, app: ASGIApp, provider: Any) -> None:
        self._app = app
        self._tracer = provider.get_tracer(_NAME, __version__)
        api = import_module("opentelemetry.trace")
        self._server, self._status, self._error = api.SpanKind.SERVER, api.Status, api.StatusCode.ERROR
        self._context = import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        method, status = scope["method"], 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        span = self._tracer.start_span(method, context=self._context.extract(given), kind=self._server)
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._end(span, scope, status)

    def _end(self, span: Any, scope: Scope, status: int) -> None:
        """Name the span by its route, and end it."""
        state = scope.get("state", {})
        route = state.get("route", UNMATCHED)
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.request.method", scope["method"])
        span.set_attribute("http.route", route)
        span.set_attribute("url.scheme", scope.get("scheme", "http"))
        span.set_attribute("dgcf.request_id", state.get("request_id", ""))
        if status:
            span.set_attribute("http.response.status_code", status)
        if status >= 500 or not status:
            span.set_status(self._status(self._error))
        span.end()
