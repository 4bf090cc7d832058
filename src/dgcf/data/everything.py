"""The union of all splits of a dataset, as training data."""

from __future__ import annotations

from dataclasses import replace

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs


def everything(dataset: Dataset) -> Dataset:
    """Return the dataset with the pairs of all splits in train."""
    empty = Pairs.empty(dataset.n_users, dataset.n_items)
    pairs = dataset.train.union(dataset.validation, dataset.test)
    return replace(dataset, train=pairs, validation=empty, test=empty)
