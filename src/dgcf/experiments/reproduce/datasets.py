"""The datasets of the experiments: read ``recipes/reproduce/data.toml``, build or load each dataset, and check it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dgcf.config import read_toml
from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.experiments.reproduce.schema import COUNT, COUNT_OR_NONE, WORD, WORDS, check_entries

REQUIRED = {"title": WORD, "known": WORD, "family": WORD, "seeds": COUNT, "fingerprints": WORDS}
OPTIONAL = {"splits": COUNT_OR_NONE, "validation_of": WORD, "order_of": WORD, "order": WORD, "settings_of": WORD}
"""The entries of a dataset."""


@dataclass(frozen=True)
class Source:
    """A dataset of the experiments, by a short ``name``; ``known`` is its name in ``dgcf data list``.

    ``name`` is also the folder of its tuned settings in ``recipes``, and ``family`` its name in the paper's tables.
    ``seeds`` is the number of trainings of each model.

    - ``splits``: if positive, all pairs are split again at random, 70/10/20 within each user, by that many seeds, and a
      training with seed s uses split s.
    - ``validation_of``: a known dataset; training pairs that are validation pairs there become the validation part.
    - ``order_of``: a known dataset with the same pairs, whose order they take.
    - ``order``: the expected ``Dataset.order``, if it matters.
    - ``settings_of``: the dataset whose trials decide the settings for this one, which has no validation part. It is
      trained for as many epochs as were best there.
    """

    name: str
    title: str
    known: str
    family: str
    seeds: int
    fingerprints: tuple[str, ...]
    splits: int = 0
    validation_of: str = ""
    order_of: str = ""
    order: str = ""
    settings_of: str = ""

    @property
    def derived(self) -> bool:
        """Whether it differs from the known dataset, so that only these experiments have it."""
        return bool(self.splits or self.validation_of or self.order_of)

    def variant(self, seed: int) -> int:
        """Return the number of the split that a seed trains on."""
        if self.splits and seed >= self.splits:
            raise ConfigError(
                f"{self.name} has {self.splits} random splits, one for each seed, and seed {seed} was requested; "
                f"request at most {self.splits} seeds."
            )
        return seed if self.splits else 0

    def fingerprint(self, seed: int) -> str:
        """Return the fingerprint of the dataset that a seed trains on."""
        return self.fingerprints[self.variant(seed)]

    def folder(self, variant: int) -> str:
        """Return the folder name of the prepared dataset."""
        return f"{self.name}-{variant}" if self.splits else self.name


def read_sources(recipes: Path) -> dict[str, Source]:
    """Read all datasets, by name."""
    path = recipes / "reproduce" / "data.toml"
    sources: dict[str, Source] = {}
    for name, entries in read_toml(path).items():
        if not isinstance(entries, dict):
            raise ConfigError(f"{path} has {name} = {entries!r} outside any dataset; write it below a [name].")
        where = f"dataset {name} of {path}"
        check_entries(entries, REQUIRED | OPTIONAL, where)
        if missing := [entry for entry in REQUIRED if entry not in entries]:
            raise ConfigError(f"{where} has no {missing[0]}; give it {', '.join(REQUIRED)}.")
        source = sources[name] = Source(name, **{**entries, "fingerprints": tuple(entries["fingerprints"])})
        given, needed = len(source.fingerprints), max(source.splits, 1)
        if given != needed:
            raise ConfigError(f"{where} has {given} fingerprints for {needed} splits; give one for each.")
    for source in sources.values():
        if source.settings_of and find_source(sources, source.settings_of, f"{path}, in {source.name},") is source:
            raise ConfigError(f"dataset {source.name} of {path} takes its own settings; name another as settings_of.")
    return sources


def find_source(sources: Mapping[str, Source], name: str, where: str) -> Source:
    """Return the dataset called ``name``; ``where`` names the file that uses it."""
    if name not in sources:
        hint = did_you_mean(name, sources) or f"; there are {', '.join(sources)}."
        raise ConfigError(f"{where} names the unknown dataset {name!r}{hint}")
    return sources[name]


def open_dataset(source: Source, variant: int, prepared: Path | None = None) -> Dataset:
    """Load the dataset from the folder ``prepared``, or build it from the known files; check its fingerprint."""
    dataset = build_dataset(source, variant) if prepared is None else Dataset.load(prepared / source.folder(variant))
    checks = [("fingerprint", dataset.fingerprint, source.fingerprints[variant], "other data")]
    checks += [("order", dataset.order or "none", source.order, "in another order")] if source.order else []
    again = "prepare it again with `dgcf reproduce ID --prepare FOLDER`"
    for name, actual, expected, what in checks:
        if actual != expected:
            raise DataError(
                f"{source.folder(variant)} has the {name} {actual[:12]}, the recipes expect {expected[:12]}: it is "
                f"{what}; {'correct the recipe' if prepared is None else again}."
            )
    return dataset


def build_dataset(source: Source, variant: int) -> Dataset:
    """Build the dataset from the known one: split, ordered and carved as its entries say."""
    from dgcf.data import load  # not at the top: a bare machine has prepared datasets and no table engine

    dataset = load(source.known)
    if source.splits:
        dataset = resplit(dataset, variant)
    if source.order_of:
        dataset = restore_order(dataset, load(source.order_of))
    if source.validation_of:
        dataset = carve_validation(dataset, load(source.validation_of))
    return dataset


def resplit(dataset: Dataset, seed: int) -> Dataset:
    """Split all pairs again at random, 70/10/20 within each user."""
    from dgcf.data.interactions import Interactions
    from dgcf.data.splits import Split, assign

    pairs = dataset.train.union(dataset.validation, dataset.test)
    user_idx = np.repeat(np.arange(pairs.n_users, dtype=np.int32), pairs.user_degrees)
    item_idx, n = pairs.indices, len(pairs)
    rows = Interactions(dataset.users, dataset.items, user_idx, item_idx, np.zeros(n, dtype=np.int8), None, n)
    part = assign(rows, Split(ratios=(0.7, 0.1, 0.2), seed=seed))
    masks = (part == number for number in range(3))
    train, validation, test = (
        Pairs.from_indices(user_idx[mask], item_idx[mask], pairs.n_users, pairs.n_items) for mask in masks
    )
    return replace(dataset, train=train, validation=validation, test=test)


def carve_validation(dataset: Dataset, other: Dataset) -> Dataset:
    """Move the training pairs that are validation pairs of ``other`` to validation; test does not change."""
    _require_same_ids(dataset, other, "validation_of")
    chosen = np.isin(dataset.train.keys(), other.validation.keys())
    return replace(dataset, train=dataset.train.where(~chosen), validation=dataset.train.where(chosen))


def restore_order(dataset: Dataset, other: Dataset) -> Dataset:
    """Return the dataset with the pairs of each user in the order that they have in ``other``."""
    _require_same_ids(dataset, other, "order_of")
    every = other.train.union(other.validation, other.test)
    if every.place is None:
        raise DataError(f"{other.name} has no order of its pairs; name another dataset as order_of.")
    key, place = every.keys(), every.place
    train, validation, test = (dataset.split(name).with_values(key, place=place) for name in SPLITS)
    return replace(dataset, train=train, validation=validation, test=test)


def _require_same_ids(dataset: Dataset, other: Dataset, entry: str) -> None:
    if (dataset.users, dataset.items) != (other.users, other.items):
        raise DataError(
            f"{dataset.name} and {other.name} differ in users or items, expected the same in both; "
            f"name another dataset as {entry}."
        )
