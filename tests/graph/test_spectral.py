"""SpectralCF's filter, by Lanczos and by LAPACK, against the dense decomposition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dgcf.errors import ConfigError
from dgcf.graph import EdgeDrop, Propagation, build_propagation, interaction_matrix
from dgcf.graph.operators.spectral import LowFrequencies, spectral_memory
from dgcf.graph.spec import DIRECT
from tests.graph.conftest import Dense, dense_laplacian, interactions

F64 = torch.float64


def filtered(R: csr_array, count: int) -> Propagation:
    return build_propagation(R, replace(DIRECT, spectral=count)).to(dtype=F64)


def spectrum(R: csr_array) -> tuple[Dense, Dense]:
    """Frequencies, ascending, and their vectors, of the Laplacian ``I − L``."""
    frequency, U = np.linalg.eigh(np.eye(sum(R.shape)) - dense_laplacian(R))
    return frequency, U


@given(interactions())
def test_filter_of_n_frequencies_equals_filter_of_all(R: csr_array) -> None:
    n_nodes, eye = sum(R.shape), torch.eye(sum(R.shape), dtype=F64)
    every = build_propagation(R, replace(DIRECT, spectral="all")).to(dtype=F64)
    torch.testing.assert_close(filtered(R, n_nodes).apply(eye), every.apply(eye), rtol=0, atol=1e-12)
    frequency, U = spectrum(R)
    np.testing.assert_allclose(every.stored.exact.toarray(), U @ U.T + U @ np.diag(frequency) @ U.T, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def clustered_spectrum(clustered: csr_array) -> tuple[Dense, Dense]:
    """The decomposition of 700 nodes, computed once."""
    return spectrum(interaction_matrix(clustered))


@pytest.mark.parametrize("count", [5, 40, 300])
def test_lanczos_and_lapack_give_the_dense_filter(
    clustered: csr_array, clustered_spectrum: tuple[Dense, Dense], count: int
) -> None:
    """700 nodes: few frequencies come from Lanczos, many from LAPACK; the gap after each count is wide enough."""
    frequency, U = clustered_spectrum
    assert frequency[count] - frequency[count - 1] > 1e-6
    U = U[:, :count]
    expected = U @ np.diag(1 + frequency[:count]) @ U.T
    matrix = filtered(clustered, count).apply(torch.eye(700, dtype=F64))
    np.testing.assert_allclose(matrix.numpy(), expected, rtol=0, atol=1e-9)


@given(interactions(), st.data())
def test_rows_and_adjoint_equal_those_of_the_matrix(R: csr_array, data: st.DataObject) -> None:
    n_nodes = sum(R.shape)
    propagation = filtered(R, data.draw(st.integers(1, n_nodes)))
    matrix = propagation.apply(torch.eye(n_nodes, dtype=F64))
    torch.testing.assert_close(matrix, matrix.T)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, n_nodes - 1), min_size=1, max_size=9)))
    x = torch.randn(n_nodes, 3, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = torch.randn(len(rows), 3, dtype=F64, generator=torch.Generator().manual_seed(2))
    product = propagation.apply(x, rows=rows)
    torch.testing.assert_close(product, matrix[rows] @ x)
    (gradient,) = torch.autograd.grad(product, x, y)
    torch.testing.assert_close(gradient, matrix[rows].T @ y)


def test_too_many_frequencies_edge_dropout_and_matrix_are_refused(golden_matrix: csr_array) -> None:
    with pytest.raises(ConfigError, match="frequencies is 17, but a graph of 16 nodes has 16;"):
        filtered(golden_matrix, 17)
    some = filtered(golden_matrix, 4)
    with pytest.raises(ConfigError, match="no edges to drop; set edge_dropout=0"):
        some.apply(torch.zeros(16, 2, dtype=F64), drop=EdgeDrop(0.1, 0, 0))
    with pytest.raises(ConfigError, match="has no matrix"):
        _ = some.stored


def test_memory_estimate_covers_the_stored_tensors() -> None:
    held = LowFrequencies.build(csr_array(np.eye(64)), 9, torch.float32, torch.device("cpu"))
    assert spectral_memory(64, 9) >= 64 * 64 * 8 + held.vectors.nbytes + held.gains.nbytes
    assert spectral_memory(100_000, 128) == 8 * 257 * 100_000 + 12 * 128 * 100_000
