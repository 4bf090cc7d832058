"""Presets: the defaults for any data, and the settings of the paper and of its authors' code.

A preset is a mapping of settings. What the paper leaves open (batch size, evaluation interval, depth of the baselines,
sampler) was chosen on the validation split; ``docs/training.md`` describes how, and what was known of the test split.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dgcf.config import Value
from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError, did_you_mean
from dgcf.models.catalog import Entry

Settings = Mapping[str, object]

# Section 5 and appendix of the paper: layers, learning rate, λ, width and ε of DGCF.
DGCF_BY_DATASET: Mapping[str, Settings] = {
    "ml-100k": {"layers": 3, "learning_rate": 1e-3, "l2": 1e-2, "dim": 128, "epsilon": 0.006},
    "ml-1m": {"layers": 2, "learning_rate": 1e-3, "l2": 1e-2, "dim": 64, "epsilon": 0.001},
    "amazon-movies-tv": {"layers": 4, "learning_rate": 1e-4, "l2": 1e-2, "dim": 128, "epsilon": 0.003},
    "gowalla": {"layers": 3, "learning_rate": 1e-4, "l2": 1e-3, "dim": 128, "epsilon": 0.004},
}

# Both presets: drop-edge at 0.1, validation on Recall@20.
PAPER_DGCF: Settings = {"edge_dropout": 0.1, "loss": "bpr", "readout": "mean"}
# The paper stops after 5 evaluations without growth and does not say how often it evaluates. Every epoch, that ends
# on the popularity plateau of the first epochs; so evaluations are sparser and patience starts later.
PAPER_LOOP: Settings = {"batch_size": 1024, "epochs": 1000, "min_epochs": 50, "evaluate_every": 5, "patience": 5}
# Section 4 draws "for each user" a positive and a negative; section 5 treats "each interaction as a positive". Both
# are the paper, so the validation split decides: ML-1M .298 against .290 for the first, ML-100K .332 against .340.
SAMPLER_BY_DATASET: Mapping[str, Settings] = {"ml-1m": {"sampler": "user"}}
# The authors' code, literally: no I, one draw of edge dropout per step, uniform users, an evaluation each epoch.
OFFICIAL_DGCF: Settings = {"self_loop": False, "cross_below_one": True, "edge_dropout": 0.1, "dropout_draws": "step"}
OFFICIAL_LOOP: Settings = {**PAPER_LOOP, "sampler": "user", "min_epochs": 0, "evaluate_every": 1}
# The paper's baselines: lr 1e-3 and λ 1e-5 (Gowalla: 1e-4 and 1e-3), the best of one to four layers.
BASELINE: Settings = {"learning_rate": 1e-3, "l2": 1e-5, "layers": 3}
BASELINE_BY_DATASET: Mapping[str, Settings] = {"gowalla": {"learning_rate": 1e-4, "l2": 1e-3}}


class Size(NamedTuple):
    """The size of the training data."""

    n_users: int
    n_items: int
    n_pairs: int

    @classmethod
    def of(cls, dataset: Dataset) -> Size:
        return cls(dataset.n_users, dataset.n_items, len(dataset.train))


UNKNOWN_SIZE = Size(0, 0, 0)
DEFAULT = "default"
# What did best, on average, on the validation parts of nine datasets with 900 to 6,000 users (docs/training.md): BPR
# against the hardest of eight negatives. A batch is a 72nd of the data, so that an epoch is about as many steps, and a
# rate as good, on data of any size.
DEFAULT_LOOP: Settings = {
    "loss": "bpr-hardest",
    "negatives": 8,
    "learning_rate": 4e-3,
    "l2": 1e-3,
    "metric": "ndcg@20",
    "min_epochs": 10,
    "evaluate_every": 2,
    "patience": 6,
}
# An update of a default training goes through all pairs again, night after night. With the rates of the first training,
# that overfits; chosen on a drifting log (docs/update.md).
DEFAULT_UPDATE: Mapping[str, float] = {"learning_rate": 8e-3, "l2": 5e-3}
# What a user takes after an update is most like what the user took last (docs/update.md).
RECENCY_OF_UPDATE = 0.5
DEFAULT_DGCF: Settings = {"self_loop": False, "blend": "auto"}
STEPS_PER_EPOCH = 72
SMALLEST_BATCH, LARGEST_BATCH = 256, 16_384
MOST_EPOCHS, FEWEST_EPOCHS = 60, 8
STEP_WORK = 3e12
"""Multiply-adds of all steps of a default training: about two minutes on two cores."""

PRESETS: Mapping[str, str] = {
    DEFAULT: "what did best on many datasets, with batches and epochs for the size of the data",
    "paper": "the paper's settings and its propagation L + Lc + I",
    "official-code": "the authors' code, literally: no I, users drawn uniformly, an evaluation each epoch",
    "plain": "every setting at its own default, whatever the dataset",
}
FOR_KNOWN_DATA = ("paper", "official-code")
"""Presets with settings for single datasets."""


def known_name(fingerprint: str, preset: str) -> str:
    """Return the known name of the data with a fingerprint, whatever its file is called; "" for any other data.

    Only presets with settings for single datasets look the name up; the others get "".
    """
    if preset not in FOR_KNOWN_DATA:
        return ""
    from dgcf.data.known import catalogue

    return next((known.name for known in catalogue().values() if fingerprint in known.fingerprints), "")


def preset_settings(preset: str, model: Entry, dataset: str, size: Size = UNKNOWN_SIZE) -> dict[str, object]:
    """Return the settings of a preset for a model on a dataset; they may include keys that the model does not have.

    Solved models, which the paper does not cover, keep their defaults with every preset.
    """
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS) or f"; there are {', '.join(PRESETS)}."
        raise ConfigError(f"there is no preset {preset!r}{hint}")
    if preset == "plain" or model.solved:
        return {}
    if preset == DEFAULT:
        return {**DEFAULT_LOOP, **_steps_for(size), **(DEFAULT_DGCF if model.name == "dgcf" else {})}
    family = family_of(dataset)
    own, dgcf = DGCF_BY_DATASET.get(family, {}), PAPER_DGCF if preset == "paper" else OFFICIAL_DGCF
    loop = {**PAPER_LOOP, **SAMPLER_BY_DATASET.get(family, {})} if preset == "paper" else OFFICIAL_LOOP
    if model.name.startswith("dgcf"):
        return {**loop, "l2": 1e-2, **dgcf, **own}
    width = {"dim": own["dim"]} if own else {}
    return {**loop, **width, **BASELINE, **BASELINE_BY_DATASET.get(family, {})}


def settings_of_update(
    preset: str, settings: Settings, before: Size, after: Size, *, ordered: bool
) -> dict[str, Value]:
    """Return the settings that an update replaces: those of a default training that are as the preset has them.

    ``before`` and ``after``: the training data of the model and of the update. ``ordered``: whether the order of its
    pairs is known, so that it can favour recent ones.
    """
    if preset != DEFAULT:
        return {}
    replaced: dict[str, Value] = {k: v for k, v in DEFAULT_UPDATE.items() if settings.get(k) == DEFAULT_LOOP[k]}
    if settings.get("batch_size") == batch_for(before):
        replaced["batch_size"] = batch_for(after)
    if settings.get("recency") in (0.0, RECENCY_OF_UPDATE) and not settings.get("weighted_sampling"):
        replaced["recency"] = RECENCY_OF_UPDATE if ordered else 0.0
    return replaced


def settings_by_data(preset: str, model: Entry) -> frozenset[str]:
    """Return the settings whose values a preset derives from the name or the size of the data."""
    sizes = (UNKNOWN_SIZE, Size(10, 10, 100), Size(1_000_000, 1_000_000, 100_000_000))
    names = ("", *DGCF_BY_DATASET)
    choices = [preset_settings(preset, model, name, size) for name in names for size in sizes]
    keys = dict.fromkeys(key for choice in choices for key in choice)
    return frozenset(key for key in keys if any(choice.get(key) != choices[0].get(key) for choice in choices))


def batch_for(size: Size) -> int:
    """Return the batch size of the default preset: the power of two with about ``STEPS_PER_EPOCH`` steps an epoch."""
    exponent = round(math.log2(max(size.n_pairs / STEPS_PER_EPOCH, 1)))
    return min(max(1 << exponent, SMALLEST_BATCH), LARGEST_BATCH)


def _steps_for(size: Size) -> dict[str, object]:
    """Return the batch size and the most epochs for data of this size.

    A step costs about the edges and the batch's rows, times the width. Large data has so few epochs that all steps
    together stay near ``STEP_WORK``; validation usually stops earlier.
    """
    if not size.n_pairs:
        return {"epochs": MOST_EPOCHS}
    batch = batch_for(size)
    edges, rows = 4 * size.n_pairs, 10 * batch
    epoch_work = math.ceil(size.n_pairs / batch) * 64 * (6 * edges + 12 * rows)
    epochs = min(max(round(STEP_WORK / epoch_work), FEWEST_EPOCHS), MOST_EPOCHS)
    return {"batch_size": batch, "epochs": epochs}


def family_of(dataset: str) -> str:
    """Return the family of a known dataset, the last part of its name: ``ml-100k`` of ``deoscirec/ml-100k``."""
    return dataset.rpartition("/")[2]
