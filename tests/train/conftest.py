"""What the tests of training share."""

from __future__ import annotations

import pytest
import torch

from dgcf.data.dataset import Dataset
from tests.train.planted_tastes import planted_tastes


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tensors this small are not worth a second thread, least of all where several tests run at once."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    return planted_tastes()
