"""NGCF: graph convolutions with the element-wise product of a node and its neighbours, layers concatenated."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import normalize

from dgcf.config import Between, tunable
from dgcf.models.config import LayerReadout
from dgcf.models.weighted import Dropout, WeightedConfig, WeightedModel


@dataclass(frozen=True)
class NGCFConfig(WeightedConfig):
    """Settings of NGCF."""

    readout: LayerReadout = "concat"
    """Ranked embeddings: all layers concatenated (``concat``), their ``mean``, or the ``last`` layer."""
    message_dropout: float = tunable(0.1, Between(0.0, 0.5))
    """Share p of each layer's output that a training step sets to zero; the rest is scaled by 1/(1−p)."""
    unit_rows: bool = True
    """Normalise the rows of each layer after layer 0 to length 1 in the readout, as the authors' code does."""


class NGCF(WeightedModel):
    """Neural graph collaborative filtering (Wang et al., SIGIR 2019).

    ``E⁽ˡ⁾ = LeakyReLU((L + I) E⁽ˡ⁻¹⁾ W₁⁽ˡ⁾ + (L E⁽ˡ⁻¹⁾ ⊙ E⁽ˡ⁻¹⁾) W₂⁽ˡ⁾ + b₁⁽ˡ⁾ + b₂⁽ˡ⁾)``, slope 0.2,
    ``L = D^-½ A D^-½``, read out as ``E⁽⁰⁾ ‖ u(E⁽¹⁾) ‖ … ‖ u(E⁽ᴸ⁾)``, where u
    normalises rows to length 1 (``unit_rows``).

    Shapes: E (N, dim), W₁, W₂ (dim, dim), b₁, b₂ (dim). u is in the authors' code, not in the paper; what is propagated
    is not normalised. Message dropout applies to E⁽ˡ⁾, l ≥ 1. The paper's node dropout drops entries of L, as
    ``edge_dropout`` of the training loop does.
    """

    config: NGCFConfig

    def __init__(self, n_users: int, n_items: int, config: NGCFConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.sums = self.dense("ngcf.sum", seed)
        self.products = self.dense("ngcf.product", seed)

    def layer(self, number: int, own: Tensor, received: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        x = dropout(self.activate(self.sums[number](received + own) + self.products[number](received * own)))
        return x, normalize(x, dim=1) if self.config.unit_rows else x
