"""The only masked top-k of dgcf: every ranking, for evaluation or recommendation, is made here."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dgcf.data.pairs import Pairs

MEMORY = 256 * 2**20


class Scorer(Protocol):
    """All that ranking knows of a model."""

    def scores(self, user_idx: Tensor) -> Tensor:
        """(batch,) int64 user indices, on the CPU → (batch, n_items) scores, on any device; larger is better."""
        ...


class EmbeddingScorer:
    """Inner products ``s(u, i) = ⟨e_u, e_i⟩``: ``users`` (n_users, dim), ``items`` (n_items, dim)."""

    def __init__(self, users: Tensor, items: Tensor) -> None:
        self.users = users.detach()
        self.items = items.detach()

    def scores(self, user_idx: Tensor) -> Tensor:
        return self.users[user_idx.to(self.users.device)] @ self.items.T


class TopK(NamedTuple):
    """``item_idx`` (n, k) int64, best first, −1 where no candidate is left; ``scores`` (n, k), −∞ there."""

    item_idx: Tensor
    scores: Tensor


def top_k(
    scorer: Scorer,
    user_idx: NDArray[np.integer],
    mask: Pairs,
    k: int,
    *,
    memory: int = MEMORY,
    chunk: int | None = None,
    block: int | None = None,
) -> TopK:
    """The k best items of each user, without those that ``mask`` gives the user; ties go to the smaller index.

    ``chunk`` users are ranked at a time, by default as many as ``memory`` bytes hold.
    """
    raise NotImplementedError
