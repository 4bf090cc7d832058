"""L: its values, its spectrum, and nodes without neighbours."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from scipy.sparse import csr_array

from dgcf.graph import adjacency, laplacian
from dgcf.graph.normalize import cross_degrees, degrees, inverse_sqrt
from tests.graph.conftest import dense_adjacency, dense_laplacian, interactions


@given(interactions())
def test_the_laplacian_equals_the_dense_one_and_is_symmetric_to_the_bit(R: csr_array) -> None:
    L = laplacian(adjacency(R)).toarray()
    np.testing.assert_allclose(L, dense_laplacian(R), rtol=1e-14, atol=0)
    assert np.array_equal(L, L.T)


@given(interactions())
def test_the_spectrum_lies_in_minus_one_to_one_and_reaches_both_ends(R: csr_array) -> None:
    spectrum = np.linalg.eigvalsh(laplacian(adjacency(R)).toarray())
    assert abs(spectrum[0] + 1) < 1e-12
    assert abs(spectrum[-1] - 1) < 1e-12


@given(interactions())
def test_cross_degrees_are_the_row_sums_of_the_square(R: csr_array) -> None:
    A = dense_adjacency(R)
    assert np.array_equal(cross_degrees(adjacency(R)), (A @ A).sum(axis=1))


def test_isolated_nodes_have_empty_rows_and_columns() -> None:
    A = adjacency(csr_array(np.array([[1.0, 0.0], [0.0, 0.0]])))
    assert degrees(A).tolist() == [1, 0, 1, 0]
    assert inverse_sqrt(degrees(A)).tolist() == [1, 0, 1, 0]
    L = laplacian(A).toarray()
    assert not L[[1, 3]].any()
    assert not L[:, [1, 3]].any()
