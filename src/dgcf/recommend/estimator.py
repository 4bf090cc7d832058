"""The recommender as an estimator: its parameters checked and listed, the data that it is fitted to, its progress.

Imports torch, by the catalogue of models.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.config import Value, refuse_unknown
from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.data.columns import ReadOptions
from dgcf.data.paths import is_read
from dgcf.data.prepare import Preparation
from dgcf.errors import DataWarning
from dgcf.models.catalog import entry
from dgcf.recommend.progress import training_bar
from dgcf.recommend.wording import as_arguments
from dgcf.train import Observer, Recipe, resolve
from dgcf.train.plan import Plan
from dgcf.train.presets import settings_by_data
from dgcf.train.run.observer import Several

if TYPE_CHECKING:
    from dgcf.recommend.recommender import Recommender

Settings = Mapping[str, Any]


def resolved(model: str, preset: str, settings: Settings) -> Recipe:
    """Return the recipe for data of any name and size; raise ``ConfigError`` for an unknown name or a wrong value."""
    return resolve(model, preset=preset, settings=effective(model, preset, settings))


def effective(model: str, preset: str, settings: Settings) -> dict[str, Any]:
    """Return the settings without those that are None because the preset derives them from the data."""
    derived = settings_by_data(preset, entry(model))
    return {name: value for name, value in settings.items() if value is not None or name not in derived}


def listed(model: str, preset: str, settings: Settings) -> dict[str, Value]:
    """Return all settings of a model with their values: as given, else of the preset.

    A value is None if the preset derives it from the data, and ``negatives`` if it is the default of another loss.
    """
    recipe = resolved(model, preset, settings)
    derived = settings_by_data(preset, recipe.entry)
    values = {name: None if name in derived else value for name, value in recipe.settings().items()}
    if "loss" in settings and settings["loss"] != resolve(model, preset=preset).train.loss:
        values["negatives"] = None
    return {**values, **settings}


def changed(model: str, preset: str, settings: Settings) -> dict[str, Any]:
    """Return the settings that differ from those of the preset."""
    own = listed(model, preset, {})
    if "loss" in settings:
        own["negatives"] = listed(model, preset, {"loss": settings["loss"]})["negatives"]
    return {name: value for name, value in settings.items() if name not in own or value != own[name]}


def read_data(
    rec: Recommender, source: Any, on: str, titles: Mapping[str, str] | str | Path | None, reading: Mapping[str, Any]
) -> Dataset:
    """Return the dataset of ``fit``; ``reading`` are fields of ``ReadOptions``, ``titles`` a mapping or a file."""
    Plan(rec.model, rec.preset, rec.settings, on)  # type: ignore[arg-type] # refused before the data is read
    recency = resolved(rec.model, rec.preset, rec.given).train.recency > 0
    known = [field.name for field in dataclasses.fields(ReadOptions) if field.name != "titles"]
    refuse_unknown(reading, known, "fit")
    file = {"titles": str(titles)} if isinstance(titles, str | Path) else {}
    mapping = None if isinstance(titles, str | Path) else titles
    options = ReadOptions(**reading, **file)  # type: ignore[arg-type]
    dataset = load_data(source, Preparation(keep_order=recency), options, titles=mapping)
    if is_read(source):
        for note in dataset.record.get("notes", []):
            warnings.warn(as_arguments(note), DataWarning, stacklevel=4)  # where fit was called
    return dataset


def observed(observer: Observer | None, progress: bool | None) -> AbstractContextManager[Observer | None]:
    """Return ``observer`` with a progress bar on stderr: if ``progress`` is true, or None and stderr is a terminal."""
    bar = training_bar(progress)
    if bar is None:
        return nullcontext(observer)
    return _Both(bar, observer)


class _Both(AbstractContextManager[Observer]):
    """A bar that is shown while the block runs, beside another observer."""

    def __init__(self, bar: Any, observer: Observer | None) -> None:
        self.bar, self.observer = bar, observer

    def __enter__(self) -> Observer:
        self.bar.start()
        return Several(self.bar, *([] if self.observer is None else [self.observer]))

    def __exit__(self, *problem: object) -> None:
        self.bar.stop()
