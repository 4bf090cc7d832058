"""The base class of graph models with weights between layers: GCN, GC-MC, NGCF, SpectralCF and GraphSAGE."""

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
"""Slope of LeakyReLU below zero, as in NGCF's code."""

Activation = Literal["leaky-relu", "relu", "tanh", "sigmoid", "none"]
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "leaky-relu": lambda x: functional.leaky_relu(x, SLOPE),
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "none": lambda x: x,
}
Dropout = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class WeightedConfig(LayeredConfig):
    """Settings of models with weights between layers."""

    readout: LayerReadout = "last"
    """Ranked embeddings: the ``last`` layer, the ``mean`` of all layers, or all concatenated (``concat``)."""
    activation: Activation = "leaky-relu"
    """Activation σ: ``leaky-relu`` (slope 0.2), ``relu``, ``tanh``, ``sigmoid`` or ``none``."""
    bias: bool = True
    """Add a bias to every weight matrix."""
    message_dropout: float = tunable(0.0, Between(0.0, 0.5))
    """Share p of each layer's output that a training step sets to zero; the rest is scaled by 1/(1−p)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("readout", self.readout, ("mean", "last", "concat"))
        require_one_of("activation", self.activation, ACTIVATIONS)
        require_range("message_dropout", self.message_dropout, 0, 0.99)

    def spec(self) -> PropagationSpec:
        """Return the normalised user–item graph; a subclass may override it."""
        return DIRECT


class Dense(nn.Module):
    """``x ↦ x W + b``: (rows, inputs) → (rows, outputs). Xavier initialisation, with b as a matrix of one row."""

    def __init__(self, name: str, inputs: int, outputs: int, *, bias: bool, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(xavier_uniform(f"{name}.weight", inputs, outputs, seed))
        self.bias = nn.Parameter(xavier_uniform(f"{name}.bias", 1, outputs, seed).squeeze(0)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class WeightedModel(GraphModel):
    """``E⁽ˡ⁾ = f_l(E⁽ˡ⁻¹⁾, M E⁽ˡ⁻¹⁾)`` for l = 1 … layers, then a readout of some or all layers.

    A subclass implements f_l as ``layer``. L2 regularises the batch's rows of E⁽⁰⁾ and no weight, as in NGCF's code.
    With ``rows`` the last layer is computed for those rows alone; dense products of some rows and of all may differ in
    their last bits.
    """

    first_readout_layer = 0
    """The first layer that ``mean`` and ``concat`` read out."""

    config: WeightedConfig

    @property
    def width(self) -> int:
        layers = self.config.layers + 1 - self.first_readout_layer if self.config.readout == "concat" else 1
        return self.dim * layers

    @abstractmethod
    def layer(self, number: int, own: Tensor, received: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        """Return the propagated output and the readout of layer ``number`` + 1, (n_rows, dim) each.

        ``own``: the nodes' rows of the layer before, (n_rows, dim); ``received``: the same rows of M times that layer;
        ``dropout``: this step's message dropout, for the model to apply.
        """

    def dense(self, name: str, seed: int, *, inputs: int | None = None) -> nn.ModuleList:
        """Return a ``Dense`` for each layer, from ``inputs`` columns (``dim`` by default) to ``dim``."""
        inputs, bias, layers = inputs or self.dim, self.config.bias, range(self.config.layers)
        return nn.ModuleList(Dense(f"{name}.{number}", inputs, self.dim, bias=bias, seed=seed) for number in layers)

    def activate(self, x: Tensor) -> Tensor:
        """Apply the activation σ."""
        return ACTIVATIONS[self.config.activation](x)

    def is_last(self, number: int) -> bool:
        """Return whether ``number`` is the last layer."""
        return number == self.config.layers - 1

    def received(
        self, propagation: Propagation, number: int, x: Tensor, rows: Tensor | None, drop: DropSchedule | None
    ) -> Tensor:
        """Return ``M E⁽ˡ⁻¹⁾``, or its ``rows``."""
        return received_rows(propagation, x, rows, drop, number)

    def forward(
        self, propagation: Propagation | None, rows: Tensor | None = None, drop: DropSchedule | None = None
    ) -> Tensor:
        assert propagation is not None
        readout, outputs = self.config.readout, list[Tensor]()
        x: Tensor = self.layer0
        if readout != "last" and self.first_readout_layer == 0:
            outputs.append(self.ego(rows))
        for number in range(self.config.layers):
            last_rows = rows if self.is_last(number) else None
            own = x if last_rows is None else x.index_select(0, last_rows)
            received = self.received(propagation, number, x, last_rows, drop)
            x, output = self.layer(number, own, received, self._dropout(number, last_rows, drop))
            if self.is_last(number):
                outputs.append(output)
            elif readout != "last":
                outputs.append(output if rows is None else output.index_select(0, rows))
        return torch.cat(outputs, dim=1) if readout == "concat" else sum(outputs[1:], start=outputs[0]) / len(outputs)

    def _dropout(self, number: int, rows: Tensor | None, drop: DropSchedule | None) -> Dropout:
        p = self.config.message_dropout
        if drop is None or p == 0:
            return lambda x: x

        def dropout(x: Tensor) -> Tensor:
            nodes = torch.arange(len(x), device=x.device) if rows is None else rows
            return x * drop.messages(number, p, nodes, x.shape[1]) * (1.0 / (1.0 - p))

        return dropout
