"""What will be trained, and how: a model's name, preset and settings, all resolved and checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dgcf.config import configure, parameters, refuse_unknown
from dgcf.errors import ConfigError
from dgcf.models.catalog import CATALOG, Entry, entry
from dgcf.models.config import ModelConfig
from dgcf.train.config import TrainConfig
from dgcf.train.presets import preset_settings

TRAIN_KEYS = [field.name for field in fields(TrainConfig)]


@dataclass(frozen=True)
class Recipe:
    """A model of the catalogue with its own settings, and those of the training loop.

    A model that is solved at once leaves ``train`` at its defaults; of these only ``metric`` is read.
    """

    entry: Entry
    preset: str
    model: ModelConfig
    train: TrainConfig

    @property
    def name(self) -> str:
        return self.entry.name

    def settings(self) -> dict[str, Any]:
        """Every setting as it will be used, flat, as ``--set`` and a run folder spell them."""
        if self.entry.solved:
            return asdict(self.model)
        return {**asdict(self.model), **asdict(self.train), "negatives": self.train.n_negatives}


def resolve(
    model: str, *, dataset: str = "", preset: str = "paper", settings: Mapping[str, object] | None = None
) -> Recipe:
    """Defaults, then the preset for this model and dataset, then ``settings``; unknown names and values refused."""
    found = entry(model)
    given = dict(settings or {})
    loop_keys = [] if found.solved else TRAIN_KEYS
    _refuse_loop(found, given)
    refuse_unknown(given, [*found.keys, *loop_keys], f"model {model}")
    chosen = {**preset_settings(preset, found, dataset), **given}
    return Recipe(
        found,
        preset,
        configure(found.config, {key: chosen[key] for key in found.keys if key in chosen}, f"model {model}"),
        configure(TrainConfig(), {key: chosen[key] for key in loop_keys if key in chosen}, "training"),
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


def _refuse_loop(found: Entry, given: Mapping[str, object]) -> None:
    """Say why a model that is solved at once has no learning rate."""
    for key in given:
        if found.solved and key in TRAIN_KEYS and key not in found.keys:
            raise ConfigError(
                f"model {found.name} is solved at once, not trained in epochs, so it has no setting {key!r}; "
                f"it has {', '.join(found.keys) or 'none'}."
            )
