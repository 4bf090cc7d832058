"""Measure a recommender on held-out pairs: those of the data that it was fitted to, or of other data; needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.config import refuse_unknown
from dgcf.data import Dataset, Pairs, Vocabulary
from dgcf.data import load as load_data
from dgcf.data.columns import ReadOptions
from dgcf.data.everything import everything
from dgcf.data.paths import is_read, local_path
from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.evaluator import Evaluator
from dgcf.recommend.heldout import HeldOut, Measurement
from dgcf.recommend.snapshot import Snapshot

_NOT_OF_PAIRS = ("title", "timestamp", "day_first", "weight")
"""Beginnings of the options of reading that a measurement does not need."""


@dataclass(frozen=True)
class _Splits:
    """Training pairs, and the pairs held out from them."""

    train: Pairs
    validation: Pairs
    test: Pairs


def measure(
    snapshot: Snapshot,
    held_out: HeldOut,
    data: Any,
    reading: Mapping[str, Any],
    *,
    k: int | Sequence[int],
    split: str,
    mask: str,
) -> Measurement:
    """Return the metrics on a split of ``data``, or of the data that the recommender was fitted to if it is None.

    ``reading`` are fields of ``ReadOptions`` that differ from those by which the data of ``fit`` was read.
    """
    refuse_unknown(reading, [field.name for field in fields(ReadOptions)], "evaluate")
    if data is None and reading:
        raise ConfigError(f"{next(iter(reading))} is for reading other data; give it, or leave the option out.")
    if data is None:
        splits = _own_splits(snapshot, held_out)
    else:
        splits = _other_splits(snapshot, data, _options(data, held_out, reading))
    ks = [k] if isinstance(k, int | np.integer) else list(k)
    evaluator = Evaluator(splits, split=split, mask=mask, ks=[int(one) for one in ks])
    return Measurement(evaluator.evaluate(snapshot.ranking), snapshot.model)


def _own_splits(snapshot: Snapshot, held_out: HeldOut) -> _Splits:
    if held_out.everything:
        raise DataError(
            "this recommender was trained on the pairs of all splits, so that none is left to measure it on; give "
            "other data: evaluate(data)."
        )
    held_out.require()
    dataset = held_out.load()
    if dataset is None:
        raise DataError(
            "this recommender was loaded from a file, which does not say which pairs were held out; give the data: "
            "evaluate(data)."
        )
    return _Splits(snapshot.train, dataset.validation, dataset.test)


def _other_splits(snapshot: Snapshot, data: Any, options: ReadOptions) -> _Splits:
    """Return the held-out pairs of other data by the recommender's indices; of rows without a split, all of them."""
    dataset = _read(data, options)
    users, items = (
        _index(ours, theirs)
        for ours, theirs in zip((snapshot.users, snapshot.items), (dataset.users, dataset.items), strict=True)
    )
    if not (users >= 0).any() or not (items >= 0).any():
        side = "user" if not (users >= 0).any() else "item"
        raise DataError(
            f"no {side} of {dataset.name} is one of those that the recommender was trained on; give data with the same "
            "ids."
        )
    parts = [_translate(pairs, users, items, snapshot) for pairs in (dataset.validation, dataset.test)]
    if not len(dataset.validation) and not len(dataset.test):
        parts[1] = _translate(dataset.train, users, items, snapshot)
    return _Splits(snapshot.train, *parts)


def _options(data: Any, held_out: HeldOut, reading: Mapping[str, Any]) -> ReadOptions:
    """Return how to read the pairs of other rows: as the data of ``fit`` was, except for what ``reading`` names."""
    own = held_out.dataset.read_options if isinstance(held_out.dataset, Dataset) and is_read(data) else {}
    of_pairs = {name: value for name, value in own.items() if not name.startswith(_NOT_OF_PAIRS)}
    return ReadOptions(**{**of_pairs, **reading})


def _read(data: Any, options: ReadOptions) -> Dataset:
    """Return a dataset; of rows without a split, all are in train."""
    dataset = load_data(data, read=options)
    is_path = isinstance(data, str | Path)
    prepared = (local_path(data) / "dataset.json").is_file() or not local_path(data).exists() if is_path else False
    if prepared or isinstance(data, Dataset) or dataset.record.get("split", {}).get("method") == "given":
        return dataset
    return everything(dataset)


def _index(ours: Vocabulary, theirs: Vocabulary) -> Any:
    """Return our index of each of their ids, −1 for one that we do not have."""
    return np.array([ours.index_of(text) if text in ours else -1 for text in theirs.texts], dtype=np.int64)


def _translate(pairs: Pairs, users: Any, items: Any, snapshot: Snapshot) -> Pairs:
    user_idx, item_idx = users[pairs.user_idx], items[pairs.indices]
    known = (user_idx >= 0) & (item_idx >= 0)
    return Pairs.from_indices(user_idx[known], item_idx[known], snapshot.n_users, snapshot.n_items)
