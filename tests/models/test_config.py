"""A model that needs more memory than is free is refused before it is built."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dgcf.errors import ConfigError
from dgcf.models.config import ModelConfig
from dgcf.models.spectralcf import SpectralCFConfig


@dataclass(frozen=True)
class Square(ModelConfig):
    """Settings of a model with a number for each pair of items."""

    @property
    def memory_advice(self) -> str:
        return "drop rare items"

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        return 8 * n_items * n_items


def test_too_large_model_is_refused_with_both_sizes_and_advice() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^model square needs about 8,000,000,000\.0 GB of memory for 5 users, 1,000,000,000 items and 7 pairs, "
        r"and [\d,.]+ GB are free; drop rare items\.$",
    ):
        Square().require_memory("square", 5, 1_000_000_000, 7)


def test_spectralcf_needs_memory_for_eigenvectors_unless_all_frequencies_pass() -> None:
    with pytest.raises(ConfigError, match=r"needs about 563,640\.1 GB .* --set frequencies=…, or for frequencies=all"):
        SpectralCFConfig(frequencies=1_830_000).require_memory("spectralcf", 10**7, 10**6, 10**8)
    SpectralCFConfig(frequencies="all").require_memory("spectralcf", 10**7, 10**6, 10**8)


def test_model_that_fits_or_has_no_estimate_is_accepted() -> None:
    Square().require_memory("square", 5, 10, 7)
    ModelConfig().require_memory("plain", 10**12, 10**12, 10**12)
