"""What a trained model ranks with: embeddings, or weights between items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError
from dgcf.ranking.weights import WeightMatrix


@dataclass(frozen=True)
class Embeddings:
    """A ranking by inner products, ``s(u, i) = ⟨e_u, e_i⟩``: ``users`` (n_users, width), ``items`` (n_items, width)."""

    users: Tensor
    items: Tensor

    def __post_init__(self) -> None:
        if self.users.ndim != 2 or self.items.ndim != 2 or self.users.shape[1] != self.items.shape[1]:
            raise DataError(
                f"the embeddings have shapes {tuple(self.users.shape)} and {tuple(self.items.shape)}; "
                "give (n_users, dim) and (n_items, dim) with one dim."
            )

    def scores(self, user_idx: Tensor) -> Tensor:
        """(batch,) int64 → (batch, n_items), on the device of the embeddings."""
        return self.users[user_idx.to(self.users.device)] @ self.items.T

    def normalised(self) -> Embeddings:
        """Rows of length one, so that inner products are cosines; a row of zeros stays one."""
        return Embeddings(nn.functional.normalize(self.users, dim=1), nn.functional.normalize(self.items, dim=1))


@dataclass(frozen=True)
class ItemWeights:
    """A ranking by what items say of each other, ``s(u, i) = Σ_j W[j, i]`` over the training items j of u.

    ``pairs``: the training pairs; ``weights``: W (n_items, n_items), dense or sparse. Scores are float64 and always
    summed in the order of the items: whoever else is asked for, a user's bits are the same.
    """

    pairs: Pairs
    weights: WeightMatrix

    def scores(self, user_idx: Tensor) -> Tensor:
        """(batch,) int64 → (batch, n_items), on the CPU."""
        rows = [self.weights.total(self.pairs[user]) for user in user_idx.tolist()]
        return torch.from_numpy(np.stack(rows))


Ranking = Embeddings | ItemWeights
"""What a trained model gives, and all that evaluation and recommendation need of it."""
