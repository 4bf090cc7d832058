"""Matrix factorisation: the model without a graph, against which propagation has to prove itself."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.config import require_range, tunable
from dgcf.graph import Propagation
from dgcf.models.base import DropSchedule, GraphModel, Stack
from dgcf.models.config import MAX_DIM, WIDTHS


@dataclass(frozen=True)
class MatrixFactorisationConfig:
    """What shapes a matrix factorisation."""

    dim: int = tunable(64, WIDTHS)
    """Width of the embeddings."""

    def __post_init__(self) -> None:
        require_range("dim", self.dim, 1, MAX_DIM)

    def spec(self) -> None:
        """No operator: the rows are ranked as they are."""


class MatrixFactorisation(GraphModel):
    """BPR-MF when trained with BPR (Rendle et al., UAI 2009): ``s(u, i) = ⟨e_u, e_i⟩`` on E⁽⁰⁾ (N, dim) itself."""

    def __init__(self, n_users: int, n_items: int, config: MatrixFactorisationConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config.dim, seed)
        self.config = config

    def stack(self) -> Stack:
        return Stack(0, None, True)

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        return self.ego(rows)
