"""Planted tastes, small enough to learn in a second, and how to judge whether they were learned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.vocabulary import Vocabulary
from dgcf.models import Embeddings
from dgcf.random import uniform
from dgcf.train import Validate

GROUPS = 4


def planted_tastes(n_users: int = 60, n_items: int = 48, seed: int = 0, validation: bool = True) -> Dataset:
    """User u likes the items of its group, ``i ≡ u (mod 4)``: what is held out can be known from the rest."""
    users, items = np.nonzero(np.arange(n_users)[:, None] % GROUPS == np.arange(n_items) % GROUPS)
    drawn = uniform(seed, "test/planted", len(users))
    test = drawn < 0.2
    held = (drawn >= 0.2) & (drawn < 0.35) if validation else np.zeros(len(users), dtype=bool)

    def pairs(chosen: np.ndarray) -> Pairs:
        return Pairs.from_indices(users[chosen], items[chosen], n_users, n_items)

    return Dataset(
        "planted",
        Vocabulary.from_ids("user", range(n_users), "integer"),
        Vocabulary.from_ids("item", range(n_items), "integer"),
        pairs(~test & ~held),
        pairs(held),
        pairs(test),
    )


def recall(found: Embeddings, dataset: Dataset, split: str, k: int = 20) -> float:
    """Recall@k with training items masked, by plain loops."""
    scores = found.users @ found.items.T
    values = []
    for user in range(dataset.n_users):
        wanted = set(dataset.split(split)[user].tolist())
        if wanted:
            row = scores[user].clone()
            row[dataset.train[user].tolist()] = -float("inf")
            values.append(len(wanted & set(row.topk(k).indices.tolist())) / len(wanted))
    return float(np.mean(values))


def validation_of(dataset: Dataset, k: int = 20) -> Validate:
    def validate(found: Embeddings) -> Mapping[str, float]:
        return {f"recall@{k}": recall(found, dataset, "validation", k)}

    return validate
