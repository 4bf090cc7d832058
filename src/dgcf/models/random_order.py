"""Random: a random order of the items for each user."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dgcf.config import require_range
from dgcf.data.pairs import Pairs
from dgcf.models.base import SolvedEmbeddings, xavier_uniform
from dgcf.models.config import MAX_DIM, ModelConfig


@dataclass(frozen=True)
class RandomOrderConfig(ModelConfig):
    """Settings of the random order."""

    dim: int = 64
    """Width of the random embeddings; the wider, the less two users' orders correlate."""

    def __post_init__(self) -> None:
        require_range("dim", self.dim, 1, MAX_DIM)


class RandomOrder(SolvedEmbeddings):
    """``s(u, i) = ⟨r_u, r_i⟩`` with independent random embeddings r (n_users, dim) and (n_items, dim), by seed.

    Given r_u, the scores of the items are independent and identically distributed, so every order of the items is
    equally likely. A matrix (n_users, n_items) of independent scores would not fit into memory.
    """

    def __init__(self, n_users: int, n_items: int, config: RandomOrderConfig) -> None:
        super().__init__(n_users, n_items, config, config.dim)

    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        for name, rows in self.named_buffers():
            rows.copy_(xavier_uniform(f"random.{name}", len(rows), rows.shape[1], seed))
