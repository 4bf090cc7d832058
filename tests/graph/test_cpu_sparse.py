"""Sparse kernels: row slices and transposes against SciPy, on all code paths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dgcf.graph import EdgeDrop, PropagationSpec, build_propagation
from dgcf.graph.kernels.cpu.sparse import (
    CSR,
    product,
    take_rows,
    take_rows_by_gathering,
    transpose,
    transpose_by_sorting,
)
from tests.graph.conftest import interactions


def kernel_matrix(R: csr_array, dtype: torch.dtype) -> CSR:
    values = torch.arange(1, R.nnz + 1).to(dtype)
    return CSR(torch.from_numpy(R.indptr), torch.from_numpy(R.indices), values, R.shape[1])


def dense(M: CSR) -> np.ndarray:
    parts = (M.values.double().numpy(), M.indices.numpy(), M.offsets.numpy())
    return np.asarray(csr_array(parts, shape=(len(M.offsets) - 1, M.n_cols)).toarray())


@pytest.mark.parametrize("take", [take_rows, take_rows_by_gathering])
@given(interactions(), st.data(), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_chosen_rows(take: Callable[..., CSR], R: csr_array, data: st.DataObject, dtype: torch.dtype) -> None:
    M = kernel_matrix(R, dtype)
    rows = data.draw(st.lists(st.integers(0, R.shape[0] - 1), max_size=12))
    found = take(M, torch.tensor(rows, dtype=torch.int64))
    assert np.array_equal(dense(found), dense(M)[rows])
    assert (found.values.dtype, found.indices.dtype, found.offsets.dtype) == (dtype, torch.int32, torch.int32)


@pytest.mark.parametrize("turn", [transpose, transpose_by_sorting])
@given(interactions(), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_the_transpose(turn: Callable[..., CSR], R: csr_array, dtype: torch.dtype) -> None:
    M = kernel_matrix(R, dtype)
    found = turn(M)
    assert np.array_equal(dense(found), dense(M).T)
    assert (found.values.dtype, found.indices.dtype, found.offsets.dtype) == (dtype, torch.int32, torch.int32)


@given(interactions(), st.integers(1, 5))
def test_the_product(R: csr_array, dim: int) -> None:
    M = kernel_matrix(R, torch.float64)
    x = torch.randn(R.shape[1], dim, dtype=torch.float64)
    np.testing.assert_allclose(product(M, x).numpy(), dense(M) @ x.numpy(), rtol=1e-13, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("cross", ["filtered", "matrix-free"])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("restricted", [False, True])
def test_gpu_and_cpu_propagation_agree(clustered: csr_array, cross: str, p: float, restricted: bool) -> None:
    """Through ``Propagation.apply``: forward, backward, chosen rows and the same draws of drop-edge."""
    propagation = build_propagation(clustered, PropagationSpec(cross=cross)).to(dtype=torch.float64)  # type: ignore[arg-type]
    drop = EdgeDrop(p, 1, 2, 3)
    rows = torch.tensor([5, 699, 5, 0, 450]) if restricted else None
    results = []
    for device in ("cpu", "cuda"):
        x = torch.ones(700, 8, dtype=torch.float64).cumsum(0).to(device).requires_grad_()
        chosen = None if rows is None else rows.to(device)
        y = propagation.to(device).apply(x, rows=chosen, drop=drop)
        y.pow(2).sum().backward()
        assert x.grad is not None
        results.append((y.detach().cpu(), x.grad.cpu()))
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-9)
