"""SpectralCF: filters on the frequencies of the graph; on all of them the filter is a sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from dgcf.config import OneOf, require_one_of, require_range, tunable
from dgcf.graph import PropagationSpec
from dgcf.graph.operators.spectral import spectral_memory
from dgcf.graph.spec import DIRECT
from dgcf.models.config import LayerReadout
from dgcf.models.weighted import Activation, Thin, WeightedConfig, WeightedModel

MAX_FREQUENCIES = 10_000_000


@dataclass(frozen=True)
class SpectralCFConfig(WeightedConfig):
    """What shapes a SpectralCF."""

    readout: LayerReadout = "concat"
    """What is ranked: all layers side by side (``concat``), their ``mean``, or the ``last`` one alone."""
    activation: Activation = "sigmoid"
    """σ: ``sigmoid`` as in the original, and by far the best; ``leaky-relu``, ``relu``, ``tanh`` or ``none``."""
    bias: bool = False
    """Whether every weight matrix has a bias (the original has none)."""
    frequencies: int | Literal["all"] = tunable("all", OneOf(("all", 32, 64, 128)))
    """How many of the Laplacian's lowest frequencies pass; ``all`` needs no decomposition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.frequencies, int):
            require_range("frequencies", self.frequencies, 1, MAX_FREQUENCIES)
        else:
            require_one_of("frequencies", self.frequencies, ("all",))

    @property
    def drops_edges(self) -> bool:
        """A filter on some frequencies has no edges; so ``dgcf tune``, which tries such, leaves them all in place."""
        return False

    def spec(self) -> PropagationSpec:
        """The operator that this model propagates with: the filter itself."""
        return replace(DIRECT, spectral=self.frequencies)

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Bytes that finding the eigenvectors takes; none for all frequencies."""
        return 0 if self.frequencies == "all" else spectral_memory(n_users + n_items, self.frequencies)

    @property
    def memory_advice(self) -> str:
        return "ask for fewer with --set frequencies=…, or for frequencies=all, which needs no decomposition"


class SpectralCF(WeightedModel):
    """Spectral collaborative filtering (Zheng et al., RecSys 2018).

    ``E⁽ˡ⁾ = σ((U Uᵀ + U Λ Uᵀ) E⁽ˡ⁻¹⁾ W⁽ˡ⁾)``, read out as ``E⁽⁰⁾ ‖ … ‖ E⁽ᴸ⁾``, where U and Λ are eigenvectors
    and eigenvalues of the graph's Laplacian ``I − L``, ``L = D^-½ A D^-½``.

    Shapes: E (N, dim), W (dim, dim), U (N, frequencies). With the whole spectrum U is orthogonal, so the filter is
    exactly ``I + (I − L) = 2I − L``: sparse, and nothing is decomposed. The original takes the random walk's Laplacian
    ``I − D⁻¹ A``, whose eigenvectors are not orthogonal. The filter lets high frequencies pass most, in which
    neighbours differ: without a sigmoid, what it learns of the training pairs says little of others.
    """

    def __init__(self, n_users: int, n_items: int, config: SpectralCFConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.weights = self.dense("spectralcf", seed)

    def layer(self, number: int, own: Tensor, received: Tensor, thin: Thin) -> tuple[Tensor, Tensor]:
        x = thin(self.activate(self.weights[number](received)))
        return x, x
