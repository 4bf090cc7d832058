"""Popularity: the most popular items, the same for every user."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dgcf.data.pairs import Pairs
from dgcf.models.base import SolvedEmbeddings
from dgcf.models.config import ModelConfig
from dgcf.ranking.user_rules import ConstantRow


@dataclass(frozen=True)
class PopularityConfig(ModelConfig):
    """Popularity has no settings."""


class Popularity(SolvedEmbeddings):
    """``s(u, i) = d_i``, the number of training users of item i; exact in float32 up to 2²⁴.

    As embeddings of width 1: users are 1 (n_users, 1), items d (n_items, 1). Ties are ranked by index.
    """

    seeded = False
    user_rule = ConstantRow()

    def __init__(self, n_users: int, n_items: int, config: PopularityConfig) -> None:
        super().__init__(n_users, n_items, config, dim=1)

    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        self.users.fill_(1.0)
        self.items.copy_(torch.from_numpy(pairs.item_degrees).unsqueeze(1))
