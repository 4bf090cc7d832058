"""Random: every user sees the items in a random order; what the metrics are worth without any knowledge."""

from __future__ import annotations

from dataclasses import dataclass

from dgcf.config import require_range
from dgcf.data.pairs import Pairs
from dgcf.models.base import SolvedEmbeddings, xavier_uniform
from dgcf.models.config import MAX_DIM, ModelConfig


@dataclass(frozen=True)
class RandomOrderConfig(ModelConfig):
    """What shapes a random order."""

    dim: int = 64
    """Width of the random rows: the wider, the less two users' orders have in common."""

    def __post_init__(self) -> None:
        require_range("dim", self.dim, 1, MAX_DIM)


class RandomOrder(SolvedEmbeddings):
    """``s(u, i) = ⟨r_u, r_i⟩`` with independent random rows r (n_users, dim) and (n_items, dim), by seed.

    Given r_u, the scores of all items are independent and of one law, since the r_i are; so no order of the items is
    likelier than another, and what a user sees is a uniformly random order. A matrix (n_users, n_items) of independent
    scores would give the same to each user and would not fit into memory.
    """

    def __init__(self, n_users: int, n_items: int, config: RandomOrderConfig) -> None:
        super().__init__(n_users, n_items, config, config.dim)

    def solve(self, pairs: Pairs, seed: int) -> None:
        for name, rows in self.named_buffers():
            rows.copy_(xavier_uniform(f"random.{name}", len(rows), rows.shape[1], seed))
