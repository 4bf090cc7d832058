"""Random graphs, their dense oracles, reference values and real data for the tests of the graph package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.data import load

Dense = NDArray[np.float64]


@st.composite
def interactions(draw: st.DrawFn, max_users: int = 9, max_items: int = 9) -> csr_array:
    """A random bipartite graph: any density, isolated nodes, hubs and ties included; at least one pair."""
    shape = (draw(st.integers(1, max_users)), draw(st.integers(1, max_items)))
    density = draw(st.sampled_from([0.1, 0.3, 0.6, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = rng.random(shape) < density * rng.random(shape[1]) ** draw(st.sampled_from([0.0, 2.0]))
    pairs[rng.integers(shape[0]), rng.integers(shape[1])] = True
    return csr_array(pairs.astype(np.float64))


def dense_adjacency(R: csr_array) -> Dense:
    """A of the paper, written out."""
    users, items = R.shape
    return np.block([[np.zeros((users, users)), R.toarray()], [R.toarray().T, np.zeros((items, items))]])


def dense_laplacian(R: csr_array) -> Dense:
    """``D^-½ A D^-½`` with explicit diagonal matrices."""
    return _normalised(dense_adjacency(R))


def dense_renormalised(R: csr_array) -> Dense:
    """``(D+I)^-½ (A+I) (D+I)^-½`` with explicit diagonal matrices."""
    return _normalised(dense_adjacency(R) + np.eye(sum(R.shape)))


def dense_cross(R: csr_array) -> Dense:
    """``Dc^-½ A² Dc^-½``: each value computed as the operator rounds it, so that ties are ties here too."""
    C = dense_adjacency(R) @ dense_adjacency(R)
    degree = C.sum(axis=1)
    scale = np.sqrt(np.outer(degree, degree))
    return np.divide(C, scale, out=np.zeros_like(C), where=scale > 0)


def _normalised(matrix: Dense) -> Dense:
    degree = matrix.sum(axis=1)
    scale = np.diag([1.0 / np.sqrt(value) if value else 0.0 for value in degree])
    return np.asarray(scale @ matrix @ scale)


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Reference values in float64 from an independent dense implementation."""
    return dict(json.loads((Path(__file__).parents[1] / "golden" / "propagation.json").read_text()))


@pytest.fixture(scope="session")
def golden_matrix(golden: dict[str, Any]) -> csr_array:
    """The interactions of the reference values, (7, 9)."""
    users, items = np.array(golden["pairs"]).T
    return csr_array((np.ones(len(users)), (users, items)), shape=(golden["n_users"], golden["n_items"]))


def real(name: str) -> csr_array:
    """The training interactions of a public dataset; the test that asks is marked with its name."""
    return load(name).train.to_scipy()


@pytest.fixture(scope="session")
def clustered() -> csr_array:
    """400 users, 300 items, steep popularity: large enough for many blocks, hubs and several rises of ε."""
    rng = np.random.default_rng(5)
    popularity = np.arange(1, 301) ** -0.9
    items = rng.choice(300, size=6000, p=popularity / popularity.sum())
    users = rng.integers(0, 400, size=6000)
    return csr_array((np.ones(6000), (users, items)), shape=(400, 300))
