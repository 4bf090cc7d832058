"""Popularity: what most users have, the same for everybody; the least that a recommender must beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgcf.data.pairs import Pairs
from dgcf.models.base import AtOnceModel, Embeddings


@dataclass(frozen=True)
class PopularityConfig:
    """There is nothing to set."""


class Popularity(AtOnceModel):
    """``s(u, i) = d_i``: how many training users item i has, exact in float32 up to 2²⁴ of them.

    Ties go to the smaller index, as in every ranking here. As embeddings of width one: users 1 (n_users, 1), items d
    (n_items, 1).
    """

    seeded = False
    degrees: Tensor

    def __init__(self, n_users: int, n_items: int, config: PopularityConfig) -> None:
        super().__init__()
        self.n_users = n_users
        self.register_buffer("degrees", torch.zeros(n_items, 1))

    def solve(self, pairs: Pairs, seed: int) -> None:
        self.degrees.copy_(torch.from_numpy(pairs.item_degrees).unsqueeze(1))

    def ranking(self, pairs: Pairs) -> Embeddings:
        return Embeddings(torch.ones(self.n_users, 1), self.degrees)
