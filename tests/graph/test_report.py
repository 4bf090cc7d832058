"""The graph report: counts, memory and histogram against dense NumPy and the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array

from dgcf.graph import PropagationSpec, build_propagation, interaction_matrix
from dgcf.graph.theory.report import graph_report, value_histogram
from tests.graph.conftest import dense_cross, interactions, real


@given(interactions())
def test_the_histogram_counts_every_entry_in_its_bin(R: csr_array) -> None:
    found = value_histogram(interaction_matrix(R))
    values = dense_cross(R)[dense_cross(R) > 0]
    assert found.total == len(values)
    assert found.counts[0] > 0
    # A value of exactly 1 is in the last bin, whose upper edge it is.
    edges = np.append(found.edges[:-1] * (1 - 1e-12), found.edges[-1])
    assert np.array_equal(np.histogram(values, edges)[0], found.counts)


@given(interactions())
def test_reported_memory_equals_that_of_the_operators(R: csr_array) -> None:
    memory = graph_report(R).memory_bytes
    specs: dict[str, Any] = {
        "none": PropagationSpec(cross="none"),
        "filtered": PropagationSpec(),
        "matrix-free": PropagationSpec(cross="matrix-free"),
    }
    for form, spec in specs.items():
        assert memory[form] == build_propagation(R, spec).nbytes
    unfiltered = build_propagation(R, PropagationSpec(epsilon=0.0))
    isolated = sum(R.shape) - np.count_nonzero(unfiltered.matrix().toarray().sum(axis=1) > 1)
    assert memory["unfiltered"] == unfiltered.nbytes - 8 * isolated


@pytest.mark.data("deoscirec/ml-1m")
def test_the_size_of_the_unfiltered_matrix_on_ml_1m() -> None:
    assert value_histogram(interaction_matrix(real("deoscirec/ml-1m"))).total == 15_996_773
