"""Generated requests that follow the OpenAPI document, and ones that break it, against the guarded application."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dgcf.serve.http.routes import operations
from dgcf.serve.http.routes.page import operations as page_operations
from dgcf.serve.server.board import Board
from dgcf.serve.server.guard import Guard
from dgcf.serve.server.log import Log
from dgcf.serve.settings import Limits
from tests.serve.in_process import InProcess

CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance, content_type_conformance]
READ, ADMIN = "read-0123456789abcdef", "admin-0123456789abcdef"
KNOWN = {"user": "u00001", "item": "i00001", "file": "app.js"}
OPERATIONS = [*operations(Limits()), *page_operations(dict)]
BREAKABLE = [operation for operation in OPERATIONS if operation.ids or operation.parameters or operation.body]
CASES = [
    *((operation.path, operation.method, GenerationMode.POSITIVE) for operation in OPERATIONS),
    *((operation.path, operation.method, GenerationMode.NEGATIVE) for operation in BREAKABLE),
]
LEAN, FULL = 6, 100
REFUSED = {401, 403, 421, 429}


@dataclass
class Target:
    """The document with the application behind it, and the statuses of its answers."""

    schema: Any
    statuses: dict[int, int] = field(default_factory=dict)

    def hold(self, path: str, method: str, mode: GenerationMode, examples: int) -> None:
        """Send generated requests of an operation, and hold every answer against the document."""

        @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
        @given(case=self.schema[path][method].as_strategy(generation_mode=mode), known=st.booleans())
        def send(case: Any, known: bool) -> None:
            if known and mode is GenerationMode.POSITIVE:
                case.path_parameters |= {name: KNOWN[name] for name in case.path_parameters.keys() & KNOWN.keys()}
            response = case.call(headers={"authorization": f"Bearer {ADMIN}"})
            self.statuses[response.status_code] = self.statuses.get(response.status_code, 0) + 1
            case.validate_response(response, checks=CHECKS)

        send()


@pytest.fixture(scope="module")
def target(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    tokens = {"read": (READ,), "admin": (ADMIN,)}
    with InProcess(model_file, tmp_path_factory.mktemp("data"), Limits(), tokens=tokens) as service:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        guard = Guard(service.app, service.settings, Board.create(1).slot(0), Log(nowhere))
        schema = schemathesis.openapi.from_dict(service.app.openapi())
        schema.app = guard
        yield Target(schema)


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_answers_follow_the_document(target: Target, path: str, method: str, mode: GenerationMode) -> None:
    target.hold(path, method, mode, LEAN)
    assert REFUSED.isdisjoint(target.statuses)


@pytest.mark.slow
def test_answers_follow_the_document_in_thousands_of_cases(target: Target) -> None:
    for path, method, mode in CASES:
        target.hold(path, method, mode, FULL)
    cases = sum(target.statuses.values())
    print(f"{cases} cases: {dict(sorted(target.statuses.items()))}")
    assert cases >= 2000
    assert {200, 201, 204, 404, 422} <= target.statuses.keys()
    assert REFUSED.isdisjoint(target.statuses)
