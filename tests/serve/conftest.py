"""What the tests of the service share: a small model with titles, trained once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres
from tests.serve.guarding import Bench
from tests.serve.in_process import InProcess
from tests.serve.models import small_model
from tests.serve.stores import BACKENDS, Where, new_schema


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved recommender of planted tastes: 150 users u00000…, 160 films with titles."""
    return small_model(tmp_path_factory.mktemp("model") / "films.dgcf")


@pytest.fixture(scope="module")
def service(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """The HTTP application over the small model; the tests of a module share its events."""
    with InProcess(model_file, tmp_path_factory.mktemp("data")) as service:
        yield service


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Make a guard around a small application, with these settings."""
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(**settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def database() -> Iterator[postgres.Server]:
    """A PostgreSQL server; tests take schemas of their own."""
    with postgres.server() as server:
        yield server


@pytest.fixture(params=BACKENDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    """The place of a new event store: a file, or a schema of a database."""
    if request.param == "file":
        return tmp_path / "data" / "events.sqlite3"
    server: postgres.Server = request.getfixturevalue("database")
    return new_schema(server.dsn)
