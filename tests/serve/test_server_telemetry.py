"""Traces of OpenTelemetry: spans without ids, sent to a collector on loopback, and nothing imported without one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dgcf.serve.server.telemetry import Traced
from tests.serve.service import Service, wait_for

pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra telemetry")
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_span_has_the_template_and_the_trace_of_the_client() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] |= {"route": "/v1/recommend/{user}", "request_id": "abc"}
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        pass

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/recommend/anna",
        "query_string": b"k=3",
        "state": {},
        "headers": [
            (b"traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode()),
            (b"authorization", b"Bearer secret-token"),
        ],
    }
    asyncio.run(Traced(app, provider)(scope, None, send))  # type: ignore[arg-type]
    (span,) = memory.get_finished_spans()
    assert span.name == "GET /v1/recommend/{user}"
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.attributes["http.response.status_code"] == 503
    assert not span.status.is_ok
    text = span.to_json()
    assert "anna" not in text
    assert "secret" not in text


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a collector, and the requests that it gets."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join(10)


def test_service_sends_its_traces_to_a_collector(
    model_file: Path, tmp_path: Path, collector: tuple[str, list[bytes]]
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra telemetry")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    address, got = collector
    with Service(model_file, tmp_path / "data", environment={"OTEL_EXPORTER_OTLP_ENDPOINT": address}) as service:
        assert service.get("/v1/recommend/u00001").status_code == 200
        service.stop()
    wait_for(lambda: bool(got))
    spans = [
        span
        for body in got
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert "GET /v1/recommend/{user}" in [span.name for span in spans]
    assert not any(b"u00001" in body for body in got)


def test_without_an_endpoint_nothing_is_imported_and_without_the_extra_it_is_logged() -> None:
    code = """
import json, sys
from dgcf.serve.server.telemetry import with_traces
class Log:
    def write(self, *words, **fields): print(json.dumps([words, fields]))
app = object()
assert with_traces(app, Log(), {})[0] is app
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
sys.modules["opentelemetry"] = None
assert with_traces(app, Log(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})[0] is app
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    (event, level), fields = json.loads(done.stdout)
    assert (event, level) == ("no traces", "warning")
    assert "pip install 'dgcf[telemetry]'" in fields["reason"]
