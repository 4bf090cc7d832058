"""Presets: the settings of the paper and of its authors' code, for each dataset and model.

A preset is a mapping of settings. What the paper leaves open (batch size, evaluation interval, depth of the baselines,
sampler) was chosen on the validation split; ``docs/training.md`` describes how, and what was known of the test split.
"""

from __future__ import annotations

from collections.abc import Mapping

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
ALIASES: Mapping[str, str] = {"amazon": "amazon-movies-tv"}

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

PRESETS: Mapping[str, str] = {
    "paper": "the paper's settings and its propagation L + Lc + I",
    "official-code": "the authors' code, literally: no I, users drawn uniformly, an evaluation each epoch",
    "plain": "the library's own defaults, whatever the dataset",
}


def preset_settings(preset: str, model: Entry, dataset: str) -> dict[str, object]:
    """Return the settings of a preset for a model on a dataset; they may include keys that the model does not have.

    Solved models, which the paper does not cover, keep their defaults with every preset.
    """
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS) or f"; there are {', '.join(PRESETS)}."
        raise ConfigError(f"there is no preset {preset!r}{hint}")
    if preset == "plain" or model.solved:
        return {}
    family = family_of(dataset)
    own, dgcf = DGCF_BY_DATASET.get(family, {}), PAPER_DGCF if preset == "paper" else OFFICIAL_DGCF
    loop = {**PAPER_LOOP, **SAMPLER_BY_DATASET.get(family, {})} if preset == "paper" else OFFICIAL_LOOP
    if model.name.startswith("dgcf"):
        return {**loop, "l2": 1e-2, **dgcf, **own}
    width = {"dim": own["dim"]} if own else {}
    return {**loop, **width, **BASELINE, **BASELINE_BY_DATASET.get(family, {})}


def family_of(dataset: str) -> str:
    """Return the family of a dataset, the last part of its name: ``ml-100k`` of ``deoscirec/ml-100k``."""
    last = dataset.rstrip("/").rpartition("/")[2]
    return ALIASES.get(last, last)
