"""LightGCN: linear propagation over the user–item graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dgcf.graph import PropagationSpec
from dgcf.graph.spec import DIRECT
from dgcf.models.layers import LinearConfig, LinearModel


@dataclass(frozen=True)
class LightGCNConfig(LinearConfig):
    """Settings of LightGCN."""

    def spec(self) -> PropagationSpec:
        return replace(DIRECT, edge_weights=self.edge_weights)


class LightGCN(LinearModel):
    """LightGCN (He et al., SIGIR 2020).

    ``E⁽ˡ⁾ = L E⁽ˡ⁻¹⁾``, ``L = D^-½ A D^-½``, read out as ``mean(E⁽⁰⁾ … E⁽ᴸ⁾)``. Shapes: E (N, dim).
    """
