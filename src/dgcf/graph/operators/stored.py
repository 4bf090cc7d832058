"""A symmetric sparse matrix as torch tensors, with edge dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from dgcf.graph.edge_dropout import CHUNK, EdgeDrop, hash_tensor
from dgcf.graph.kernels.cpu.sparse import CSR, product, take_rows
from dgcf.graph.kernels.cpu.threads import ahead

# Multiplying some rows alone requires cutting them out of the matrix first. Up to about this share of rows it is faster
# (Gowalla, 27 %: 15 ms against 40 for a layer and its adjoint), above it is slower (ML-100K, 81 %: 1.5 against 0.8).
WORTH_CUTTING = 0.3


class StoredMatrix:
    """``M = Mᵀ`` in CSR with sorted indices, (N, N). Entry e is the e-th stored one, row after row.

    Without edge dropout the matrix is its own transpose. With it, the transpose needs for the entry (i, j) the draw of
    (j, i). The exact float64 values are kept in ``exact``, for casts to any precision.
    """

    def __init__(self, matrix: csr_array, dtype: torch.dtype, device: torch.device) -> None:
        self.exact = matrix
        self.dtype, self.device = dtype, device
        small = max(matrix.nnz, matrix.shape[0]) <= np.iinfo(np.int32).max
        index_type = np.int32 if small else np.int64
        self.offsets = torch.from_numpy(matrix.indptr.astype(index_type)).to(device)
        self.indices = torch.from_numpy(matrix.indices.astype(index_type)).to(device)
        self.values = torch.from_numpy(matrix.data).to(device=device, dtype=dtype)
        self._spare: list[Tensor] = []

    def to(self, device: torch.device, dtype: torch.dtype) -> StoredMatrix:
        """Return the same matrix on another device or in another precision, cast from the exact values."""
        if device == self.device and dtype == self.dtype:
            return self
        return StoredMatrix(self.exact, dtype, device)

    @cached_property
    def entry_hashes(self) -> Tensor:
        """(nnz,): the hashed numbers of the entries, from which edge dropout draws."""
        return hash_tensor(np.arange(self.exact.nnz, dtype=np.int64), self.device)

    @cached_property
    def mirror_hashes(self) -> Tensor:
        """(nnz,): the same for the transpose, whose entry (i, j) has the number of (j, i)."""
        numbers = np.arange(self.exact.nnz, dtype=np.int64)
        numbered = csr_array((numbers, self.exact.indices, self.exact.indptr), shape=self.exact.shape)
        return hash_tensor(numbered.T.tocsr().data, self.device)

    def hashes(self, *, adjoint: bool = False) -> Tensor:
        """Return the hashes of the matrix or of its transpose."""
        return self.mirror_hashes if adjoint else self.entry_hashes

    def weights(self, drop: EdgeDrop | None, *, adjoint: bool = False) -> Tensor:
        """Return the values of the matrix or of its transpose under edge dropout, not yet rescaled."""
        if drop is None:
            return self.values
        return drop.mask(self.values, self.hashes(adjoint=adjoint))

    def drawing(self, drops: Sequence[EdgeDrop | None], *, adjoint: bool = False) -> Callable[[], list[CSR]]:
        """Start drawing the matrix, or its transpose, on the CPU; return a callable that gives one matrix per drop.

        Idle threads draw from now on, and the thread that calls helps to finish. Pass matrices that are no longer
        needed to ``reuse``.
        """
        hashes = {drop: self.hashes(adjoint=adjoint) for drop in drops if drop is not None}
        weights = {drop: self._spare.pop() if self._spare else torch.empty_like(self.values) for drop in hashes}

        def draw(drop: EdgeDrop, part: slice) -> None:
            drop.mask(self.values[part], hashes[drop][part], out=weights[drop][part])

        parts = [slice(first, first + CHUNK) for first in range(0, len(self.values), CHUNK)]
        begun = ahead([partial(draw, drop, part) for drop in weights for part in parts])

        def finish() -> list[CSR]:
            begun.join()
            return [self._with(self.values if drop is None else weights[drop]) for drop in drops]

        return finish

    def reuse(self, matrices: Iterable[CSR]) -> None:
        """Draw into the memory of these matrices next time: new memory would have to be cleared first."""
        self._spare += {id(M.values): M.values for M in matrices if M.values is not self.values}.values()

    def product(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return ``M x``, (N, dim), with ``weights`` in place of the values of M."""
        return product(self._with(weights), x)

    def worth_cutting(self, n_rows: int) -> bool:
        """Return whether cutting out ``n_rows`` rows and multiplying them is faster than multiplying all."""
        return n_rows <= WORTH_CUTTING * (len(self.offsets) - 1)

    def rows(self, rows: Tensor, drop: EdgeDrop | None) -> CSR:
        """Return the given rows under edge dropout, (len(rows), N), in time linear in their entries."""
        chosen = take_rows(self._with(self.values), rows)
        if drop is None:
            return chosen
        hashes = take_rows(self._with(self.entry_hashes), rows).values
        return chosen._replace(values=drop.mask(chosen.values, hashes))

    def _with(self, values: Tensor) -> CSR:
        return CSR(self.offsets, self.indices, values, self.exact.shape[1])
