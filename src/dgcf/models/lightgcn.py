"""LightGCN: linear propagation over the user–item graph."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.config import require_one_of
from dgcf.graph import Propagation, PropagationSpec
from dgcf.graph.spec import DIRECT
from dgcf.models.base import DropSchedule, GraphModel, PropagationStack
from dgcf.models.config import LayeredConfig
from dgcf.models.layers import READOUTS, Readout, propagate


@dataclass(frozen=True)
class LightGCNConfig(LayeredConfig):
    """Settings of LightGCN."""

    readout: Readout = "mean"
    """Ranked embeddings: the ``mean`` of all layers, or the ``last`` layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("readout", self.readout, READOUTS)

    def spec(self) -> PropagationSpec:
        return DIRECT


class LightGCN(GraphModel):
    """LightGCN (He et al., SIGIR 2020).

    ``E⁽ˡ⁾ = L E⁽ˡ⁻¹⁾``, ``L = D^-½ A D^-½``, read out as ``mean(E⁽⁰⁾ … E⁽ᴸ⁾)``. Shapes: E (N, dim).
    """

    config: LightGCNConfig

    def stack(self) -> PropagationStack:
        return PropagationStack(self.config.layers, None, self.config.readout == "mean")

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        assert propagation is not None
        return propagate(
            self.layer0, propagation, self.config.layers, readout=self.config.readout, rows=rows, drop=drop
        )
