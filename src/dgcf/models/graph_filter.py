"""The base class of training-free models that filter the item graph: GF-CF, BSPM and ChebyCF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.polynomial.chebyshev import chebinterpolate
from numpy.typing import NDArray
from torch import Tensor

from dgcf.config import Between, require_range, tunable
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.graph.item_graph import ItemGraph
from dgcf.models.base import SolvedModel
from dgcf.models.config import MAX_DIM, ModelConfig
from dgcf.ranking.rankings import ItemWeights
from dgcf.ranking.torch_backend import largest_columns
from dgcf.ranking.weights import SparseWeights

MAX_NEIGHBOURS = 100_000
_BLOCK_ENTRIES = {"cpu": 1 << 24, "cuda": 1 << 28}  # of a block of rows of W: 64 MB and 1 GB
_BLOCKS_HELD = 6
Response = NDArray[np.float64]


@dataclass(frozen=True)
class FilterConfig(ModelConfig):
    """Settings of a graph filter."""

    rank: int | Literal["auto"] = "auto"
    """Number of singular vectors in the ideal low pass; ``auto`` grows with the root of the graph's size."""
    low_pass: float = tunable(0.3, Between(0.05, 2.0, log=True))
    """Weight of the ideal low pass; 0 leaves it out."""
    neighbours: int = 400
    """Number n of entries of largest magnitude kept in each row of W."""

    def __post_init__(self) -> None:
        if self.rank != "auto":
            require_range("rank", self.rank, 1, MAX_DIM)
        require_range("low_pass", self.low_pass, 0, 1e6)
        require_range("neighbours", self.neighbours, 1, MAX_NEIGHBOURS)

    @property
    def rank_per_root(self) -> float:
        """``rank=auto`` is this times the square root of the number of users or of items, whichever is smaller."""
        return 1.5

    @property
    def degree(self) -> int:
        """Degree of the polynomial that replaces the response."""
        return 1

    def response(self, s: Response) -> Response:
        """Return p(s), the gain of the frequencies with eigenvalue s of P, in [0, 1]."""
        return s

    def low_pass_response(self, s: Response) -> Response:
        """Return q(s), a further gain of the ideal low pass."""
        return np.ones_like(s)

    @property
    def degree_exponents(self) -> tuple[float, float]:
        """β of the polynomial and of the ideal low pass: each is ``D_i^-β … D_i^β``."""
        return 0.0, 0.5

    def rank_of(self, n_users: int, n_items: int) -> int:
        """Return the number of singular vectors for a graph of this size, at most as many as it has."""
        side = min(n_users, n_items)
        return min(max(1, round(self.rank_per_root * side**0.5)) if self.rank == "auto" else self.rank, side)

    @property
    def memory_advice(self) -> str:
        return "lower rank or neighbours with --set"

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Return the bytes of the singular vectors and their decomposition, a block of rows, and the weights."""
        vectors = 4 * (self.rank_of(n_users, n_items) + 32) * (3 * n_users + 5 * n_items) if self.low_pass else 0
        block = _BLOCKS_HELD * 4 * max(_BLOCK_ENTRIES["cpu"], n_items)
        return vectors + block + 3 * 8 * n_items * min(self.neighbours, n_items) + 4 * 12 * n_pairs


class GraphFilter(SolvedModel):
    """``W = D_i^-β p(P) D_i^β + a · D_i^-δ V Vᵀ D_i^δ q(P)``, and of each row of W its n entries of largest magnitude.

    ``P = R̃ᵀR̃`` is the normalised item graph, V (n_items, k) its leading eigenvectors, D_i the degrees of the items.
    ``s(u, i) = Σ_j W[j, i]`` over u's items j. p and q are replaced by Chebyshev polynomials of P, which are exact
    where they are polynomials. W is built in blocks of rows and never stored as a whole. Shapes: ``columns`` and
    ``weights`` (n_items, n); unused places have weight 0.
    """

    seeded = False
    config: FilterConfig
    columns: Tensor
    weights: Tensor

    def __init__(self, n_users: int, n_items: int, config: FilterConfig) -> None:
        super().__init__(n_users, n_items, config)
        self.n_items = n_items
        self.rank = config.rank_of(n_users, n_items)
        kept = min(config.neighbours, n_items)
        self.register_buffer("columns", torch.zeros(n_items, kept, dtype=torch.int32))
        self.register_buffer("weights", torch.zeros(n_items, kept))

    @property
    def notes(self) -> list[str]:
        if self.config.rank in ("auto", self.rank):
            return []
        return [f"rank is {self.config.rank:,}, but the graph has {self.rank:,} singular vectors; all are used."]

    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        graph = ItemGraph.of(pairs, device)
        low_pass = self._low_pass(graph)
        entries = _BLOCK_ENTRIES.get(graph.device.type, _BLOCK_ENTRIES["cpu"])
        step = max(1, entries // max(self.n_items, 1))
        for start in range(0, self.n_items, step):
            rows = slice(start, min(start + step, self.n_items))
            block = self._block(graph, rows, low_pass)
            if not bool(torch.isfinite(block.sum())):  # NaN and infinities remain in a sum
                raise ConfigError(
                    f"the weights of {type(self).__name__} are not finite; lower its settings with --set."
                )
            columns = largest_columns(block.abs(), self.columns.shape[1])
            self.columns[rows] = columns.to("cpu", torch.int32)
            self.weights[rows] = block.gather(1, columns).cpu()

    def _low_pass(self, graph: ItemGraph) -> tuple[Tensor, Tensor] | None:
        """Return the two factors of the low pass, (n_items, k) and (k, n_items), or None if it is left out."""
        if not self.config.low_pass:
            return None
        exponent = self.config.degree_exponents[1]
        vectors = graph.leading_vectors(self.rank)
        right = graph.degree_power(exponent)[:, None] * vectors
        coefficients = _coefficients(self.config.low_pass_response, self.config.degree)
        if any(coefficients[1:]):
            right = graph.polynomial(coefficients, right)
        left = graph.degree_power(-exponent)[:, None] * vectors
        return left.mul_(self.config.low_pass), right.T.contiguous()

    def _block(self, graph: ItemGraph, rows: slice, low_pass: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return ``rows`` of W before entries are left out, (n_rows, n_items)."""
        exponent = self.config.degree_exponents[0]
        n_rows = rows.stop - rows.start
        place = torch.arange(n_rows, device=graph.device)
        ones = torch.zeros(self.n_items, n_rows, device=graph.device)
        ones[place + rows.start, place] = graph.degree_power(-exponent)[rows]
        block = graph.polynomial(_coefficients(self.config.response, self.config.degree), ones).T.contiguous()
        if exponent:
            block *= graph.degree_power(exponent)
        if low_pass is not None:
            left, right = low_pass
            block.addmm_(left[rows], right)
        return block

    def ranking(self, pairs: Pairs) -> ItemWeights:
        weights = self.weights.numpy()
        kept = weights != 0
        indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int64)
        values = np.ascontiguousarray(weights[kept])
        return ItemWeights(pairs, SparseWeights(indptr, self.columns.numpy()[kept], values, self.n_items))


def _coefficients(response: object, degree: int) -> list[float]:
    """Return c with ``Σ_k c_k T_k(1 − 2s) = response(s)`` at the Chebyshev points; rounding errors of 0 are 0."""
    assert callable(response)
    values = chebinterpolate(lambda x: response((1.0 - x) / 2.0), degree)
    return [float(value) if abs(value) > 1e-12 else 0.0 for value in values]
