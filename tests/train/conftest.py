"""What the tests of training share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.train import Run
from tests.train.planted_tastes import planted_tastes


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tensors this small are not worth a second thread, least of all where several tests run at once."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    return planted_tastes()


@pytest.fixture
def run(tmp_path: Path, dataset: Dataset) -> Run:
    from tests.train.test_run_folder import recipe_for

    return Run.create(tmp_path / "run", dataset, recipe_for(), seed=3, device="cpu")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run; no test changes it."""
    from tests.train.test_run_folder import fit, recipe_for

    data = planted_tastes()
    made = Run.create(tmp_path_factory.mktemp("runs") / "whole", data, recipe_for(), seed=3, device="cpu")
    fit(data, made)
    return made.path
