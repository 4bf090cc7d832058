"""DGCF: cross-hop propagation and locality-adaptive gates. Its ablations are settings of the same class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from dgcf.config import require_one_of
from dgcf.graph import Propagation, PropagationSpec
from dgcf.graph.spec import Cross, Epsilon
from dgcf.models.base import DropSchedule, GraphModel, PropagationStack
from dgcf.models.config import LayeredConfig
from dgcf.models.layers import READOUTS, IdentityGates, LocalityGates, Readout, propagate

Gates = Literal["per-layer", "shared", "none"]


@dataclass(frozen=True)
class DGCFConfig(LayeredConfig):
    """Settings of DGCF."""

    readout: Readout = "mean"
    """Ranked embeddings: the ``mean`` of all layers, or the ``last`` layer (the paper's oscillation studies)."""
    gates: Gates = "per-layer"
    """Locality gates: one vector ``per-layer``, one ``shared`` by all layers (DGCF-sl), or ``none`` (DGCF-chp)."""
    cross: Cross = "filtered"
    """Cross-hop term: entries of Lc above ε (``filtered``), all of Lc (``matrix-free``), or ``none`` (DGCF-la)."""
    epsilon: Epsilon = "auto"
    """Threshold ε of the filter; ``auto`` keeps about as many cross-hop edges as there are direct ones."""
    cross_below_one: bool = False
    """Also drop entries of Lc equal to 1, as the authors' code does."""
    self_loop: bool = True
    """Add the identity I to the propagation matrix, as in ``L + Lc + I``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("readout", self.readout, READOUTS)
        require_one_of("gates", self.gates, ("per-layer", "shared", "none"))
        self.spec()  # checks the settings of the graph

    def spec(self) -> PropagationSpec:
        return PropagationSpec(
            cross=self.cross,
            epsilon=self.epsilon,
            self_loop=self.self_loop,
            cross_below_one=self.cross_below_one,
        )


class DGCF(GraphModel):
    """Deoscillated Adaptive Graph Collaborative Filtering (Liu et al., section 4).

    ``E⁽ˡ⁾ = (L + Lc + I) (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)``, ``α⁽ˡ⁾ = σ(w⁽ˡ⁾)``, read out as ``mean(E⁽⁰⁾ … E⁽ᴸ⁾)``.

    Shapes: E (N, dim), w (layers, N). L is the normalised user–item graph and Lc its filtered two-hop graph; the
    propagation passed to ``forward`` is their sum with I. Without gates, cross-hop term and I the model is LightGCN,
    bit for bit.
    """

    config: DGCFConfig

    def __init__(self, n_users: int, n_items: int, config: DGCFConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.gates: nn.Module = (
            IdentityGates()
            if config.gates == "none"
            else LocalityGates(self.n_nodes, config.layers, shared=config.gates == "shared", seed=seed)
        )

    def stack(self) -> PropagationStack:
        logits = self.gates.logits if isinstance(self.gates, LocalityGates) else None
        return PropagationStack(self.config.layers, logits, self.config.readout == "mean")

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        assert propagation is not None
        return propagate(
            self.layer0,
            propagation,
            self.config.layers,
            readout=self.config.readout,
            gate=self.gates,
            rows=rows,
            drop=drop,
        )
