"""The grids of a recipe, as written and checked; `recipe` makes cells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgcf.errors import ConfigError, did_you_mean
from dgcf.experiments.reproduce.cells import KINDS, Cell
from dgcf.experiments.reproduce.measures import MEASURES
from dgcf.experiments.reproduce.schema import COUNT, LISTS, TABLE, TABLES, WORD, WORDS, check_entries

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
"""The entries of a grid."""


@dataclass(frozen=True)
class Grid:
    """Part of a recipe: the product of its lists. ``set`` holds for all its cells, ``sweep`` has a list for a name.

    A grid of trials has ``candidates``, each laid over a preset; ``decides`` says what the best of them is used for.
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

    @property
    def cell_type(self) -> type[Cell]:
        return KINDS[self.kind]


def read_grid(table: Mapping[str, Any], path: Path) -> Grid:
    """Return a grid of the recipe at ``path``; check what can be checked without its datasets."""
    where = f"a grid of {path}"
    check_entries(table, ENTRIES, where)
    if "data" not in table:
        raise ConfigError(f"{where} names no data; give it a list, such as data = ['ml-1m'].")
    grid = Grid(**table)
    for noun, names, known in (("kind", [grid.kind], KINDS), ("measure", grid.measures, MEASURES)):
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known) or f"; there are {', '.join(known)}."
                raise ConfigError(f"{where} has the {noun} {name!r}{hint}")
    if grid.cell_type.needs_model and not (grid.models and grid.settings):
        raise ConfigError(f"{where} names no models or no settings; the kind {grid.kind} needs both.")
    grid.cell_type.check_grid(grid, path)
    return grid
