"""DGCF: cross-hop propagation and locality-adaptive gates. Its ablations are settings of the same class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dgcf.config import require_one_of
from dgcf.graph import PropagationSpec
from dgcf.graph.spec import Cross, Epsilon
from dgcf.models.layers import LinearConfig, LinearModel, LocalityGates, Readout

Gates = Literal["per-layer", "shared", "none"]


@dataclass(frozen=True)
class DGCFConfig(LinearConfig):
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
        require_one_of("gates", self.gates, ("per-layer", "shared", "none"))
        self.spec()  # checks the settings of the graph

    def spec(self) -> PropagationSpec:
        return PropagationSpec(
            cross=self.cross,
            epsilon=self.epsilon,
            self_loop=self.self_loop,
            cross_below_one=self.cross_below_one,
            edge_weights=self.edge_weights,
        )


class DGCF(LinearModel):
    """Deoscillated Adaptive Graph Collaborative Filtering (Liu et al., section 4).

    ``E⁽ˡ⁾ = (L + Lc + I) (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)``, ``α⁽ˡ⁾ = σ(w⁽ˡ⁾)``, read out as ``mean(E⁽⁰⁾ … E⁽ᴸ⁾)``.

    Shapes: E (N, dim), w (layers, N). L is the normalised user–item graph and Lc its filtered two-hop graph; the
    propagation passed to ``forward`` is their sum with I. Without gates, cross-hop term and I the model is LightGCN,
    bit for bit.
    """

    config: DGCFConfig

    def __init__(self, n_users: int, n_items: int, config: DGCFConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        if config.gates != "none":
            self.gates = LocalityGates(self.n_nodes, config.layers, shared=config.gates == "shared", seed=seed)
