"""Checks of the interactions R and the adjacency matrix A against dense NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import coo_array, csr_array, csr_matrix

from dgcf.data import Pairs
from dgcf.errors import DataError
from dgcf.graph import adjacency, interaction_matrix
from tests.graph.conftest import dense_adjacency, interactions


@given(interactions())
def test_the_adjacency_equals_the_dense_one(R: csr_array) -> None:
    A = adjacency(interaction_matrix(R))
    assert np.array_equal(A.toarray(), dense_adjacency(R))
    assert A.has_sorted_indices
    assert A.indices.dtype == np.int32


def test_matrix_is_binarised_and_stored_zeros_are_dropped() -> None:
    values = [1.0, 1.0, 5.0, 0.0]
    R = coo_array((values, ([0, 0, 1, 1], [2, 2, 0, 1])), shape=(2, 3))
    assert np.array_equal(interaction_matrix(R).toarray(), [[0, 0, 1], [1, 0, 0]])


def test_input_matrix_is_not_modified() -> None:
    R = csr_matrix(np.array([[2.0, 0.0], [3.0, 4.0]]))
    interaction_matrix(R)
    assert np.array_equal(R.toarray(), [[2, 0], [3, 4]])


@pytest.mark.parametrize(
    ("R", "sentence"),
    [
        (csr_array((4, 5)), "holds no interaction"),
        (csr_array((0, 0)), "holds no interaction"),
        (csr_array(np.array([[np.nan, 1.0]])), "holds the value nan"),
        (csr_array(np.array([[np.inf, 1.0]])), "holds the value inf"),
        (csr_array(np.array([[-1.0, 1.0]])), "holds the value -1.0"),
        (np.ones((2, 2)), "is a ndarray|are a ndarray"),
        (None, "are a NoneType"),
    ],
)
def test_invalid_interactions_are_refused(R: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        interaction_matrix(R)


@given(interactions())
def test_pairs_and_their_matrix_give_the_same_interactions(R: csr_array) -> None:
    pairs = Pairs.from_indices(*R.nonzero(), *R.shape)
    from_pairs, from_matrix = interaction_matrix(pairs), interaction_matrix(pairs.to_scipy())
    for name in ("data", "indices", "indptr"):
        one, other = getattr(from_pairs, name), getattr(from_matrix, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    with pytest.raises(DataError, match="holds no interaction"):
        interaction_matrix(Pairs.empty(2, 3))
