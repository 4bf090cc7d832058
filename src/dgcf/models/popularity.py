"""Popularity: the most popular items, of all time or of late; the same for every user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dgcf.config import require_range
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.models.base import SolvedEmbeddings
from dgcf.models.config import ModelConfig
from dgcf.ranking.user_rules import ConstantRow


@dataclass(frozen=True)
class PopularityConfig(ModelConfig):
    """Settings of popularity."""

    halflife: float = 0.0
    """Share of the training pairs, the latest first, after which a pair counts half; 0 counts all pairs alike. Requires
    data with times."""

    def __post_init__(self) -> None:
        require_range("halflife", self.halflife, 0, 1e6)


class Popularity(SolvedEmbeddings):
    """``s(u, i) = Σ_v 2^(−a_vi / h)`` over the training users v of item i; with h = 0 their number d_i.

    The age a_vi of a pair is the share of the training pairs that are later; h is ``halflife``. So an age depends on
    the order of the times alone, not on their unit, and a busy week ages what is before it more than a quiet one.

    As embeddings of width 1: users are 1 (n_users, 1), items s (n_items, 1). Ties are ranked by index. Counts are exact
    in float32 up to 2²⁴.
    """

    config: PopularityConfig

    seeded = False
    user_rule = ConstantRow()

    def __init__(self, n_users: int, n_items: int, config: PopularityConfig) -> None:
        super().__init__(n_users, n_items, config, dim=1)

    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        self.users.fill_(1.0)
        self.items.copy_(torch.from_numpy(popularity(pairs, self.config.halflife)).unsqueeze(1))


def popularity(pairs: Pairs, halflife: float) -> NDArray[np.float64]:
    """Return the popularity of each item, (n_items,)."""
    if not halflife:
        return pairs.item_degrees.astype(np.float64)
    if pairs.time is None:
        raise ConfigError(
            "halflife of popularity needs the time of every pair, which this data does not have; prepare it with "
            "--keep-times from a file with timestamps, or leave halflife out."
        )
    later = len(pairs) - np.searchsorted(np.sort(pairs.time), pairs.time, side="right")
    values = 0.5 ** (later / (halflife * len(pairs)))
    return np.bincount(pairs.indices, values, pairs.n_items).astype(np.float64)
