"""The unfiltered cross-hop operator as two products with A, without building A²."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from dgcf.graph.edge_dropout import EdgeDrop, hash_tensor
from dgcf.graph.normalize import cross_degrees, degrees, inverse_sqrt
from dgcf.graph.operators.base import StoredMap, stored_map
from dgcf.graph.operators.stored import StoredMatrix
from dgcf.graph.spec import PropagationSpec

Floats = NDArray[np.float64]
Product = Callable[[Tensor, Tensor | None, EdgeDrop | None], Tensor]


class MatrixFree:
    """``M x = d ⊙ A(d ⊙ x) + s ⊙ A(A(s ⊙ x)) + g ⊙ x`` with ``d = D^-½``, ``s = Dc^-½`` and a diagonal g.

    g is 1 for the self-loop, minus the diagonal of Lc, ``d_i / dc_i``, if the spec excludes it.

    Edge dropout thins A itself, one draw for its three products, and the diagonal: ``Â = A ∘ mask / (1-p)``. A two-hop
    path needs both of its edges, so ``Â Â`` drops whole paths, not entries of Lc one by one. Its mean is A².
    """

    def __init__(self, A: StoredMap, direct_scale: Floats | None, cross_scale: Floats, diagonal: Floats) -> None:
        self.A, self.dtype, self.device = A, A.dtype, A.device
        self._exact = (direct_scale, cross_scale, diagonal)
        self.direct_scale = None if direct_scale is None else self._column(direct_scale)
        self.cross_scale = self._column(cross_scale)
        self.diagonal = self._column(diagonal)
        first = A.matrix.exact.nnz
        self._diagonal_hashes = hash_tensor(np.arange(first, first + len(diagonal)), self.device)

    @classmethod
    def build(cls, A: csr_array, spec: PropagationSpec, dtype: torch.dtype, device: torch.device) -> MatrixFree:
        """Return the operator of a spec on the adjacency A, (N, N)."""
        degree, cross_degree = degrees(A), cross_degrees(A)
        own = np.divide(degree, cross_degree, out=np.zeros_like(degree), where=cross_degree > 0)
        diagonal = np.full(len(degree), float(spec.self_loop))
        if not spec.cross_diagonal:
            diagonal -= own
        elif spec.cross_below_one:
            diagonal -= np.where(own < 1.0, 0.0, own)
        direct_scale = inverse_sqrt(degree) if spec.direct else None
        return cls(stored_map(StoredMatrix(A, dtype, device)), direct_scale, inverse_sqrt(cross_degree), diagonal)

    def to(self, device: torch.device, dtype: torch.dtype) -> MatrixFree:
        return MatrixFree(self.A.to(device, dtype), *self._exact)

    def forward(self, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        if rows is None:
            return self._whole(x, drop, self.A.forward)
        neighbours = self._neighbours(rows)
        # The first product is needed only at the neighbours of these rows.
        inner = torch.zeros_like(x)
        inner[neighbours] = self.A.forward(self.cross_scale * x, neighbours, drop)
        result = self.cross_scale[rows] * self.A.forward(inner, rows, drop)
        if self.direct_scale is not None:
            result += self.direct_scale[rows] * self.A.forward(self.direct_scale * x, rows, drop)
        return result.add_(self._thinned_diagonal(drop)[rows] * x[rows])

    def adjoint(self, grad: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        if rows is None:
            return self._whole(grad, drop, self.A.adjoint)
        neighbours = self._neighbours(rows)
        inner = self.A.adjoint(self.cross_scale[rows] * grad, rows, drop)
        result = self.cross_scale * self.A.adjoint(inner[neighbours], neighbours, drop)
        if self.direct_scale is not None:
            result += self.direct_scale * self.A.adjoint(self.direct_scale[rows] * grad, rows, drop)
        # Not index_add_, which adds repeats in no fixed order on a GPU.
        return result.index_put_((rows,), self._thinned_diagonal(drop)[rows] * grad, accumulate=True)

    def _whole(self, x: Tensor, drop: EdgeDrop | None, product: Product) -> Tensor:
        """Return the full product; all scales are diagonal, so the adjoint differs only in the mirrored draws of A."""
        result = self.cross_scale * product(product(self.cross_scale * x, None, drop), None, drop)
        if self.direct_scale is not None:
            result += self.direct_scale * product(self.direct_scale * x, None, drop)
        return result.addcmul_(self._thinned_diagonal(drop), x)

    def _neighbours(self, rows: Tensor) -> Tensor:
        """Return the distinct neighbours of the given rows."""
        neighbours: Tensor = torch.unique(self.A.matrix.rows(rows, None).indices).long()
        return neighbours

    def _thinned_diagonal(self, drop: EdgeDrop | None) -> Tensor:
        """Return g under edge dropout, (N, 1); its entries are numbered after those of A."""
        if drop is None:
            return self.diagonal
        return drop.mask(self.diagonal[:, 0], self._diagonal_hashes)[:, None].mul_(drop.rescale)

    def _column(self, scale: Floats) -> Tensor:
        return torch.from_numpy(scale[:, None].copy()).to(device=self.device, dtype=self.dtype)
