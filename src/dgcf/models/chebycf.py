"""ChebyCF: a plateau response of the item graph by Chebyshev interpolation, and an ideal low pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgcf.config import Between, require_range, tunable
from dgcf.models.graph_filter import FilterConfig, GraphFilter, Response


@dataclass(frozen=True)
class ChebyCFConfig(FilterConfig):
    """Settings of ChebyCF."""

    low_pass: float = tunable(0.2, Between(0.05, 2.0, log=True))
    """Weight α of the ideal low pass; 0 leaves it out."""
    order: int = 8
    """Degree K of the polynomial."""
    flatness: float = tunable(1.5, Between(0.5, 4.0))
    """φ: the larger, the flatter is the response in the middle of the spectrum."""
    degree_power: float = tunable(0.4, Between(0.0, 0.6))
    """β of the degree-based normalisation ``D_i^-β … D_i^β``: the larger, the more popular items gain."""

    neighbours: int = 1000
    """Number n of entries of largest magnitude kept in each row of W."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("order", self.order, 1, 64)
        require_range("flatness", self.flatness, 0, 100, open_low=True)
        require_range("degree_power", self.degree_power, -2, 2)

    @property
    def rank_per_root(self) -> float:
        return 3.0

    @property
    def degree(self) -> int:
        return self.order

    def response(self, s: Response) -> Response:
        x = 2.0 * s - 1.0
        return 0.5 + 0.5 * np.sign(x) * np.abs(x) ** self.flatness

    @property
    def degree_exponents(self) -> tuple[float, float]:
        return self.degree_power, self.degree_power


class ChebyCF(GraphFilter):
    """Graph spectral filtering with Chebyshev interpolation (Kim et al., SIGIR 2025).

    ``W = D_i^-β (p(P) + α V Vᵀ) D_i^β``. p is the Chebyshev interpolation of degree K of the plateau
    ``½ + ½ sgn(x) |x|^φ`` with ``x = 2s − 1`` on the eigenvalues s of ``P = R̃ᵀR̃``, and V its first k eigenvectors.
    ``s(u, i) = Σ_j W[j, i]`` over u's items j. Shapes: P and W (n_items, n_items), V (n_items, k).
    """

    config: ChebyCFConfig
