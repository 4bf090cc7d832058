"""What the tests of the service share: a small model with titles, trained once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.guarding import Bench
from tests.serve.in_process import InProcess
from tests.serve.models import small_model


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
