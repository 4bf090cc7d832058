"""What will be trained, and how: a model's name, preset and settings, all resolved and checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dgcf.config import configure, refuse_unknown
from dgcf.models.catalog import Entry, entry
from dgcf.train.config import TrainConfig
from dgcf.train.presets import preset_settings

TRAIN_KEYS = [field.name for field in fields(TrainConfig)]


@dataclass(frozen=True)
class Recipe:
    """A model of the catalogue with its own settings, and those of the training loop."""

    entry: Entry
    preset: str
    model: Any
    train: TrainConfig

    @property
    def name(self) -> str:
        return self.entry.name

    def settings(self) -> dict[str, Any]:
        """Every setting as it will be used, flat, as ``--set`` and a run folder spell them."""
        return {**asdict(self.model), **asdict(self.train), "negatives": self.train.n_negatives}


def resolve(
    model: str, *, dataset: str = "", preset: str = "paper", settings: Mapping[str, Any] | None = None
) -> Recipe:
    """Defaults, then the preset for this model and dataset, then ``settings``; unknown names and values refused."""
    found = entry(model)
    given = dict(settings or {})
    refuse_unknown(given, [*found.keys, *TRAIN_KEYS], f"model {model}")
    chosen = {**preset_settings(preset, model, dataset), **given}
    return Recipe(
        found,
        preset,
        configure(found.config, {key: chosen[key] for key in found.keys if key in chosen}, f"model {model}"),
        configure(TrainConfig(), {key: chosen[key] for key in TRAIN_KEYS if key in chosen}, "training"),
    )
