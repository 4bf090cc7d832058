"""The options of ``dgcf serve`` that name arms, weights and shadows, checked."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from dgcf.errors import ConfigError
from dgcf.serve.events.records import MAIN
from dgcf.serve.experiments.tally import MOST_MODELS
from dgcf.serve.settings import Arms

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_EXPERIMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEFAULT_SHARE = 0.1
"""The share of the lists that a shadow ranks, if none is given."""
_ROUNDING = 1e-6


def arms_of(
    arm: Sequence[str] = (),
    split: str | None = None,
    shadow: Sequence[str] = (),
    experiment: str | None = None,
    share: float | None = None,
) -> Arms:
    """Return the models beside the main one; raise ``ConfigError``."""
    arms, shadows = _models("--arm", arm), _models("--shadow", shadow)
    if both := sorted(arms.keys() & shadows.keys()):
        raise ConfigError(f"{both[0]} is the name of an arm and of a shadow; choose different names.")
    if (count := 1 + len(arms) + len(shadows)) > MOST_MODELS:
        raise ConfigError(f"the service would have {count} models, expected at most {MOST_MODELS}; leave some out.")
    _check_experiment(experiment, bool(arms))
    if split is not None and not arms:
        raise ConfigError("--split divides users among arms, but there is only the main one; add --arm NAME=MODEL.")
    if share is not None and not shadows:
        raise ConfigError("--shadow-share is for shadows, but there is none; add --shadow NAME=MODEL.")
    if share is not None and not 0 < share <= 1:
        raise ConfigError(f"--shadow-share is {share:g}, expected a share of the lists above 0 and at most 1.")
    weights = _weights(split, [MAIN, *arms])
    return Arms(experiment, weights, {**arms, **shadows}, tuple(shadows), (share or DEFAULT_SHARE) if shadows else 0.0)


def _check_experiment(experiment: str | None, wanted: bool) -> None:
    if experiment is None and wanted:
        raise ConfigError(
            "--arm needs --experiment NAME: users are assigned and results kept by this name; take a new one for each "
            "experiment."
        )
    if experiment is None:
        return
    if not wanted:
        raise ConfigError("--experiment needs arms to compare; add --arm NAME=MODEL.")
    if not _EXPERIMENT.fullmatch(experiment):
        raise ConfigError(
            f"--experiment is {experiment!r}, expected 1 to 64 letters, digits, dots, dashes or underscores."
        )


def _models(option: str, given: Sequence[str]) -> dict[str, Path]:
    """Return the models of ``NAME=PATH``."""
    models: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not path or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{option} is {text!r}, expected NAME=MODEL with a name of lower-case letters, digits, dashes or "
                "underscores, such as b=runs/b."
            )
        if name == MAIN:
            raise ConfigError(f"{option} names {MAIN}, which is the model that is served; choose another name.")
        if name in models:
            raise ConfigError(f"{option} names {name} twice; give each model a name of its own.")
        models[name] = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 (a link keeps its own name)
    return models


def _weights(split: str | None, arms: Sequence[str]) -> dict[str, float]:
    """Return the weight of each arm, equal ones without a split."""
    if split is None:
        return {arm: 1 / len(arms) for arm in arms}
    weights: dict[str, float] = {}
    for part in split.split(","):
        name, _, text = part.strip().partition("=")
        weight = _weight(text)
        if name not in arms or name in weights or weight is None:
            raise ConfigError(
                f"--split has {part.strip()!r}, expected each of {', '.join(arms)} once with a weight from 0 to 1, "
                f"such as {','.join(f'{arm}={1 / len(arms):.2g}' for arm in arms)}."
            )
        weights[name] = weight
    if absent := [arm for arm in arms if arm not in weights]:
        raise ConfigError(f"--split has no weight of {absent[0]}; give one for each of {', '.join(arms)}.")
    total = sum(weights.values())
    if abs(total - 1) > _ROUNDING:
        raise ConfigError(f"the weights of --split sum to {total:g}, expected 1.")
    return {arm: weights[arm] for arm in arms}


def _weight(text: str) -> float | None:
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if math.isfinite(weight) and 0 <= weight <= 1 else None
