"""Pairs and datasets with a random order of each user's pairs, with ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.pairs import Pairs
from dgcf.random import uniform


def in_order(pairs: Pairs, seed: int = 0, times: int = 6) -> Pairs:
    """Return the same pairs with places of random times; ``times`` is the number of distinct times."""
    time = (uniform(seed, "test/order", len(pairs)) * times).astype(np.int64)
    place = [np.count_nonzero(time[pairs.user_idx == u] < t) for u, t in zip(pairs.user_idx, time, strict=True)]
    return replace(pairs, place=np.array(place, dtype=np.int32))


def dataset_in_order(dataset: Dataset, seed: int = 0) -> Dataset:
    """Return the same dataset with places over all splits."""
    whole = in_order(dataset.train.union(dataset.validation, dataset.test), seed)
    key, place = whole.keys(), whole.place
    assert place is not None
    train, validation, test = (dataset.split(name).with_values(key, place=place) for name in SPLITS)
    return replace(dataset, train=train, validation=validation, test=test)


def later(pairs: Pairs) -> list[int]:
    """Return the number of later pairs of the same user for each pair, by plain loops."""
    assert pairs.place is not None
    rows = list(zip(pairs.user_idx.tolist(), pairs.place.tolist(), strict=True))
    return [sum(other == user and then > place for other, then in rows) for user, place in rows]
