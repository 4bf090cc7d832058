"""Reference values for the tests of the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.sparse import csr_array


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tensors this small do not profit from a second thread."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Reference values in float64 from an independent dense implementation."""
    path = Path(__file__).parents[1] / "golden" / "propagation.json"
    return dict(json.loads(path.read_text()))


@pytest.fixture(scope="session")
def golden_matrix(golden: dict[str, Any]) -> csr_array:
    users, items = zip(*golden["pairs"], strict=True)
    shape = (golden["n_users"], golden["n_items"])
    return csr_array(([1.0] * len(users), (list(users), list(items))), shape=shape)
