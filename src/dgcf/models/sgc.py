"""SGC: a GCN without non-linearities, that is a power of the graph and one weight matrix."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.graph import Propagation, PropagationSpec
from dgcf.graph.spec import DIRECT, RENORMALISED
from dgcf.models.base import DropSchedule, GraphModel
from dgcf.models.config import LayeredConfig
from dgcf.models.layers import propagate
from dgcf.models.weighted import Dense


@dataclass(frozen=True)
class SGCConfig(LayeredConfig):
    """Settings of SGC."""

    loops: bool = True
    """Add self-loops before the normalisation, as in the original; otherwise M is LightGCN's L."""

    def spec(self) -> PropagationSpec:
        return RENORMALISED if self.loops else DIRECT


class SGC(GraphModel):
    """Simplifying graph convolutional networks (Wu et al., ICML 2019), on trainable E⁽⁰⁾.

    ``E = Mᴷ E⁽⁰⁾ W``, ``M = (D+I)^-½ (A+I) (D+I)^-½`` or, without ``loops``, ``L``. Shapes: E (N, dim), W (dim, dim).
    K is ``layers``. The original applies W to given features and ends in a softmax over classes; here E is ranked. W is
    not regularised.
    """

    config: SGCConfig

    def __init__(self, n_users: int, n_items: int, config: SGCConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.output = Dense("sgc", config.dim, config.dim, bias=False, seed=seed)

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        assert propagation is not None
        x = propagate(self.layer0, propagation, self.config.layers, readout="last", rows=rows, drop=drop)
        output: Tensor = self.output(x)
        return output
