"""EASE: linear regression of each item on the other items of a user, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgcf.config import Between, require_range, tunable
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.models.base import SolvedModel
from dgcf.models.config import ModelConfig
from dgcf.ranking.rankings import ItemWeights
from dgcf.ranking.weights import DenseWeights

_BLOCK = 1 << 23  # entries of a matrix in one block: 64 MB


@dataclass(frozen=True)
class EASEConfig(ModelConfig):
    """Settings of EASE."""

    l2: float = tunable(500.0, Between(10.0, 10_000.0, log=True))
    """L2 regularisation λ of the weights, in units of users; the original uses 500 for ML-20M."""

    def __post_init__(self) -> None:
        require_range("l2", self.l2, 0, 1e12, open_low=True)

    @property
    def memory_advice(self) -> str:
        return "filter rare items when preparing the data, or train item-knn, which keeps a few neighbours of each item"

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Return the bytes of the Gram matrix in float64, inverted in place, and of the weights in float32."""
        return (8 + 4) * n_items**2


class EASE(SolvedModel):
    """Embarrassingly shallow autoencoders (Steck, WWW 2019).

    ``B = argmin ‖X − X B‖² + λ‖B‖²`` with ``diag(B) = 0``, X (n_users, n_items) the binary training pairs, has the
    closed form ``B = I − P · diag(1 / diag P)``, ``P = (XᵀX + λ I)⁻¹``. ``s(u, i) = Σ_j B[j, i]`` over u's items j.
    Solved in float64 by Cholesky decomposition, stored in float32. Shapes: B (n_items, n_items).
    """

    seeded = False
    config: EASEConfig
    weights: Tensor

    def __init__(self, n_users: int, n_items: int, config: EASEConfig) -> None:
        super().__init__(n_users, n_items, config)
        self.register_buffer("weights", torch.zeros(n_items, n_items))

    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        gram = gram_matrix(pairs)
        gram.flat[:: len(gram) + 1] += self.config.l2
        # G is symmetric, so its transpose is the same matrix in LAPACK's column order, which allows work in place.
        # Torch's LAPACK, because that of SciPy's wheels (OpenBLAS, several threads) crashes from 20,000 items on.
        matrix, failed = torch.from_numpy(gram).T, torch.zeros((), dtype=torch.int32)
        torch.linalg.cholesky_ex(matrix, out=(matrix, failed))
        if failed:
            raise ConfigError(
                f"l2 is {self.config.l2:g}, so small that the matrix cannot be inverted; raise it with --set l2=…"
            )
        inverse = torch.cholesky_inverse(matrix, out=matrix)
        diagonal = inverse.diagonal().clone()
        for rows in _blocks(pairs.n_items):
            self.weights[rows] = inverse[rows] / -diagonal
        self.weights.fill_diagonal_(0.0)

    def ranking(self, pairs: Pairs) -> ItemWeights:
        return ItemWeights(pairs, DenseWeights(self.weights.numpy()))


def gram_matrix(pairs: Pairs) -> NDArray[np.float64]:
    """Return ``XᵀX`` (n_items, n_items), the number of users that two items share, computed in row blocks."""
    X = pairs.to_scipy()
    Xt = X.T.tocsr()
    gram = np.empty((pairs.n_items, pairs.n_items))
    for rows in _blocks(pairs.n_items):
        gram[rows] = (Xt[rows] @ X).toarray()
    return gram


def _blocks(n: int) -> list[slice]:
    """Return the rows of an (n, n) matrix in slices of bounded size."""
    step = max(1, _BLOCK // max(n, 1))
    return [slice(start, start + step) for start in range(0, n, step)]
