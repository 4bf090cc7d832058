"""From recipes to cells: each ``recipes/reproduce/ID.toml`` is an experiment, a list of grids of cells.

Trainings with the same fingerprint are the same, in whichever experiments they appear.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from dgcf.config import read_toml
from dgcf.errors import ConfigError, did_you_mean
from dgcf.experiments.reproduce import IDS, schema
from dgcf.experiments.reproduce.cells import KINDS, Cell, Trained, Trial
from dgcf.experiments.reproduce.cells.training import DECIDED
from dgcf.experiments.reproduce.datasets import Source, find_source, read_sources
from dgcf.experiments.reproduce.measures import MEASURES
from dgcf.train import Recipe, resolve
from dgcf.train.presets import PRESETS

GRID_ENTRIES = {
    "data": schema.WORDS,
    "kind": schema.WORD,
    "models": schema.WORDS,
    "settings": schema.WORDS,
    "seeds": schema.COUNT,
    "measures": schema.WORDS,
    "set": schema.TABLE,
    "sweep": schema.LISTS,
    "decides": schema.WORD,
    "candidates": schema.TABLES,
}
"""The entries of a grid."""
OTHER_FILES = ("data", "paper")
"""Files beside the recipes that are no experiments."""


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
    schema.check_entries(table, GRID_ENTRIES, where)
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


@dataclass(frozen=True)
class Experiment:
    """A recipe and all its cells. ``notes`` are sentences that are shown below its tables."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()

    @property
    def trials(self) -> list[Trial]:
        """The cells that decide settings."""
        return [cell for cell in self.cells if isinstance(cell, Trial)]

    def matching(self, only: str | None = None, seeds: int | None = None) -> list[Cell]:
        """Return the cells with ``only`` in their key, and of these the first ``seeds`` seeds.

        In ``only``, ``*`` matches anything; a ``^`` at its start matches the start of the key.
        """
        cells = [cell for cell in self.cells if seeds is None or cell.seed is None or cell.seed < seeds]
        if only is None:
            return cells
        pattern = f"{only[1:]}*" if only.startswith("^") else f"*{only}*"
        return [cell for cell in cells if fnmatch.fnmatchcase(cell.key, pattern)]


@dataclass(frozen=True)
class Recipes:
    """All experiments of a folder of recipes."""

    folder: Path
    sources: Mapping[str, Source]
    experiments: Mapping[str, Experiment]

    @classmethod
    def read(cls, folder: Path, advice: str = "name its recipes with --recipes") -> Recipes:
        """Read and check every recipe, so that an error in one appears before anything is trained.

        ``advice`` says how to name the folder from elsewhere.
        """
        files = folder / "reproduce"
        if not (files / "data.toml").is_file():
            raise ConfigError(f"there is no {files / 'data.toml'}; run it in the project's folder, or {advice}.")
        sources = read_sources(folder)
        reader = _Reader(folder, sources)
        names = [path.stem for path in sorted(files.glob("*.toml")) if path.stem not in OTHER_FILES]
        names.sort(key=lambda name: IDS.index(name) if name in IDS else len(IDS))
        return cls(folder, sources, {name: reader.experiment(name, files / f"{name}.toml") for name in names})

    def experiment(self, name: str) -> Experiment:
        if name not in self.experiments:
            known = [*self.experiments, "all"]
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}."
            raise ConfigError(f"there is no experiment {name!r}{hint}")
        return self.experiments[name]

    def named(self, name: str) -> list[Experiment]:
        """Return the experiment ``name``; with ``all``, every one."""
        return list(self.experiments.values()) if name == "all" else [self.experiment(name)]

    @cached_property
    def measures(self) -> Mapping[str, tuple[str, ...]]:
        """The measures that any experiment needs of a training, by its fingerprint: one training serves them all."""
        measures: dict[str, set[str]] = {}
        for experiment in self.experiments.values():
            for cell in experiment.cells:
                if cell.measures and not cell.blocked:
                    measures.setdefault(cell.fingerprint, set()).update(cell.measures)
        return {fingerprint: tuple(sorted(names)) for fingerprint, names in measures.items()}


