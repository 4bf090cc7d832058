"""A small model to serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.models import small_model


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved recommender of planted tastes: 150 users u00000…, 160 films with titles."""
    return small_model(tmp_path_factory.mktemp("model") / "films.dgcf")
