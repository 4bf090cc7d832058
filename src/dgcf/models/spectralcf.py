"""SpectralCF: filters in the graph's spectral domain; with all frequencies the filter is a sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from dgcf.config import OneOf, require_one_of, require_range, tunable
from dgcf.graph import PropagationSpec
from dgcf.graph.operators.spectral import spectral_memory
from dgcf.graph.spec import DIRECT
from dgcf.models.config import LayerReadout
from dgcf.models.weighted import Activation, Dropout, WeightedConfig, WeightedModel

MAX_FREQUENCIES = 10_000_000


@dataclass(frozen=True)
class SpectralCFConfig(WeightedConfig):
    """Settings of SpectralCF."""

    readout: LayerReadout = "concat"
    """Ranked embeddings: all layers concatenated (``concat``), their ``mean``, or the ``last`` layer."""
    activation: Activation = "sigmoid"
    """Activation σ: ``sigmoid`` (the original, and by far the best), ``leaky-relu``, ``relu``, ``tanh`` or ``none``."""
    bias: bool = False
    """Add a bias to every weight matrix (the original has none)."""
    frequencies: int | Literal["all"] = tunable("all", OneOf(("all", 32, 64, 128)))
    """Number of the Laplacian's lowest frequencies to keep; ``all`` needs no decomposition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.frequencies, int):
            require_range("frequencies", self.frequencies, 1, MAX_FREQUENCIES)
        else:
            require_one_of("frequencies", self.frequencies, ("all",))

    @property
    def drops_edges(self) -> bool:
        """False: a filter on some frequencies has no edges, and ``dgcf tune`` tries such filters."""
        return False

    def spec(self) -> PropagationSpec:
        return replace(DIRECT, spectral=self.frequencies)

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Return the peak memory of computing the eigenvectors in bytes; 0 for all frequencies."""
        return 0 if self.frequencies == "all" else spectral_memory(n_users + n_items, self.frequencies)

    @property
    def memory_advice(self) -> str:
        return "ask for fewer with --set frequencies=…, or for frequencies=all, which needs no decomposition"


class SpectralCF(WeightedModel):
    """Spectral collaborative filtering (Zheng et al., RecSys 2018).

    ``E⁽ˡ⁾ = σ((U Uᵀ + U Λ Uᵀ) E⁽ˡ⁻¹⁾ W⁽ˡ⁾)``, read out as ``E⁽⁰⁾ ‖ … ‖ E⁽ᴸ⁾``, where U and Λ are eigenvectors
    and eigenvalues of the graph's Laplacian ``I − L``, ``L = D^-½ A D^-½``.

    Shapes: E (N, dim), W (dim, dim), U (N, frequencies). With the whole spectrum U is orthogonal, so the filter is
    exactly ``I + (I − L) = 2I − L``: sparse, without a decomposition. The original uses the random walk's Laplacian
    ``I − D⁻¹ A``, whose eigenvectors are not orthogonal. The filter amplifies high frequencies, in which neighbours
    differ: without a sigmoid it hardly generalises from the training pairs.
    """

    def __init__(self, n_users: int, n_items: int, config: SpectralCFConfig, seed: int = 0) -> None:
        super().__init__(n_users, n_items, config, seed)
        self.weights = self.dense("spectralcf", seed)

    def layer(self, number: int, own: Tensor, received: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        x = dropout(self.activate(self.weights[number](received)))
        return x, x
