"""BSPM: the filter of GF-CF, blurred and then sharpened."""

from __future__ import annotations

from dataclasses import dataclass

from dgcf.config import Between, require_range, tunable
from dgcf.models.graph_filter import FilterConfig, GraphFilter, Response


@dataclass(frozen=True)
class BSPMConfig(FilterConfig):
    """Settings of BSPM."""

    low_pass: float = tunable(0.2, Between(0.05, 2.0, log=True))
    """Weight of the ideal low pass; 0 leaves it out."""
    sharpening: float = tunable(2.5, Between(0.5, 4.0))
    """Time T of sharpening; 0 gives GF-CF."""
    neighbours: int = 1000
    """Number n of entries of largest magnitude kept in each row of W; sharpening makes the smaller ones count."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("sharpening", self.sharpening, 0, 100)

    @property
    def rank_per_root(self) -> float:
        return 2.6

    @property
    def degree(self) -> int:
        return 5

    def response(self, s: Response) -> Response:
        return s * self.low_pass_response(s)

    def low_pass_response(self, s: Response) -> Response:
        x = self.sharpening * s
        return 1.0 - x + x**2 / 2.0 - x**3 / 6.0 + x**4 / 24.0


class BSPM(GraphFilter):
    """Blurring-sharpening process models (Choi et al., SIGIR 2023), in the form with early merge.

    The filter of GF-CF, ``B = P + a · D_i^-½ V Vᵀ D_i^½``, is sharpened by ``dW/dt = −W P`` for a time T, in one step
    of the Runge–Kutta method of fourth order: ``W = B (I − TP + T²P²/2 − T³P³/6 + T⁴P⁴/24)``.
    ``s(u, i) = Σ_j W[j, i]`` over u's items j. Shapes: P and W (n_items, n_items), V (n_items, k).
    """

    config: BSPMConfig
