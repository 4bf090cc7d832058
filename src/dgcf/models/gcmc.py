"""GC-MC: a graph convolution and a dense layer per propagation layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.models.weighted import Dropout, WeightedConfig, WeightedModel


@dataclass(frozen=True)
class GCMCConfig(WeightedConfig):
    """Settings of GC-MC."""


class GCMC(WeightedModel):
    """Graph convolutional matrix completion (van den Berg et al., 2017), in the form of NGCF's code.

    ``H⁽ˡ⁾ = σ(L H⁽ˡ⁻¹⁾ W⁽ˡ⁾ + b⁽ˡ⁾)``, ``H⁽⁰⁾ = E⁽⁰⁾``, ``L = D^-½ A D^-½``; the readout is of dense layers,
    ``E⁽ˡ⁾ = H⁽ˡ⁾ V⁽ˡ⁾ + c⁽ˡ⁾``: the ``last``, or the ``mean`` or ``concat`` of E⁽¹⁾ … E⁽ᴸ⁾ (without E⁽⁰⁾).

    Shapes: H, E (N, dim), W, V (dim, dim), b, c (dim). Message dropout applies to E⁽ˡ⁾, which is not propagated. Unlike
    the original there is one kind of edge instead of one per rating, and inner products instead of a rating decoder.
    """

    first_readout_layer = 1

    def __init__(self, n_users: int, n_items: int, config: GCMCConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.convolutions = self.dense("gcmc.convolution", seed)
        outputs = self.dense("gcmc.dense", seed)
        self.outputs = outputs[-1:] if config.readout == "last" else outputs

    def layer(self, number: int, own: Tensor, received: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        x = self.activate(self.convolutions[number](received))
        output = number - self.config.layers  # counted from the end: with readout "last" there is only one
        return x, dropout(self.outputs[output](x)) if -output <= len(self.outputs) else x
