"""The plan of a training: on the training pairs alone, or on all pairs after validation has chosen the epochs.

With ``on="everything"`` there are two stages. The first trains on the training pairs; validation chooses its epochs,
and the item weights of a composed ranking. The second trains on the pairs of all splits with these settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dgcf.data.dataset import Dataset
from dgcf.data.everything import everything
from dgcf.errors import ConfigError, did_you_mean
from dgcf.train.blend import Blending
from dgcf.train.presets import DEFAULT, Size, known_name
from dgcf.train.recipe import Recipe, resolve

On = Literal["train", "everything"]
EPOCHS_UNWATCHED = {False: 100, True: 30}
"""Epochs to train if there is no validation split and no ``epochs`` are given; fewer at the default preset's rate."""


@dataclass(frozen=True)
class Plan:
    """A model, a preset and the settings that override it, as the user gave them, and the pairs to train ``on``."""

    model: str
    preset: str = DEFAULT
    settings: Mapping[str, Any] = field(default_factory=dict)
    on: On = "train"

    def __post_init__(self) -> None:
        if self.on not in get_args(On):
            near = did_you_mean(str(self.on), get_args(On)) or "."
            raise ConfigError(f"on is {self.on!r}, expected 'train' or 'everything'{near}")

    def first_stage(self, dataset: Dataset) -> Recipe | None:
        """Return the recipe of the stage that validation watches; None if the plan has only one stage."""
        if self.on == "train" or "epochs" in self.settings or not len(dataset.validation):
            return None
        recipe = self._recipe(dataset, known_name(dataset.fingerprint, self.preset), self.settings)
        return None if recipe.entry.solved else recipe

    def last_stage(self, dataset: Dataset, chosen: Mapping[str, Any] | None = None) -> tuple[Dataset, Recipe]:
        """Return the dataset and the recipe of the last or only stage; ``chosen`` are the settings of the first."""
        known = known_name(dataset.fingerprint, self.preset)
        dataset = everything(dataset) if self.on == "everything" else dataset
        settings = {**self.settings, **(chosen or {})}
        if self.epochs_unwatched(dataset) is not None:
            settings.setdefault("epochs", self.epochs_unwatched(dataset))
        return dataset, self._recipe(dataset, known, settings)

    def epochs_unwatched(self, dataset: Dataset) -> int | None:
        """Return the epochs that are taken because neither a setting nor validation decides; None if one does."""
        if "epochs" in self.settings or len(dataset.validation):
            return None
        solved = resolve(self.model, preset=self.preset, settings=self.settings).entry.solved
        return None if solved else EPOCHS_UNWATCHED[self.preset == DEFAULT]

    def _recipe(self, dataset: Dataset, known: str, settings: Mapping[str, Any]) -> Recipe:
        return resolve(self.model, dataset=known, preset=self.preset, settings=settings, size=Size.of(dataset))


def chosen_settings(best_epoch: int, blending: Blending | None) -> dict[str, Any]:
    """Return the settings that the first stage chose: the epochs, and the item weights of a composed ranking."""
    return {"epochs": best_epoch, **({} if blending is None else blending.settings())}
