"""Fitting a recommender: the way through data, train and evaluate that ``Recommender.fit`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dgcf.data import Dataset, Pairs, load
from dgcf.data.prepare import Preparation
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.recommend.capture import from_trained
from dgcf.recommend.snapshot import Snapshot
from dgcf.train import Observer, Trained, resolve, train

if TYPE_CHECKING:
    from dgcf.recommend.recommender import Recommender

EPOCHS_UNWATCHED = 100
"""How long to train where nothing is held out to tell and no ``epochs`` are given."""


def fit_snapshot(
    rec: Recommender, data: Any, *, on: str, titles: Mapping[str, str] | None, observer: Observer | None
) -> Snapshot:
    """Train what the recommender's parameters say."""
    if on not in ("train", "everything"):
        raise ConfigError(f"on is {on!r}, expected 'train' or 'everything'.")
    # A slip in a setting shows before the data is read.
    recipe = resolve(rec.model, preset=rec.preset, settings=rec.settings)
    in_epochs = not recipe.entry.solved
    dataset = load(data, Preparation(keep_order=recipe.train.recency > 0), titles=titles)
    settings = dict(rec.settings)
    if on == "everything":
        if in_epochs and "epochs" not in settings and len(dataset.validation):
            settings["epochs"] = _trained(rec, dataset, settings, observer)[0].best_epoch
        dataset = everything(dataset)
    if in_epochs and not len(dataset.validation):
        settings.setdefault("epochs", EPOCHS_UNWATCHED)
    trained, metrics = _trained(rec, dataset, settings, observer)
    return from_trained(trained, dataset, rec.seed, metrics)


def _trained(
    rec: Recommender, dataset: Dataset, settings: Mapping[str, Any], observer: Observer | None
) -> tuple[Trained, dict[str, float]]:
    recipe = resolve(rec.model, dataset=dataset.name, preset=rec.preset, settings=settings)
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    trained = train(dataset, recipe, seed=rec.seed, device=rec.device, validate=validate, observer=observer)
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained, dict(validate(trained.ranking)) if validate else {}


def everything(dataset: Dataset) -> Dataset:
    """All pairs of all splits for training, none held out."""
    nothing = Pairs.empty(dataset.n_users, dataset.n_items)
    every = dataset.train.union(dataset.validation, dataset.test)
    return replace(dataset, train=every, validation=nothing, test=nothing)
