"""GCN: a weight matrix and a non-linearity in every layer; with another read-out it is GCN with jumping knowledge."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.graph import PropagationSpec
from dgcf.graph.spec import RENORMALISED
from dgcf.models.weighted import Thin, WeightedConfig, WeightedModel


@dataclass(frozen=True)
class GCNConfig(WeightedConfig):
    """What shapes a GCN."""

    activate_last: bool = True
    """Whether σ is applied in the last layer too."""

    def spec(self) -> PropagationSpec:
        """The operator that this model propagates with: the user–item graph with loops, normalised."""
        return RENORMALISED


class GCN(WeightedModel):
    """Graph convolutional network (Kipf and Welling, ICLR 2017) on trainable E⁽⁰⁾.

    ``E⁽ˡ⁾ = σ(Â E⁽ˡ⁻¹⁾ W⁽ˡ⁾ + b⁽ˡ⁾)``, ``Â = (D+I)^-½ (A+I) (D+I)^-½``, read out as ``E⁽ᴸ⁾``;
    with jumping knowledge (Xu et al., ICML 2018) as ``E⁽⁰⁾ ‖ … ‖ E⁽ᴸ⁾``.

    Shapes: E (N, dim), W (dim, dim), b (dim). Message dropout thins each E⁽ˡ⁾, l ≥ 1, where it is made.
    """

    config: GCNConfig

    def __init__(self, n_users: int, n_items: int, config: GCNConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.weights = self.dense("gcn", seed)

    def layer(self, number: int, own: Tensor, received: Tensor, thin: Thin) -> tuple[Tensor, Tensor]:
        x = self.weights[number](received)
        if self.config.activate_last or not self.is_last(number):
            x = self.activate(x)
        x = thin(x)
        return x, x
