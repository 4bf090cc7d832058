"""A model that needs more memory than there is: refused before it is touched, with the way out in the sentence."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dgcf.errors import ConfigError
from dgcf.models.config import ModelConfig
from dgcf.models.spectralcf import SpectralCFConfig


@dataclass(frozen=True)
class Square(ModelConfig):
    """Settings of a model that keeps a number for each pair of items."""

    @property
    def memory_advice(self) -> str:
        return "drop rare items"

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        return 8 * n_items * n_items


def test_what_is_too_large_is_refused_with_both_figures_and_the_way_out() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^model square needs about 8,000,000,000\.0 GB of memory for 5 users, 1,000,000,000 items and 7 pairs, "
        r"and [\d,.]+ GB are free; drop rare items\.$",
    ):
        Square().require_memory("square", 5, 1_000_000_000, 7)


def test_spectralcf_says_what_its_eigenvectors_need_and_that_all_of_them_need_nothing() -> None:
    with pytest.raises(ConfigError, match=r"needs about 563,640\.1 GB .* --set frequencies=…, or for frequencies=all"):
        SpectralCFConfig(frequencies=1_830_000).require_memory("spectralcf", 10**7, 10**6, 10**8)
    SpectralCFConfig(frequencies="all").require_memory("spectralcf", 10**7, 10**6, 10**8)


def test_what_fits_and_what_has_no_estimate_passes() -> None:
    Square().require_memory("square", 5, 10, 7)
    ModelConfig().require_memory("plain", 10**12, 10**12, 10**12)
