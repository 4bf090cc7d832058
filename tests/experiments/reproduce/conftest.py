"""A workspace with the small recipes of `workspace`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.reproduce.workspace import Workspace, make_workspace


@pytest.fixture
def small(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)
