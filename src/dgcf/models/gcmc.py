"""GC-MC: a graph convolution and a dense layer for each hop, as it is used for ranking."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgcf.models.weighted import Thin, WeightedConfig, WeightedModel


@dataclass(frozen=True)
class GCMCConfig(WeightedConfig):
    """What shapes a GC-MC."""


class GCMC(WeightedModel):
    """Graph convolutional matrix completion (van den Berg et al., 2017), in the form that NGCF's code compares with.

    ``H⁽ˡ⁾ = σ(L H⁽ˡ⁻¹⁾ W⁽ˡ⁾ + b⁽ˡ⁾)``, ``H⁽⁰⁾ = E⁽⁰⁾``, ``L = D^-½ A D^-½``; read out are dense layers of them,
    ``E⁽ˡ⁾ = H⁽ˡ⁾ V⁽ˡ⁾ + c⁽ˡ⁾``: the ``last``, or the ``mean`` or ``concat`` of E⁽¹⁾ … E⁽ᴸ⁾ (not of E⁽⁰⁾).

    Shapes: H, E (N, dim), W, V (dim, dim), b, c (dim). Message dropout thins E⁽ˡ⁾, which is not passed on. One kind of
    edge instead of the original's one per rating, and inner products instead of its rating decoder.
    """

    first_shown = 1

    def __init__(self, n_users: int, n_items: int, config: GCMCConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.convolutions = self.dense("gcmc.convolution", seed)
        shown = self.dense("gcmc.dense", seed)
        self.outputs = shown[-1:] if config.readout == "last" else shown

    def layer(self, number: int, own: Tensor, received: Tensor, thin: Thin) -> tuple[Tensor, Tensor]:
        x = self.activate(self.convolutions[number](received))
        output = number - self.config.layers  # from the end: there may be the last one alone
        return x, thin(self.outputs[output](x)) if -output <= len(self.outputs) else x
