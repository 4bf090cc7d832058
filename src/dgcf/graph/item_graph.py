"""The item side of the user–item graph: the operator P = R̃ᵀR̃ between items, its polynomials and eigenvectors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from dgcf.data.pairs import Pairs
from dgcf.graph.kernels.cpu.sparse import CSR, product
from dgcf.graph.kernels.cpu.threads import together
from dgcf.graph.normalize import inverse_sqrt

EXACT_SIDE = 2048
"""Up to so many users or items the eigenvectors come from a dense matrix, exactly."""
OVERSAMPLING = 32
POWER_ITERATIONS = 8
SMALLEST = 1e-6
"""Eigenvalues below this are rounding errors of zero; their vectors are left out."""
_STRIP = 32  # columns of one product on a CPU: that many rows of a block stay in a core's cache


@dataclass(frozen=True)
class ItemGraph:
    """``P = R̃ᵀR̃`` (n_items, n_items) with ``R̃ = D_u^-½ R D_i^-½`` (n_users, n_items), R the binary training pairs.

    P is the item block of L², symmetric with eigenvalues in [0, 1]. It is never stored: a product with P is two sparse
    products, with R̃ and with its transpose.
    """

    by_user: CSR
    by_item: CSR
    degrees: Tensor
    """The number of users of each item, (n_items,) float32."""

    @classmethod
    def of(cls, pairs: Pairs, device: torch.device | str = "cpu") -> ItemGraph:
        """Return the item graph of training pairs."""
        by_user, by_item = (diags_array(inverse_sqrt(d)) for d in (pairs.user_degrees, pairs.item_degrees))
        R = csr_array(by_user @ pairs.to_scipy().astype(np.float64) @ by_item)
        degrees = torch.from_numpy(pairs.item_degrees.astype(np.float32))
        return cls(_compressed(R), _compressed(csr_array(R.T)), degrees).to(torch.device(device))

    @property
    def n_items(self) -> int:
        return len(self.degrees)

    @property
    def n_users(self) -> int:
        return self.by_item.n_cols

    @property
    def device(self) -> torch.device:
        return self.degrees.device

    def to(self, device: torch.device) -> ItemGraph:
        """Return the same graph on another device."""
        by_user, by_item = (
            CSR(M.offsets.to(device), M.indices.to(device), M.values.to(device), M.n_cols)
            for M in (self.by_user, self.by_item)
        )
        return replace(self, by_user=by_user, by_item=by_item, degrees=self.degrees.to(device))

    @cached_property
    def _times_minus_4(self) -> CSR:
        """``−4 R̃ᵀ``: one pass less over the result of each product."""
        return self.by_item._replace(values=-4.0 * self.by_item.values)

    def degree_power(self, exponent: float) -> Tensor:
        """Return ``d_i^exponent`` (n_items,), and 0 for an item without users."""
        return torch.where(self.degrees > 0, self.degrees.clamp_min(1.0).pow(exponent), 0.0)

    def polynomial(self, coefficients: Sequence[float], x: Tensor) -> Tensor:
        """Return ``Σ_k c_k T_k(I − 2P) x`` for x (n_items, width), T_k the Chebyshev polynomials."""
        if self.device.type != "cpu":
            return self._chebyshev(coefficients, x)
        result = torch.empty(x.shape[::-1]).T  # by columns: its transpose is contiguous
        strips = [slice(start, start + _STRIP) for start in range(0, x.shape[1], _STRIP)]

        def compute(strip: slice) -> None:
            result[:, strip] = self._chebyshev(coefficients, x[:, strip].contiguous())

        together([partial(compute, strip) for strip in strips])
        return result

    def _chebyshev(self, coefficients: Sequence[float], x: Tensor) -> Tensor:
        """Compute the sum by ``T_k = 2 T_(k−1) − 4 P T_(k−1) − T_(k−2)``, which is stable in float32."""
        total = x * coefficients[0]
        before, current = x, x
        for k, coefficient in enumerate(coefficients[1:], start=1):
            following = product(self._times_minus_4, product(self.by_user, current))
            if k == 1:
                following.mul_(0.5).add_(current)  # T_1 = I − 2P
            else:
                following.add_(current, alpha=2.0).sub_(before)
            before, current = current, following
            total.add_(current, alpha=coefficient)
        return total

    def leading_vectors(self, rank: int) -> Tensor:
        """Return the ``rank`` leading eigenvectors of P as columns, (n_items, rank): right singular vectors of R̃.

        They are exact for small graphs. For others they come from torch's randomised decomposition with a fixed start;
        then vectors of close eigenvalues near the last one are approximate. Vectors of the eigenvalue 0 are zeros.
        """
        side = min(self.n_users, self.n_items)
        vectors = self._exact_vectors() if side <= EXACT_SIDE else self._randomised_vectors(min(rank, side))
        missing = max(0, rank - vectors.shape[1])
        return torch.nn.functional.pad(vectors[:, :rank], (0, missing)).contiguous()

    def _exact_vectors(self) -> Tensor:
        """Decompose R̃ᵀR̃ or R̃R̃ᵀ, whichever is smaller, in float64."""
        first, second = (self.by_user, self.by_item) if self.n_items <= self.n_users else (self.by_item, self.by_user)
        one = torch.eye(first.n_cols, device=self.device)
        values, vectors = torch.linalg.eigh(product(second, product(first, one)).double())
        kept = values.flip(0) > SMALLEST
        vectors = vectors.flip(1)[:, kept]
        if first is self.by_user:
            result: Tensor = vectors.float()
        else:
            result = product(first, vectors.float()) / values.flip(0)[kept].sqrt().float()
        return result

    def _randomised_vectors(self, rank: int) -> Tensor:
        """Return vectors of ``torch.svd_lowrank`` with a fixed random start.

        They are computed on the CPU for a GPU too: the sparse products of torch may sum in any order there.
        """
        shape = (self.n_users, self.n_items)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            offsets, indices, values = (part.cpu() for part in self.by_user[:3])
            R = _sparse_tensor(offsets, indices, values, shape)
            _, singular, vectors = torch.svd_lowrank(R, q=min(rank + OVERSAMPLING, *shape), niter=POWER_ITERATIONS)
        return (vectors * (singular.square() > SMALLEST)).to(self.device)


def _compressed(matrix: csr_array) -> CSR:
    matrix.sort_indices()
    offsets, indices = (torch.from_numpy(part.astype(np.int32)) for part in (matrix.indptr, matrix.indices))
    return CSR(offsets, indices, torch.from_numpy(matrix.data.astype(np.float32)), matrix.shape[1])


def _sparse_tensor(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a sparse CSR tensor of arrays that are known to be valid.

    torch warns that such tensors are in beta, and, in some versions, that it does not check them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)
