"""The graph report: counts, memory and histogram against dense NumPy and the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array

from dgcf.graph import Propagation, PropagationSpec, build_propagation
from dgcf.graph.operators.matrix_free import MatrixFree
from dgcf.graph.theory.report import graph_report
from tests.graph.conftest import dense_cross, interactions, real


@given(interactions())
def test_the_histogram_counts_every_entry_in_its_bin(R: csr_array) -> None:
    found = graph_report(R).histogram
    assert found is not None
    values = dense_cross(R)[dense_cross(R) > 0]
    assert found.total == len(values)
    assert found.counts[0] > 0
    # A value of exactly 1 is in the last bin, whose upper edge it is.
    edges = np.append(found.edges[:-1] * (1 - 1e-12), found.edges[-1])
    assert np.array_equal(np.histogram(values, edges)[0], found.counts)


def bytes_read(propagation: Propagation) -> int:
    """Return the bytes of the tensors that a product reads."""
    operator: Any = propagation.operator
    matrix_free = isinstance(operator, MatrixFree)
    matrix = operator.A.matrix if matrix_free else operator.matrix
    scales = [operator.direct_scale, operator.cross_scale, operator.diagonal] if matrix_free else []
    return sum(part.nbytes for part in (matrix.offsets, matrix.indices, matrix.values, *scales))


@given(interactions())
def test_reported_memory_equals_that_of_the_operators(R: csr_array) -> None:
    memory = graph_report(R).memory_bytes
    specs: dict[str, Any] = {
        "none": PropagationSpec(cross="none"),
        "filtered": PropagationSpec(),
        "matrix-free": PropagationSpec(cross="matrix-free"),
    }
    for form, spec in specs.items():
        assert memory[form] == bytes_read(build_propagation(R, spec))
    unfiltered = build_propagation(R, PropagationSpec(epsilon=0.0))
    isolated = sum(R.shape) - np.count_nonzero(unfiltered.stored.exact.toarray().sum(axis=1) > 1)
    assert memory["unfiltered"] == bytes_read(unfiltered) - 8 * isolated


@pytest.mark.data("deoscirec/ml-1m")
def test_the_size_of_the_unfiltered_matrix_on_ml_1m() -> None:
    histogram = graph_report(real("deoscirec/ml-1m")).histogram
    assert histogram is not None
    assert histogram.total == 15_996_773
