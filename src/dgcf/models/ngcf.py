"""NGCF: messages that also say how much a node and its neighbour have in common, and layers side by side."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import normalize

from dgcf.config import Between, tunable
from dgcf.models.config import LayerReadout
from dgcf.models.weighted import Thin, WeightedConfig, WeightedModel


@dataclass(frozen=True)
class NGCFConfig(WeightedConfig):
    """What shapes an NGCF."""

    readout: LayerReadout = "concat"
    """What is ranked: all layers side by side (``concat``), their ``mean``, or the ``last`` one alone."""
    message_dropout: float = tunable(0.1, Between(0.0, 0.5))
    """Share of the numbers of a layer's output that each training step sets to zero, the rest scaled up by 1/(1−p)."""
    unit_rows: bool = True
    """Whether each layer after the first is read out with rows of length one, as in the authors' code."""


class NGCF(WeightedModel):
    """Neural graph collaborative filtering (Wang et al., SIGIR 2019).

    ``E⁽ˡ⁾ = LeakyReLU((L + I) E⁽ˡ⁻¹⁾ W₁⁽ˡ⁾ + (L E⁽ˡ⁻¹⁾ ⊙ E⁽ˡ⁻¹⁾) W₂⁽ˡ⁾ + b₁⁽ˡ⁾ + b₂⁽ˡ⁾)``, slope 0.2,
    ``L = D^-½ A D^-½``, read out as ``E⁽⁰⁾ ‖ u(E⁽¹⁾) ‖ … ‖ u(E⁽ᴸ⁾)``, where u
    gives every row the length one (``unit_rows``).

    Shapes: E (N, dim), W₁, W₂ (dim, dim), b₁, b₂ (dim). u is in the authors' code and not in the paper; what is passed
    on is not normalised. Message dropout thins E⁽ˡ⁾ where it is made; the paper's node dropout leaves out entries of L,
    which is ``edge_dropout`` of the training loop.
    """

    config: NGCFConfig

    def __init__(self, n_users: int, n_items: int, config: NGCFConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.sums = self.dense("ngcf.sum", seed)
        self.products = self.dense("ngcf.product", seed)

    def layer(self, number: int, own: Tensor, received: Tensor, thin: Thin) -> tuple[Tensor, Tensor]:
        x = thin(self.activate(self.sums[number](received + own) + self.products[number](received * own)))
        return x, normalize(x, dim=1) if self.config.unit_rows else x
