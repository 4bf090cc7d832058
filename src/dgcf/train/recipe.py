"""Recipes: a model and all settings of its training, resolved and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dgcf.config import Value, configure, parameters, refuse_unknown
from dgcf.errors import ConfigError
from dgcf.models.catalog import CATALOG, Entry, entry
from dgcf.models.config import ModelConfig
from dgcf.train.blend.config import BlendConfig
from dgcf.train.config import TrainConfig
from dgcf.train.presets import DEFAULT, UNKNOWN_SIZE, Size, preset_settings, settings_by_data

TRAIN_KEYS = [one.name for one in fields(TrainConfig)]
BLEND_KEYS = [one.name for one in fields(BlendConfig)]
WEIGHT_SETTINGS = ("edge_weights", "weighted", "weighted_sampling")
"""The settings that use the weights of pairs."""


@dataclass(frozen=True)
class Recipe:
    """A model of the catalogue with its settings, those of the training loop, and those of the composed ranking.

    Of a solved model, ``train`` has the defaults; only ``metric`` is read. Without embeddings, nothing is blended.
    """

    entry: Entry
    preset: str
    model: ModelConfig
    train: TrainConfig
    blend: BlendConfig = field(default_factory=BlendConfig)

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def weight_setting(self) -> str | None:
        """The setting by which the training uses the weights of pairs; None if it does not use them."""
        sampling = "weighted_sampling" if self.train.weighted_sampling else None
        return self.model.weight_setting or sampling

    def settings(self) -> dict[str, Value]:
        """Return all settings as one flat mapping, with the names of ``--set`` and of a run folder."""
        blend = asdict(self.blend) if self.entry.has_embeddings else {}
        if self.entry.solved:
            return {**asdict(self.model), **blend}
        return {**asdict(self.model), **asdict(self.train), "negatives": self.train.n_negatives, **blend}


def setting_keys(model: Entry) -> list[str]:
    """Return the names of all settings that a model has: its own, of the training loop, of the composed ranking."""
    return [*model.keys, *([] if model.solved else TRAIN_KEYS), *(BLEND_KEYS if model.has_embeddings else [])]


def _refuse_misplaced(model: str, choice: Entry, given: Mapping[str, object]) -> None:
    """Refuse settings of the training loop for a solved model, and of blending for one without embeddings."""
    if misplaced := [key for key in given if choice.solved and key in TRAIN_KEYS and key not in choice.keys]:
        raise ConfigError(
            f"model {model} is solved at once, not trained in epochs, so it has no setting {misplaced[0]!r}; "
            f"it has {', '.join(choice.keys) or 'none'}."
        )
    if misplaced := [key for key in given if key in BLEND_KEYS and not choice.has_embeddings]:
        raise ConfigError(
            f"model {model} ranks by weights between items, not by embeddings, so it has no setting {misplaced[0]!r}; "
            f"leave it out, or add {model} to a model that has embeddings, with --set blend={model}."
        )


def resolve(
    model: str,
    *,
    dataset: str = "",
    preset: str = DEFAULT,
    settings: Mapping[str, object] | None = None,
    size: Size = UNKNOWN_SIZE,
) -> Recipe:
    """Return the recipe of defaults, then the preset for this model and dataset, then ``settings``.

    ``dataset``: the known name of the data, for which presets may have settings of its own. ``size``: that of the data,
    from which the default preset computes the batch size and the most epochs.

    Raises ``ConfigError`` for unknown names and values.
    """
    choice = entry(model)
    given = dict(settings or {})
    loop_keys = [] if choice.solved else TRAIN_KEYS
    blend_keys = BLEND_KEYS if choice.has_embeddings else []
    _refuse_misplaced(model, choice, given)
    refuse_unknown(given, setting_keys(choice), f"model {model}")
    values = preset_settings(preset, choice, dataset, size)
    if "loss" in given and given["loss"] != values.get("loss"):
        values.pop("negatives", None)  # as many as suit the preset's loss; another one has its own default, or none
    values |= given
    return Recipe(
        choice,
        preset,
        configure(choice.config, {key: values[key] for key in choice.keys if key in values}, f"model {model}"),
        configure(TrainConfig(), {key: values[key] for key in loop_keys if key in values}, "training"),
        configure(BlendConfig(), {key: values[key] for key in blend_keys if key in values}, "the composed ranking"),
    )


def describe_models(
    name: str | None = None, preset: str = DEFAULT, dataset: str = "", size: Size = UNKNOWN_SIZE
) -> dict[str, Any]:
    """Return all models, or the named one, and the settings of the training loop and of the composed ranking.

    Of a named model, each setting has the ``value`` that a training with the preset uses; ``from_data`` says that the
    preset derives it from the data, and that no ``size`` was given. JSON-ready.
    """
    entries = list(CATALOG.values()) if name is None else [entry(name)]
    in_epochs, embedded = (any(test) for test in zip(*((not m.solved, m.has_embeddings) for m in entries), strict=True))
    parts = {
        "training": parameters(TrainConfig()) if in_epochs else [],
        "blending": parameters(BlendConfig()) if embedded else [],
    }
    if name is None:
        described = {part: [parameter.to_dict() for parameter in settings] for part, settings in parts.items()}
        return {"models": [model.to_dict() for model in entries], **described}
    recipe = resolve(name, dataset=dataset, preset=preset, size=size)
    derived = settings_by_data(preset, recipe.entry) if size == UNKNOWN_SIZE else frozenset()
    values = recipe.settings()

    def used(settings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [{**one, "value": values[one["name"]], "from_data": one["name"] in derived} for one in settings]

    model = recipe.entry.to_dict()
    described = {part: used(parameter.to_dict() for parameter in settings) for part, settings in parts.items()}
    return {"preset": preset, "models": [{**model, "parameters": used(model["parameters"])}], **described}
