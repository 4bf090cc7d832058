"""GraphSAGE: a node concatenated with the mean of its neighbours, which are sampled in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dgcf.config import require_one_of, require_range
from dgcf.errors import ConfigError
from dgcf.graph import Propagation
from dgcf.models.base import DropSchedule
from dgcf.models.layers import received_rows
from dgcf.models.weighted import Dropout, WeightedConfig, WeightedModel

MAX_FANOUT = 10_000


@dataclass(frozen=True)
class SAGEConfig(WeightedConfig):
    """Settings of GraphSAGE."""

    fanout: int | Literal["all"] = 10
    """Number of neighbours sampled with replacement per node and layer in a training step, or ``all``."""
    unit_rows: bool = False
    """Normalise the rows of every layer to length 1, as in the original."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.fanout, int):
            require_range("fanout", self.fanout, 1, MAX_FANOUT)
        else:
            require_one_of("fanout", self.fanout, ("all",))

    @property
    def drops_edges(self) -> bool:
        """Whether all neighbours are used: sampled ones have no edges to drop."""
        return self.fanout == "all"


class SAGE(WeightedModel):
    """GraphSAGE (Hamilton et al., NeurIPS 2017) with mean aggregation, as PinSage (Ying et al., KDD 2018) uses it.

    ``E⁽ˡ⁾ = σ([E⁽ˡ⁻¹⁾ ‖ m(E⁽ˡ⁻¹⁾)] W⁽ˡ⁾ + b⁽ˡ⁾)``, read out as ``E⁽ᴸ⁾``. In training m is the mean over
    ``fanout`` neighbours, sampled anew for each step, layer and node; when ranking it is the mean over all neighbours,
    ``D⁻¹ A E⁽ˡ⁻¹⁾``.

    Shapes: E (N, dim), W (2 dim, dim), b (dim). E⁽⁰⁾ is trainable instead of given features, so a new node has none.
    Neighbours are sampled uniformly, without PinSage's random walks and weights.
    """

    config: SAGEConfig
    recordable = False  # the host computes the numbers that sample neighbours

    def __init__(self, n_users: int, n_items: int, config: SAGEConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.weights = self.dense("sage", seed, inputs=2 * config.dim)

    def received(
        self, propagation: Propagation, number: int, x: Tensor, rows: Tensor | None, drop: DropSchedule | None
    ) -> Tensor:
        """Return the mean over a node's neighbours: all of them, or in training those sampled."""
        if drop is None or self.config.fanout == "all":
            # D⁻¹ A = D^-½ L D^½, and L is stored; a node without neighbours has an empty row.
            root = torch.diff(propagation.stored.offsets).clamp(min=1).to(x.dtype).sqrt()[:, None]
            mean = received_rows(propagation, root * x, rows, drop, number)
            return mean / (root if rows is None else root.index_select(0, rows))
        if drop.p:
            raise ConfigError(
                "sage samples its neighbours, so no edge is left to drop; set edge_dropout=0 or fanout=all."
            )
        return propagation.sampled_mean(x, drop.neighbours(number, self.config.fanout), rows)

    def layer(self, number: int, own: Tensor, received: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        x = dropout(self.activate(self.weights[number](torch.cat([own, received], dim=1))))
        x = normalize(x, dim=1) if self.config.unit_rows else x
        return x, x
