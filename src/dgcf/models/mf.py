"""Matrix factorisation: embeddings without a graph."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.graph import Propagation
from dgcf.models.base import DropSchedule, GraphModel, PropagationStack
from dgcf.models.config import GraphModelConfig


@dataclass(frozen=True)
class MatrixFactorisationConfig(GraphModelConfig):
    """Settings of matrix factorisation."""


class MatrixFactorisation(GraphModel):
    """BPR-MF when trained with BPR (Rendle et al., UAI 2009): ``s(u, i) = ⟨e_u, e_i⟩`` on E⁽⁰⁾ (N, dim) itself."""

    config: MatrixFactorisationConfig

    def stack(self) -> PropagationStack:
        return PropagationStack(0, None, True)

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        return self.ego(rows)
