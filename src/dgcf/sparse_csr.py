"""Sparse CSR tensors of torch, without its warnings."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


def sparse_csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a sparse CSR tensor of arrays that are known to be valid.

    torch warns that such tensors are in beta, and, in some versions, that it does not check them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)
