"""Recipes: a model and all settings of its training, resolved and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dgcf.config import Value, configure, parameters, refuse_unknown
from dgcf.errors import ConfigError
from dgcf.models.catalog import CATALOG, Entry, entry
from dgcf.models.config import ModelConfig
from dgcf.train.config import TrainConfig
from dgcf.train.presets import preset_settings

TRAIN_KEYS = [field.name for field in fields(TrainConfig)]


@dataclass(frozen=True)
class Recipe:
    """A model of the catalogue with its settings, and those of the training loop.

    Of a solved model, ``train`` has the defaults; only ``metric`` is read.
    """

    entry: Entry
    preset: str
    model: ModelConfig
    train: TrainConfig

    @property
    def name(self) -> str:
        return self.entry.name

    def settings(self) -> dict[str, Value]:
        """Return all settings as one flat mapping, with the names of ``--set`` and of a run folder."""
        if self.entry.solved:
            return asdict(self.model)
        return {**asdict(self.model), **asdict(self.train), "negatives": self.train.n_negatives}


def resolve(
    model: str, *, dataset: str = "", preset: str = "paper", settings: Mapping[str, object] | None = None
) -> Recipe:
    """Return the recipe of defaults, then the preset for this model and dataset, then ``settings``.

    Raises ``ConfigError`` for unknown names and values.
    """
    choice = entry(model)
    given = dict(settings or {})
    loop_keys = [] if choice.solved else TRAIN_KEYS
    if misplaced := [key for key in given if choice.solved and key in TRAIN_KEYS and key not in choice.keys]:
        raise ConfigError(
            f"model {model} is solved at once, not trained in epochs, so it has no setting {misplaced[0]!r}; "
            f"it has {', '.join(choice.keys) or 'none'}."
        )
    refuse_unknown(given, [*choice.keys, *loop_keys], f"model {model}")
    values = {**preset_settings(preset, choice, dataset), **given}
    return Recipe(
        choice,
        preset,
        configure(choice.config, {key: values[key] for key in choice.keys if key in values}, f"model {model}"),
        configure(TrainConfig(), {key: values[key] for key in loop_keys if key in values}, "training"),
    )


def describe_models(name: str | None = None) -> dict[str, Any]:
    """Return all models, or the named one, and the settings of the training loop if any of them is trained in epochs.

    JSON-ready.
    """
    entries = list(CATALOG.values()) if name is None else [entry(name)]
    in_epochs = any(not model.solved for model in entries)
    return {
        "models": [model.to_dict() for model in entries],
        "training": [parameter.to_dict() for parameter in parameters(TrainConfig())] if in_epochs else [],
    }
