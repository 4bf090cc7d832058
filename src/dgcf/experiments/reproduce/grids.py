"""The grids of a recipe as they were written and checked; ``recipe`` makes cells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgcf.errors import ConfigError, did_you_mean
from dgcf.experiments.reproduce.schema import COUNT, LISTS, TABLE, TABLES, WORD, WORDS, require_kinds
from dgcf.train.presets import PRESETS

KINDS = ("trained", "trial", "statistics", "edges", "walks", "epochs", "comparison")
OF_MODELS = ("trained", "trial", "epochs", "comparison")
"""The kinds that are of a model and its settings."""
MEASURES = ("curve", "groups", "gates", "gate-histogram", "pattern", "smoothness")
DECIDED = ("tuned", "best")
"""What trials can decide: a model's own settings, or the best there are, whatever the model."""
ENTRIES = {
    "data": WORDS,
    "kind": WORD,
    "models": WORDS,
    "settings": WORDS,
    "seeds": COUNT,
    "measures": WORDS,
    "set": TABLE,
    "sweep": LISTS,
    "decides": WORD,
    "candidates": TABLES,
}
"""What a grid may have, each with its kind."""


@dataclass(frozen=True)
class Grid:
    """Part of a recipe: the product of its lists. ``set`` holds for all its cells, ``sweep`` has a list for a name.

    A grid of trials has ``candidates``, each laid over a preset, and ``decides`` what the best of them is used for.
    """

    data: Sequence[str]
    kind: str = "trained"
    models: Sequence[str] = ()
    settings: Sequence[str] = ()
    seeds: int | None = None
    measures: Sequence[str] = ()
    set: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    decides: str = ""
    candidates: Sequence[Mapping[str, Any]] = ()


def read_grid(about: Mapping[str, Any], path: Path) -> Grid:
    """A grid of the recipe at ``path``, with all checked that can be without its datasets and models."""
    where = f"a grid of {path}"
    require_kinds(about, ENTRIES, where)
    if "data" not in about:
        raise ConfigError(f"{where} names no data; give it a list, such as data = ['ml-1m'].")
    grid = Grid(**about)
    for what, words, known in (("kind", [grid.kind], KINDS), ("measure", grid.measures, MEASURES)):
        for word in words:
            if word not in known:
                hint = did_you_mean(word, known) or f"; there are {', '.join(known)}."
                raise ConfigError(f"{where} has the {what} {word!r}{hint}")
    if grid.kind in OF_MODELS and not (grid.models and grid.settings):
        raise ConfigError(f"{where} names no models or no settings; the kind {grid.kind} needs both.")
    if grid.kind == "edges" and "epsilon" not in {**grid.set, **grid.sweep}:
        raise ConfigError(
            f"{where} counts edges and names no epsilon; give it one, such as set = {{ epsilon = 0.01 }}."
        )
    _refuse_undecided(grid, path)
    return grid


def _refuse_undecided(grid: Grid, path: Path) -> None:
    """Trials say what they try and what for; nothing else has candidates."""
    if grid.kind != "trial":
        if grid.candidates or grid.decides:
            raise ConfigError(f"a grid of {path} has candidates and is of kind {grid.kind}; only a trial has them.")
        return
    if grid.decides not in DECIDED:
        raise ConfigError(f"trials of {path} decide {grid.decides!r}, expected {' or '.join(DECIDED)}.")
    if not grid.candidates or grid.sweep:
        raise ConfigError(f"trials of {path} need candidates, a list such as [{{}}, {{ layers = 2 }}], and no sweep.")
    if len(grid.settings) != 1 or grid.settings[0] not in PRESETS:
        raise ConfigError(
            f"trials of {path} are laid over {list(grid.settings)}, expected one preset ({', '.join(PRESETS)})."
        )
