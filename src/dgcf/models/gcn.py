"""GCN: a weight matrix and a non-linearity in every layer, with or without jumping knowledge."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.graph import PropagationSpec
from dgcf.graph.spec import RENORMALISED
from dgcf.models.weighted import Dropout, WeightedConfig, WeightedModel


@dataclass(frozen=True)
class GCNConfig(WeightedConfig):
    """Settings of GCN."""

    activate_last: bool = True
    """Apply the activation in the last layer, too."""

    def spec(self) -> PropagationSpec:
        return RENORMALISED


class GCN(WeightedModel):
    """Graph convolutional network (Kipf and Welling, ICLR 2017) on trainable E⁽⁰⁾.

    ``E⁽ˡ⁾ = σ(Â E⁽ˡ⁻¹⁾ W⁽ˡ⁾ + b⁽ˡ⁾)``, ``Â = (D+I)^-½ (A+I) (D+I)^-½``, read out as ``E⁽ᴸ⁾``;
    with jumping knowledge (Xu et al., ICML 2018) as ``E⁽⁰⁾ ‖ … ‖ E⁽ᴸ⁾``.

    Shapes: E (N, dim), W (dim, dim), b (dim). Message dropout applies to each E⁽ˡ⁾, l ≥ 1.
    """

    config: GCNConfig

    def __init__(self, n_users: int, n_items: int, config: GCNConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.weights = self.dense("gcn", seed)

    def layer(self, number: int, own: Tensor, received: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        x = self.weights[number](received)
        if self.config.activate_last or not self.is_last(number):
            x = self.activate(x)
        x = dropout(x)
        return x, x
