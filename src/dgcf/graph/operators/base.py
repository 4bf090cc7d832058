"""The protocol of propagation operators, and the operator of a stored matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from dgcf.graph.edge_dropout import EdgeDrop
from dgcf.graph.kernels import triton_runs
from dgcf.graph.kernels.cpu.sparse import product, transpose
from dgcf.graph.operators.stored import StoredMatrix

if TYPE_CHECKING:
    from dgcf.graph.kernels.cuda.sparse import GpuMatrix


class LinearMap(Protocol):
    """A linear map of node embeddings, (N, dim) to (N, dim) or to some rows, and its exact adjoint."""

    dtype: torch.dtype
    device: torch.device

    def to(self, device: torch.device, dtype: torch.dtype) -> Any:
        """Return the same map on another device or in another precision."""

    def forward(self, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        """Return ``M x`` or ``(M x)[rows]``."""

    def adjoint(self, grad: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        """Return ``Mᵀ grad`` or ``M[rows]ᵀ grad``, with the draws of the forward product."""


class StoredMap:
    """The map of a stored matrix: ``L + Lc + I`` merged, one product per layer."""

    gpu_matrix: GpuMatrix | None = None
    """The matrix in the layout of the Triton kernels, where they run."""

    def __init__(self, matrix: StoredMatrix) -> None:
        self.matrix = matrix
        self.dtype, self.device = matrix.dtype, matrix.device

    def to(self, device: torch.device, dtype: torch.dtype) -> StoredMap:
        return stored_map(self.matrix.to(device, dtype))

    def forward(self, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        if rows is None:
            return _rescaled(self.matrix.product(x, self.matrix.weights(drop)), drop)
        return _rescaled(product(self.matrix.rows(rows, drop), x), drop)

    def adjoint(self, grad: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        if rows is None:
            return _rescaled(self.matrix.product(grad, self.matrix.weights(drop, adjoint=True)), drop)
        return _rescaled(product(transpose(self.matrix.rows(rows, drop)), grad), drop)


def _rescaled(result: Tensor, drop: EdgeDrop | None) -> Tensor:
    """Rescale the result in place: N · dim numbers instead of a copy of the stored entries."""
    return result if drop is None else result.mul_(drop.rescale)


def stored_map(matrix: StoredMatrix) -> StoredMap:
    """Return the map of a stored matrix with the fastest products of its device."""
    if not triton_runs(matrix.device, matrix.dtype):
        return StoredMap(matrix)
    from dgcf.graph.kernels.cuda.sparse import GpuMap

    return GpuMap(matrix)