def settings_file(source: Source, settings: str, model: str) -> str:
    """Return the file of ``tuned`` or ``best`` settings, relative to the folder of recipes."""
    return f"{source.name}/{'best' if settings == 'best' else model}.toml"


class _Reader:
    """Reads the recipes of a folder."""

    def __init__(self, folder: Path, sources: Mapping[str, Source]) -> None:
        self.folder, self.sources = folder, sources

    def experiment(self, name: str, path: Path) -> Experiment:
        content = read_toml(path)
        schema.check_entries(content, {"title": schema.WORD, "notes": schema.WORDS, "grid": schema.GRIDS}, str(path))
        grids = [read_grid(table, path) for table in content.get("grid", ())]
        if not grids or "title" not in content:
            raise ConfigError(f"{path} has no title or no [[grid]]; a recipe has both.")
        cells = _without_equal_trials([cell for grid in grids for cell in self._cells(name, grid, path)], path)
        linked = tuple(cell.linked(cells) for cell in cells)
        return Experiment(name, content["title"], linked, tuple(content.get("notes", ())))

    def _cells(self, name: str, grid: Grid, path: Path) -> Iterator[Cell]:
        cell_type = grid.cell_type
        measures = tuple(grid.measures) if issubclass(cell_type, Trained) else ()
        axes = (grid.data, grid.settings or [""], grid.models or [""], cell_type.grid_points(grid))
        for data, settings, model, point in product(*axes):
            source = find_source(self.sources, data, str(path))
            varied = cell_type.settings_for(model, point)
            recipe, blocked = None, ""
            if cell_type.has_recipe:
                recipe, blocked = self._resolve(source, model, settings, varied, path)
            origin = grid.decides or settings
            for seed in cell_type.grid_seeds(grid, source, recipe):
                yield cell_type(name, source, model, origin, varied, seed, measures, recipe, blocked)

    def _resolve(
        self, source: Source, model: str, settings: str, varied: Mapping[str, Any], path: Path
    ) -> tuple[Recipe | None, str]:
        """Return the recipe of a training, or None and the reason why it is not decided yet."""
        if settings in PRESETS:
            with schema.errors_name_file(path):
                return resolve(model, dataset=source.known, preset=settings, settings=varied), ""
        if settings not in DECIDED:
            raise ConfigError(
                f"in {path}, settings are {settings!r}, expected tuned, best or a preset ({', '.join(PRESETS)})."
            )
        file = self.folder / settings_file(source, settings, model)
        if not file.is_file():
            missing = f"{file.parent.name}/{file.name}"
            return None, f"there is no {missing} among the recipes; run `dgcf reproduce tuning` first"
        written = read_toml(file)
        decided_model, preset = written.pop("model", model), written.pop("preset", "paper")
        if settings == "tuned" and decided_model != model:
            raise ConfigError(
                f"{file} is of model {decided_model}, expected {model}; put each model into its own file."
            )
        with schema.errors_name_file(file):
            decided = resolve(decided_model, dataset=source.known, preset=preset, settings=written)
        if not varied:
            return decided, ""
        with schema.errors_name_file(path):
            return resolve(decided_model, dataset=source.known, preset=preset, settings={**written, **varied}), ""


def _without_equal_trials(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """Return the cells with only the first of trials that have the same settings for a model."""
    distinct, trials = [], dict[tuple[str, str, str], Cell]()
    for cell in cells:
        identity = (cell.source.name, cell.settings, cell.fingerprint)
        if not isinstance(cell, Trial) or trials.setdefault(identity, cell) is cell:
            distinct.append(cell)
    keys = [cell.key for cell in trials.values()]
    if duplicates := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"trials of {path} give two things the name {duplicates[0]}; use one preset for all of them.")
    return distinct
