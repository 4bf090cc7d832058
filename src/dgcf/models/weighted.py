"""Graph models whose layers have weights: what GCN, GC-MC, NGCF and their like share, so that each is one equation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgcf.config import Between, require_one_of, require_range, tunable
from dgcf.graph import Propagation, PropagationSpec
from dgcf.graph.spec import DIRECT
from dgcf.models.base import DropSchedule, GraphModel, xavier_uniform
from dgcf.models.config import LayeredConfig, LayerReadout
from dgcf.models.layers import received_rows

SLOPE = 0.2
"""Of LeakyReLU below zero, as in NGCF's code."""

LAYER_READOUTS: tuple[LayerReadout, ...] = ("mean", "last", "concat")
Activation = Literal["leaky-relu", "relu", "tanh", "sigmoid", "none"]
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "leaky-relu": lambda x: functional.leaky_relu(x, SLOPE),
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "none": lambda x: x,
}
Thin = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class WeightedConfig(LayeredConfig):
    """What shapes every model with weights between its layers."""

    readout: LayerReadout = "last"
    """What is ranked: the ``last`` layer, the ``mean`` of all, or all side by side (``concat``: wider rows)."""
    activation: Activation = "leaky-relu"
    """σ: ``leaky-relu`` (slope 0.2), ``relu``, ``tanh``, ``sigmoid`` or ``none``."""
    bias: bool = True
    """Whether every weight matrix has a bias."""
    message_dropout: float = tunable(0.0, Between(0.0, 0.5))
    """Share of the numbers of a layer's output that each training step sets to zero, the rest scaled up by 1/(1−p)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("readout", self.readout, LAYER_READOUTS)
        require_one_of("activation", self.activation, ACTIVATIONS)
        require_range("message_dropout", self.message_dropout, 0, 0.99)

    def spec(self) -> PropagationSpec:
        """The operator that the model propagates with: the normalised user–item graph alone unless told."""
        return DIRECT


class Dense(nn.Module):
    """``x ↦ x W + b``: (rows, inputs) → (rows, outputs). W and b start Xavier, b as a matrix of one row."""

    def __init__(self, name: str, inputs: int, outputs: int, *, bias: bool, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(xavier_uniform(f"{name}.weight", inputs, outputs, seed))
        self.bias = nn.Parameter(xavier_uniform(f"{name}.bias", 1, outputs, seed).squeeze(0)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class WeightedModel(GraphModel):
    """``E⁽ˡ⁾ = f_l(E⁽ˡ⁻¹⁾, M E⁽ˡ⁻¹⁾)`` for l = 1 … layers, then a read-out of some or all layers.

    A subclass gives f_l as ``layer``. L2 regularises the batch's rows of E⁽⁰⁾ as everywhere, and no weight, as in
    NGCF's code. With ``rows`` the last layer is computed for those rows alone; dense products of some rows and of all
    may differ in their last bits.
    """

    first_shown = 0
    """The first layer that ``mean`` and ``concat`` read out."""

    config: WeightedConfig

    @property
    def width(self) -> int:
        shown = self.config.layers + 1 - self.first_shown if self.config.readout == "concat" else 1
        return self.dim * shown

    @abstractmethod
    def layer(self, number: int, own: Tensor, received: Tensor, thin: Thin) -> tuple[Tensor, Tensor]:
        """f of layer ``number`` + 1: what is passed on and what is read out, (n_rows, dim) each.

        ``own`` (n_rows, dim) are the nodes' rows of the layer before, ``received`` (n_rows, dim) what reaches them from
        it; ``thin`` is this step's message dropout, to be put where the model has it.
        """

    def dense(self, name: str, seed: int, *, inputs: int | None = None, bias: bool | None = None) -> nn.ModuleList:
        """A ``Dense`` for each layer, to ``dim`` columns from ``inputs`` (``dim`` unless given)."""
        wide, config = self.dim if inputs is None else inputs, self.config
        biased = config.bias if bias is None else bias
        layers = range(config.layers)
        return nn.ModuleList(Dense(f"{name}.{number}", wide, self.dim, bias=biased, seed=seed) for number in layers)

    def activate(self, x: Tensor) -> Tensor:
        """σ."""
        return ACTIVATIONS[self.config.activation](x)

    def is_last(self, number: int) -> bool:
        """Whether ``layer`` ``number`` is the deepest."""
        return number == self.config.layers - 1

    def received(
        self, propagation: Propagation, number: int, x: Tensor, rows: Tensor | None, drop: DropSchedule | None
    ) -> Tensor:
        """``M E⁽ˡ⁻¹⁾``, or its ``rows``."""
        return received_rows(propagation, x, rows, None if drop is None else drop.at(number))

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        assert propagation is not None
        readout, shown = self.config.readout, list[Tensor]()
        x: Tensor = self.layer0
        if readout != "last" and self.first_shown == 0:
            shown.append(self.ego(rows))
        for number in range(self.config.layers):
            wanted = rows if self.is_last(number) else None
            own = x if wanted is None else x.index_select(0, wanted)
            arrived = self.received(propagation, number, x, wanted, drop)
            x, visible = self.layer(number, own, arrived, self._thin(number, wanted, drop))
            if self.is_last(number):
                shown.append(visible)
            elif readout != "last":
                shown.append(visible if rows is None else visible.index_select(0, rows))
        return torch.cat(shown, dim=1) if readout == "concat" else sum(shown[1:], start=shown[0]) / len(shown)

    def _thin(self, number: int, rows: Tensor | None, drop: DropSchedule | None) -> Thin:
        p = self.config.message_dropout
        if drop is None or p == 0:
            return lambda x: x

        def thin(x: Tensor) -> Tensor:
            nodes = torch.arange(len(x), device=x.device) if rows is None else rows
            return x * drop.messages(number, p, nodes, x.shape[1]) * (1.0 / (1.0 - p))

        return thin
