"""SpectralCF's filter of a propagation matrix: on all frequencies without a decomposition, on the lowest with one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import eigsh
from torch import Tensor

from dgcf.errors import ConfigError
from dgcf.graph.edge_dropout import EdgeDrop

Floats = NDArray[np.float64]
# Below this size, or above this share of the frequencies, a full decomposition costs less than Lanczos.
SMALL = 500
SHARE = 0.25


def whole_filter(matrix: csr_array) -> csr_array:
    """Return ``U Uᵀ + U Λ Uᵀ = I + (I − M) = 2I − M`` for a symmetric M: U is orthogonal, U Λ Uᵀ the Laplacian."""
    filtered = csr_array(2.0 * eye_array(matrix.shape[0], format="csr") - matrix)
    filtered.sort_indices()
    return filtered


class LowFrequencies:
    """``x ↦ U (I + Λ) Uᵀ x`` for the m lowest frequencies of the Laplacian ``I − M``; U (N, m), Λ (m,).

    The lowest eigenvalues λ of the Laplacian are the highest of M, 1 − λ. There are no edges to drop.
    """

    def __init__(self, vectors: Floats, gains: Floats, dtype: torch.dtype, device: torch.device) -> None:
        self._exact = (vectors, gains)
        self.dtype, self.device = dtype, device
        self.vectors = torch.from_numpy(vectors).to(device=device, dtype=dtype)
        self.gains = torch.from_numpy(gains[:, None]).to(device=device, dtype=dtype)

    @classmethod
    def build(cls, matrix: csr_array, count: int, dtype: torch.dtype, device: torch.device) -> LowFrequencies:
        """Decompose the symmetric M, (N, N), deterministically."""
        n_nodes = matrix.shape[0]
        if count > n_nodes:
            raise ConfigError(
                f"frequencies is {count:,}, but a graph of {n_nodes:,} nodes has {n_nodes:,}; set fewer, or all."
            )
        if _by_lanczos(n_nodes, count):
            values, vectors = eigsh(matrix, k=count, which="LA", v0=np.cos(np.arange(n_nodes)))
        else:
            values, vectors = eigh(matrix.toarray(), subset_by_index=(n_nodes - count, n_nodes - 1))
        return cls(np.ascontiguousarray(vectors), 2.0 - values, dtype, device)

    def to(self, device: torch.device, dtype: torch.dtype) -> LowFrequencies:
        return LowFrequencies(*self._exact, dtype, device)

    def forward(self, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        return self._outer(rows, drop) @ (self.gains * (self.vectors.T @ x))

    def adjoint(self, grad: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        return self.vectors @ (self.gains * (self._outer(rows, drop).T @ grad))

    def _outer(self, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        """Return U or some of its rows; edge dropout is refused."""
        if drop is not None:
            raise ConfigError(
                "a filter on some frequencies has no edges to drop; set edge_dropout=0, or take all frequencies."
            )
        return self.vectors if rows is None else self.vectors[rows]


def spectral_memory(n_nodes: int, count: int) -> int:
    """Return the peak bytes of ``LowFrequencies.build``: Lanczos' basis or the dense matrix twice, and the result."""
    basis = max(2 * count + 1, 20) * n_nodes if _by_lanczos(n_nodes, count) else 2 * n_nodes * n_nodes
    return 8 * basis + (8 + 4) * n_nodes * count


def _by_lanczos(n_nodes: int, count: int) -> bool:
    return n_nodes > SMALL and count <= SHARE * n_nodes
