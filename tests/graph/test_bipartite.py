"""R and A: what is taken, what is refused, and that the graph is the one that was meant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import coo_array, csr_array, csr_matrix

from dgcf.errors import DataError
from dgcf.graph import adjacency, interaction_matrix
from tests.graph.conftest import dense_adjacency, interactions


@given(interactions())
def test_the_adjacency_equals_the_dense_one(R: csr_array) -> None:
    A = adjacency(interaction_matrix(R))
    assert np.array_equal(A.toarray(), dense_adjacency(R))
    assert A.has_sorted_indices
    assert A.indices.dtype == np.int32


def test_repeated_pairs_and_weights_count_once_and_stored_zeros_not_at_all() -> None:
    values = [1.0, 1.0, 5.0, 0.0]
    R = coo_array((values, ([0, 0, 1, 1], [2, 2, 0, 1])), shape=(2, 3))
    assert np.array_equal(interaction_matrix(R).toarray(), [[0, 0, 1], [1, 0, 0]])


def test_the_callers_matrix_stays_as_it_was() -> None:
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
def test_what_is_no_graph_is_refused_with_a_sentence(R: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        interaction_matrix(R)
