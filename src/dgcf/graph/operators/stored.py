"""A symmetric sparse matrix as torch tensors: full and row-restricted products and adjoints, with drop-edge inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from dgcf.graph.edge_dropout import CHUNK, EdgeDrop, hash_tensor
from dgcf.graph.kernels.cpu.sparse import CSR, product, take_rows
from dgcf.graph.kernels.cpu.threads import ahead

# Rows of a sparse matrix must be cut out of it before they can be multiplied. Up to about this share of rows it pays
# (Gowalla, 27 %: 15 ms against 40 for a layer and its adjoint), above it does not (ML-100K, 81 %: 1.5 against 0.8).
WORTH_CUTTING = 0.3


class StoredMatrix:
    """``M = Mᵀ`` in CSR with sorted indices, (N, N). Entry e is the e-th stored one, row after row.

    Without drop-edge the matrix is its own transpose. With it, the transpose needs for the entry (i, j) the draw of
    (j, i): ``mirror[e]`` is its number. The exact float64 values stay beside, so any precision is one cast away.
    """

    def __init__(self, matrix: csr_array, dtype: torch.dtype, device: torch.device) -> None:
        self.exact = matrix
        self.dtype, self.device = dtype, device
        small = max(matrix.nnz, matrix.shape[0]) <= np.iinfo(np.int32).max
        index_type = np.int32 if small else np.int64
        self.offsets = torch.from_numpy(matrix.indptr.astype(index_type)).to(device)
        self.indices = torch.from_numpy(matrix.indices.astype(index_type)).to(device)
        self.values = torch.from_numpy(matrix.data).to(device=device, dtype=dtype)
        self._hashes: dict[str, Tensor] = {}
        self._spare: list[Tensor] = []

    def to(self, device: torch.device, dtype: torch.dtype) -> StoredMatrix:
        """The same matrix elsewhere, or in another precision (from the exact values, never from rounded ones)."""
        if device == self.device and dtype == self.dtype:
            return self
        return StoredMatrix(self.exact, dtype, device)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors that a product reads."""
        return sum(part.nbytes for part in (self.offsets, self.indices, self.values))

    @cached_property
    def mirror(self) -> NDArray[np.int64]:
        """The number of the mirrored entry of each entry, (nnz,)."""
        numbers = np.arange(self.exact.nnz, dtype=np.int64)
        numbered = csr_array((numbers, self.exact.indices, self.exact.indptr), shape=self.exact.shape)
        return np.asarray(numbered.T.tocsr().data)

    def hashes(self, kind: str, *, adjoint: bool = False) -> Tensor:
        """The scrambled edge numbers that a draw needs, (nnz,); made once.

        Entries: their own numbers, or in the adjoint those of the mirrored entries. Edges: the lesser of the two.
        """
        numbering = "edges" if kind == "edges" else "mirrored" if adjoint else "entries"
        if numbering not in self._hashes:
            numbers = self.mirror if numbering == "mirrored" else np.arange(self.exact.nnz, dtype=np.int64)
            if numbering == "edges":
                numbers = np.minimum(numbers, self.mirror)
            self._hashes[numbering] = hash_tensor(numbers, self.device)
        return self._hashes[numbering]

    def weights(self, drop: EdgeDrop | None, *, adjoint: bool = False) -> Tensor:
        """The values under drop-edge, of the matrix or of its transpose; kept ones are not yet rescaled."""
        if drop is None:
            return self.values
        return drop.mask(self.values, self.hashes(drop.kind, adjoint=adjoint))

    def drawing(self, drops: Sequence[EdgeDrop | None], *, adjoint: bool = False) -> Callable[[], list[CSR]]:
        """Begin to draw the matrix, or its transpose, under some draws, on the CPU: call what is given to have them.

        Other threads draw from now on, if they are idle; the one that calls helps to finish. Matrices that are no
        longer needed may be given back to ``reuse``.
        """
        hashes = {drop: self.hashes(drop.kind, adjoint=adjoint) for drop in drops if drop is not None}
        weights = {drop: self._spare.pop() if self._spare else torch.empty_like(self.values) for drop in hashes}

        def draw(drop: EdgeDrop, part: slice) -> None:
            drop.mask(self.values[part], hashes[drop][part], out=weights[drop][part])

        parts = [slice(first, first + CHUNK) for first in range(0, len(self.values), CHUNK)]
        begun = ahead([partial(draw, drop, part) for drop in weights for part in parts])

        def finish() -> list[CSR]:
            begun.join()
            return [self._with(self.values if drop is None else weights[drop]) for drop in drops]

        return finish

    def reuse(self, drawn: Iterable[CSR]) -> None:
        """Draw next time where these were drawn: new memory would have to be cleared first."""
        self._spare += {id(M.values): M.values for M in drawn if M.values is not self.values}.values()

    def product(self, x: Tensor, weights: Tensor) -> Tensor:
        """``M x`` with the given weights for M, (N, dim)."""
        return product(self._with(weights), x)

    def worth_cutting(self, n_rows: int) -> bool:
        """Whether the product of so many rows is less work than that of all, the cutting included."""
        return n_rows <= WORTH_CUTTING * (len(self.offsets) - 1)

    def rows(self, rows: Tensor, drop: EdgeDrop | None) -> CSR:
        """The given rows under drop-edge, (len(rows), N); costs as much as they hold entries."""
        chosen = take_rows(self._with(self.values), rows)
        if drop is None:
            return chosen
        hashes = take_rows(self._with(self.hashes(drop.kind)), rows).values
        return chosen._replace(values=drop.mask(chosen.values, hashes))

    def _with(self, values: Tensor) -> CSR:
        return CSR(self.offsets, self.indices, values, self.exact.shape[1])
