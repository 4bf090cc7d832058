"""The datasets of the reproduction: ``recipes/reproduce/data.toml`` names them, their splits and their fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.config import read_toml
from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.experiments.reproduce.schema import COUNT, COUNT_OR_NONE, WORD, WORDS, require_kinds

ENTRIES = {
    "title": WORD,
    "known": WORD,
    "family": WORD,
    "seeds": COUNT,
    "fingerprints": WORDS,
    "splits": COUNT_OR_NONE,
    "validation_of": WORD,
    "order_of": WORD,
    "order": WORD,
    "settings_of": WORD,
}
"""What a dataset may have, each with its kind; the first five it must have."""
NEEDED = tuple(ENTRIES)[:5]


@dataclass(frozen=True)
class Source:
    """One dataset under a short ``name``; ``known`` is what ``dgcf data list`` calls it.

    ``name`` is also its folder of tuned settings in ``recipes``, ``family`` its name in the paper's tables; ``seeds``
    how often a model is trained on it. With ``splits`` all its pairs are split anew, 70/10/20 within each user, by that
    many seeds, and a training with seed s is on split s. ``validation_of`` names a known dataset: the training pairs
    that are validation pairs there become the validation part. ``order_of`` names one with all of its pairs, and with
    the order that it has lost itself; ``order`` is what ``Dataset.order`` has to be, where it matters. ``settings_of``
    names the dataset whose trials decide for this one too, which has no validation part itself: it is trained for as
    many epochs as were best there.
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
    def made_here(self) -> bool:
        """Whether its parts are not those of the known dataset, so that the reproduction alone has it."""
        return bool(self.splits or self.validation_of or self.order_of)

    def variant(self, seed: int) -> int:
        """Which of the splits a seed trains on: its own, or the only one."""
        if self.splits and seed >= self.splits:
            raise ConfigError(
                f"{self.name} has {self.splits} random splits, one for each seed, and seed {seed} is asked for; "
                f"ask for at most {self.splits} seeds."
            )
        return seed if self.splits else 0

    def fingerprint(self, seed: int) -> str:
        """That of the dataset which the seed trains on."""
        return self.fingerprints[self.variant(seed)]

    def folder(self, variant: int) -> str:
        """The name of the prepared dataset's folder."""
        return f"{self.name}-{variant}" if self.splits else self.name


def read_sources(recipes: Path) -> dict[str, Source]:
    """All datasets by name."""
    path = recipes / "reproduce" / "data.toml"
    found = {}
    for name, about in read_toml(path).items():
        if not isinstance(about, dict):
            raise ConfigError(f"{path} has {name} = {about!r} outside any dataset; write it below a [name].")
        require_kinds(about, ENTRIES, f"dataset {name} of {path}")
        found[name] = _source(name, about, path)
    for source in found.values():
        if source.settings_of and named(found, source.settings_of, f"{path}, in {source.name},") is source:
            raise ConfigError(f"dataset {source.name} of {path} takes its own settings; name another as settings_of.")
    return found


def _source(name: str, about: Mapping[str, Any], path: Path) -> Source:
    if lacking := [entry for entry in NEEDED if entry not in about]:
        raise ConfigError(f"dataset {name} of {path} has no {lacking[0]}; give it {', '.join(NEEDED)}.")
    source = Source(name, **{**about, "fingerprints": tuple(about["fingerprints"])})
    if len(source.fingerprints) != max(source.splits, 1):
        raise ConfigError(
            f"dataset {name} of {path} has {len(source.fingerprints)} fingerprints for {max(source.splits, 1)} splits; "
            "give one for each."
        )
    return source


def named(sources: Mapping[str, Source], name: str, where: str) -> Source:
    """The dataset of that name, which ``where`` asks for."""
    if name not in sources:
        hint = did_you_mean(name, sources) or f"; there are {', '.join(sources)}."
        raise ConfigError(f"{where} asks for the dataset {name!r}{hint}")
    return sources[name]


def obtain(source: Source, variant: int, prepared: Path | None = None) -> Dataset:
    """The dataset: out of a folder of prepared ones, or made from the known files; either way checked."""
    dataset = make(source, variant) if prepared is None else Dataset.load(prepared / source.folder(variant))
    checks = [("fingerprint", dataset.fingerprint, source.fingerprints[variant], "other data")]
    checks += [("order", dataset.order or "none", source.order, "in another order")] if source.order else []
    again = "prepare it again with `dgcf reproduce ID --prepare FOLDER`"
    for name, found, expected, what in checks:
        if found != expected:
            raise DataError(
                f"{source.folder(variant)} has the {name} {found[:12]}, the recipes expect {expected[:12]}: it is "
                f"{what}; {'correct the recipe' if prepared is None else again}."
            )
    return dataset


def make(source: Source, variant: int) -> Dataset:
    """From the known dataset, split anew or with a validation part taken out of train where the recipe says so."""
    from dgcf.data import load  # here: a bare machine has prepared datasets and no table engine

    dataset = load(source.known)
    if source.splits:
        dataset = resplit(dataset, variant)
    if source.order_of:
        dataset = ordered(dataset, load(source.order_of))
    if source.validation_of:
        dataset = carved(dataset, load(source.validation_of))
    return dataset


def resplit(dataset: Dataset, seed: int) -> Dataset:
    """All pairs split anew at random, 70/10/20 within each user."""
    whole = dataset.train.union(dataset.validation, dataset.test)
    train, validation, test = _parts(dataset, whole, (0.7, 0.1, 0.2), seed)
    return replace(dataset, train=train, validation=validation, test=test)


def carved(dataset: Dataset, other: Dataset) -> Dataset:
    """The training pairs that are validation pairs of ``other`` become the validation part; test stays as it is."""
    _require_alike(dataset, other, "validation_of")
    chosen = np.isin(dataset.train.keys(), other.validation.keys())
    return replace(dataset, train=dataset.train.where(~chosen), validation=dataset.train.where(chosen))


def ordered(dataset: Dataset, other: Dataset) -> Dataset:
    """The same dataset with each user's pairs in the order that they have in ``other``."""
    _require_alike(dataset, other, "order_of")
    every = other.train.union(other.validation, other.test)
    if every.place is None:
        raise DataError(f"{other.name} knows no order of its pairs; name another dataset as order_of.")
    key, place = every.keys(), every.place
    train, validation, test = (dataset.split(name).with_places(key, place) for name in SPLITS)
    return replace(dataset, train=train, validation=validation, test=test)


def _require_alike(dataset: Dataset, other: Dataset, entry: str) -> None:
    if (dataset.users, dataset.items) != (other.users, other.items):
        raise DataError(
            f"{dataset.name} and {other.name} have not the same users and items, so that one cannot have what the "
            f"other knows of its pairs; name another dataset as {entry}."
        )


def _parts(dataset: Dataset, pairs: Pairs, ratios: tuple[float, float, float], seed: int) -> list[Pairs]:
    from dgcf.data.interactions import Interactions
    from dgcf.data.splits import Split, assign

    user_idx = np.repeat(np.arange(pairs.n_users, dtype=np.int32), pairs.user_degrees)
    item_idx, n = pairs.indices, len(pairs)
    rows = Interactions(dataset.users, dataset.items, user_idx, item_idx, np.zeros(n, dtype=np.int8), None, n)
    part = assign(rows, Split(ratios=ratios, seed=seed))
    chosen = (part == number for number in range(3))
    return [Pairs.from_indices(user_idx[one], item_idx[one], pairs.n_users, pairs.n_items) for one in chosen]
