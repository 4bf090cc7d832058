"""Sums of rows, dense and sparse, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgcf.ranking.weights import DenseWeights, SparseWeights, WeightMatrix


def both(values: NDArray[np.float32]) -> list[WeightMatrix]:
    """The same numbers, dense and sparse."""
    row, column = np.nonzero(values)
    indptr = np.concatenate([[0], np.cumsum((values != 0).sum(1))]).astype(np.int64)
    return [DenseWeights(values), SparseWeights(indptr, column.astype(np.int32), values[row, column], values.shape[1])]


@st.composite
def matrices(draw: st.DrawFn) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    n_rows, n_columns = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = np.where(rng.random((n_rows, n_columns)) < 0.4, rng.normal(size=(n_rows, n_columns)), 0)
    rows = np.flatnonzero(rng.random(n_rows) < draw(st.sampled_from([0.0, 0.3, 1.0])))
    return values.astype(np.float32), rows


@given(matrices())
def test_sums_and_columns_equal_plain_loops(question: tuple[NDArray[Any], NDArray[Any]]) -> None:
    values, rows = question
    expected = np.zeros(values.shape[1])
    for row in rows:
        expected += values[row]
    for matrix in both(values):
        assert matrix.shape == values.shape
        assert matrix.sum_rows(rows).dtype == np.float64
        np.testing.assert_allclose(matrix.sum_rows(rows), expected, rtol=1e-14, atol=1e-14)
        for column in range(values.shape[1]):
            np.testing.assert_array_equal(matrix.column(rows, column), values[rows, column])


@pytest.mark.parametrize("kind", [0, 1], ids=["dense", "sparse"])
def test_sums_are_float64(kind: int) -> None:
    """In float32 the small number would be lost."""
    matrix = both(np.array([[2.0**24], [1.0], [-(2.0**24)]], dtype=np.float32))[kind]
    assert matrix.sum_rows(np.arange(3)).tolist() == [1.0]


@given(matrices())
def test_largest_is_the_largest_absolute_value_of_each_row(question: tuple[NDArray[Any], NDArray[Any]]) -> None:
    values, _ = question
    values[0] = 0
    for matrix in both(values):
        assert matrix.largest.dtype == np.float64
        np.testing.assert_array_equal(matrix.largest, np.abs(values).max(1))


@given(matrices(), st.integers(0, 3))
def test_empty_rows_and_columns_at_the_end_change_no_weight(
    question: tuple[NDArray[Any], NDArray[Any]], more: int
) -> None:
    values, rows = question
    n_rows, n_columns = values.shape
    sparse = both(values)[1]
    assert isinstance(sparse, SparseWeights)
    wider = sparse.with_empty(more)
    assert wider.shape == (n_rows + more, n_columns + more)
    np.testing.assert_array_equal(wider.sum_rows(rows)[:n_columns], sparse.sum_rows(rows))
    assert not wider.sum_rows(np.arange(n_rows, n_rows + more)).any()
    assert not wider.sum_rows(np.arange(n_rows))[n_columns:].any()
    np.testing.assert_array_equal(wider.largest, [*sparse.largest, *[0.0] * more])
