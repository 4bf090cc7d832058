"""Sparse products, row slices and transposes in torch and SciPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import embedding_bag


class CSR(NamedTuple):
    """A sparse matrix by rows: entry e of row r, ``offsets[r] ≤ e < offsets[r+1]``, is in column ``indices[e]``."""

    offsets: Tensor
    indices: Tensor
    values: Tensor
    n_cols: int


def product(M: CSR, x: Tensor) -> Tensor:
    """Return ``M x``, (rows, dim).

    ``embedding_bag`` is a CSR product whose inner loop is vectorised over the width; it sums in float32 for bfloat16.
    """
    if len(M.offsets) == 1:
        return x.new_zeros(0, x.shape[1])
    return embedding_bag(M.indices, x, M.offsets, mode="sum", per_sample_weights=M.values, include_last_offset=True)


def take_rows(M: CSR, rows: Tensor) -> CSR:
    """Return ``M[rows]``, in order and with repeats, in time linear in its entries."""
    if M.offsets.device.type == "cpu":
        return _from_scipy(_to_scipy(M)[rows.numpy()], M)
    return take_rows_by_gathering(M, rows)


def take_rows_by_gathering(M: CSR, rows: Tensor) -> CSR:
    """Return ``M[rows]`` in torch operations, for devices that SciPy cannot use."""
    starts = M.offsets[rows]
    lengths = (M.offsets[rows + 1] - starts).long()
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    entries = torch.repeat_interleave(starts.long() - offsets[:-1], lengths)
    entries += torch.arange(len(entries), device=entries.device)
    return CSR(offsets.to(M.offsets.dtype), M.indices[entries], M.values[entries], M.n_cols)


def transpose(M: CSR) -> CSR:
    """Return ``Mᵀ``, on the CPU in time linear in its entries."""
    if M.offsets.device.type == "cpu":
        by_column = _to_scipy(M).tocsc()
        parts = (by_column.data, by_column.indices, by_column.indptr)
        return _from_scipy(csr_array(parts, shape=(M.n_cols, len(M.offsets) - 1)), M)
    return transpose_by_sorting(M)


def transpose_by_sorting(M: CSR) -> CSR:
    """Return ``Mᵀ`` in torch operations."""
    n_rows = len(M.offsets) - 1
    order = torch.argsort(M.indices, stable=True)
    counts = torch.bincount(M.indices, minlength=M.n_cols)
    rows = torch.repeat_interleave(torch.arange(n_rows, device=order.device), torch.diff(M.offsets).long())
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(M.offsets.dtype)
    return CSR(offsets, rows[order].to(M.indices.dtype), M.values[order], n_rows)


def bits(values: Tensor) -> NDArray[Any]:
    """Return the integer bits of CPU values, sharing their memory: NumPy and SciPy have no bfloat16."""
    as_integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return np.asarray(values.view(as_integers).numpy())


def _to_scipy(M: CSR) -> csr_array:
    shape = (len(M.offsets) - 1, M.n_cols)
    return csr_array((bits(M.values), M.indices.numpy(), M.offsets.numpy()), shape=shape)


def _from_scipy(matrix: csr_array, like: CSR) -> CSR:
    index_type = like.indices.numpy().dtype
    return CSR(
        torch.from_numpy(matrix.indptr.astype(index_type, copy=False)),
        torch.from_numpy(matrix.indices.astype(index_type, copy=False)),
        torch.from_numpy(matrix.data).view(like.values.dtype),
        matrix.shape[1],
    )
