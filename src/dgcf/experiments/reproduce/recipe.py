"""From recipes to cells: each ``recipes/reproduce/ID.toml`` is a list of grids, and a grid is a product of cells.

A cell is one training (dataset, model, settings, seed), one trial (a training of which validation alone is looked at,
to decide settings) or one computed thing (statistics, edges, walks, seconds an epoch, a paired comparison). Trainings
that are the same have the same fingerprint, whichever experiment asks for them.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from dgcf.config import read_toml, refuse_unknown
from dgcf.errors import ConfigError, did_you_mean
from dgcf.experiments.reproduce import IDS
from dgcf.experiments.reproduce.datasets import Source, named, read_sources
from dgcf.experiments.reproduce.grids import DECIDED, Grid, read_grid
from dgcf.experiments.reproduce.schema import GRIDS, WORD, WORDS, of_file, require_kinds
from dgcf.train import Recipe, resolve
from dgcf.train.presets import PRESETS

FILES = ("data", "paper")
"""What lies beside the recipes of experiments and is none."""
REFERENCE = "dgcf"
"""What every other model is compared with."""
# What every trained cell has in common; a change of it makes other cells of all of them.
PROTOCOL = "best validated epoch; all items ranked; users with train and test items; masks train and train+validation"


@dataclass(frozen=True)
class Cell:
    """One thing to compute, by its readable ``key``, such as ``ml-1m:dgcf:paper:layers=4:seed=0``.

    ``settings`` says where they come from: a preset, ``tuned`` or ``best``; of a trial, what it decides. ``varied`` is
    what the grid sets over them.
    ``recipe`` is None for what is not trained and for a cell that is ``blocked`` by a settings file not there yet.
    """

    experiment: str
    kind: str
    source: Source
    model: str = ""
    settings: str = ""
    varied: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    measures: tuple[str, ...] = ()
    recipe: Recipe | None = None
    blocked: str = ""
    compared: tuple[tuple[str, ...], ...] = ()
    """The fingerprints of the trainings that a comparison is of: the reference's and the model's, one for a seed."""

    @cached_property
    def key(self) -> str:
        words = [self.source.name, "" if self.kind == "trained" else self.kind, self.model, self.settings]
        words += [f"{name}={value}" for name, value in self.varied.items()]
        words += [] if self.seed is None else [f"seed={self.seed}"]
        return ":".join(filter(None, words))

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that decides the result: data, model, settings, seed and protocol.

        Settings at their default do not count, so that a setting which a later version adds changes no fingerprint.
        """
        told: dict[str, Any] = {
            "kind": self.kind,
            "data": self.source.fingerprint(self.seed or 0),
            "varied": dict(self.varied),
            "seed": self.seed,
            "protocol": PROTOCOL,
        }
        if self.recipe is not None:
            defaults = resolve(self.recipe.name, preset="plain").settings()
            chosen = self.recipe.settings().items()
            told |= {"model": self.recipe.name, "varied": None}
            told["settings"] = {name: value for name, value in chosen if value != defaults[name]}
        elif self.model:
            told |= {"model": self.model, "from": self.settings, "compared": self.compared}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def group(self) -> tuple[str, str, str]:
        """What differs by the seed alone is of one group, and may be trained side by side."""
        assert self.recipe is not None
        chosen = json.dumps(self.recipe.settings(), sort_keys=True)
        return self.source.fingerprint(self.seed or 0), self.recipe.name, chosen


@dataclass(frozen=True)
class Experiment:
    """A recipe as it was read, and all its cells."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """Sentences that are shown below it."""

    @property
    def trials(self) -> list[Cell]:
        """Those of its cells that decide settings."""
        return [cell for cell in self.cells if cell.kind == "trial"]

    def wanted(self, only: str | None = None, seeds: int | None = None) -> list[Cell]:
        """The cells that are asked for: those that have ``only`` in their key, and of them the first seeds.

        In ``only``, ``*`` stands for anything, and ``^`` before it all for the key's beginning.
        """
        chosen = [cell for cell in self.cells if seeds is None or cell.seed is None or cell.seed < seeds]
        if only is None:
            return chosen
        pattern = f"{only[1:]}*" if only.startswith("^") else f"*{only}*"
        return [cell for cell in chosen if fnmatch.fnmatchcase(cell.key, pattern)]


@dataclass(frozen=True)
class Recipes:
    """All experiments of a folder of recipes."""

    recipes: Path
    sources: Mapping[str, Source]
    experiments: Mapping[str, Experiment]

    @classmethod
    def read(cls, recipes: Path, elsewhere: str = "name its recipes with --recipes") -> Recipes:
        """Every recipe, checked: a slip in any of them is found before anything is trained.

        ``elsewhere`` is what a person can do who is not in the project's folder.
        """
        folder = recipes / "reproduce"
        if not (folder / "data.toml").is_file():
            raise ConfigError(f"there is no {folder / 'data.toml'}; run it in the project's folder, or {elsewhere}.")
        sources = read_sources(recipes)
        reader = _Reader(recipes, sources)
        names = [path.stem for path in sorted(folder.glob("*.toml")) if path.stem not in FILES]
        names.sort(key=lambda name: IDS.index(name) if name in IDS else len(IDS))
        return cls(recipes, sources, {name: reader.experiment(name, folder / f"{name}.toml") for name in names})

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name."""
        if name not in self.experiments:
            known = [*self.experiments, "all"]
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}."
            raise ConfigError(f"there is no experiment {name!r}{hint}")
        return self.experiments[name]

    def chosen(self, name: str) -> list[Experiment]:
        """One experiment, or with ``all`` every one."""
        return list(self.experiments.values()) if name == "all" else [self.experiment(name)]

    @cached_property
    def measures(self) -> Mapping[str, tuple[str, ...]]:
        """By fingerprint, what any experiment wants measured of a training, so that one training serves them all."""
        found: dict[str, set[str]] = {}
        for experiment in self.experiments.values():
            for cell in experiment.cells:
                if cell.measures and not cell.blocked:
                    found.setdefault(cell.fingerprint, set()).update(cell.measures)
        return {fingerprint: tuple(sorted(names)) for fingerprint, names in found.items()}


def _with_compared(cell: Cell, cells: Sequence[Cell]) -> Cell:
    """A comparison knows what it compares, so that it is another one when any of that is trained otherwise."""
    if cell.kind != "comparison":
        return cell
    alike = [one for one in cells if (one.kind, one.source, one.settings) == ("trained", cell.source, cell.settings)]
    sides = ([one.fingerprint for one in alike if one.model == model] for model in (REFERENCE, cell.model))
    return replace(cell, compared=tuple(map(tuple, sides)))


def decided_file(source: Source, settings: str, model: str) -> str:
    """Where ``tuned`` or ``best`` settings are, below the folder of recipes."""
    return f"{source.name}/{'best' if settings == 'best' else model}.toml"


def _settings_of(model: str) -> set[str]:
    """The settings that have a meaning for a model."""
    recipe = resolve(model, preset="plain")
    idle = set() if recipe.entry.solved or recipe.model.drops_edges else {"edge_dropout", "dropout_draws"}
    return set(recipe.settings()) - idle


def _distinct(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """Trials that come to the same for a model are one."""
    kept, tried = [], dict[tuple[str, str, str], Cell]()
    for cell in cells:
        same = (cell.source.name, cell.settings, cell.fingerprint)
        if cell.kind != "trial" or tried.setdefault(same, cell) is cell:
            kept.append(cell)
    keys = [cell.key for cell in tried.values()]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"trials of {path} give two things the name {twice[0]}; use one preset for all of them.")
    return kept


class _Reader:
    """Reads recipes; what settings resolve to is worked out once for all seeds."""

    def __init__(self, recipes: Path, sources: Mapping[str, Source]) -> None:
        self.recipes, self.sources = recipes, sources

    def experiment(self, name: str, path: Path) -> Experiment:
        content = read_toml(path)
        require_kinds(content, {"title": WORD, "notes": WORDS, "grid": GRIDS}, str(path))
        grids = [read_grid(about, path) for about in content.get("grid", ())]
        if not grids or "title" not in content:
            raise ConfigError(f"{path} has no title or no [[grid]]; a recipe has both.")
        cells = _distinct([cell for grid in grids for cell in self._cells(name, grid, path)], path)
        compared = tuple(_with_compared(cell, cells) for cell in cells)
        return Experiment(name, content["title"], compared, tuple(content.get("notes", ())))

    def _trials(self, name: str, grid: Grid, path: Path) -> Iterator[Cell]:
        """Every candidate for every model, less the settings which that model does not have."""
        with of_file(path):
            had = {model: _settings_of(model) for model in grid.models}
        refuse_unknown(
            [key for one in (grid.set, *grid.candidates) for key in one],
            set().union(*had.values()),
            f"a trial of {path}",
        )
        for data, model, candidate in product(grid.data, grid.models, grid.candidates):
            source = named(self.sources, data, str(path))
            own = {key: value for key, value in {**grid.set, **candidate}.items() if key in had[model]}
            with of_file(path):
                recipe = resolve(model, dataset=source.known, preset=grid.settings[0], settings=own)
            for seed in range((grid.seeds or 1) if recipe.entry.seeded else 1):
                yield Cell(name, "trial", source, model, grid.decides, own, seed, recipe=recipe)

    def _cells(self, name: str, grid: Grid, path: Path) -> Iterator[Cell]:
        if grid.kind == "trial":
            yield from self._trials(name, grid, path)
            return
        points = [dict(zip(grid.sweep, values, strict=True)) for values in product(*grid.sweep.values())]
        for data, settings, model, point in product(grid.data, grid.settings or [""], grid.models or [""], points):
            source = named(self.sources, data, str(path))
            varied = {**grid.set, **point}
            recipe, blocked = self._resolved(source, model, settings, varied, grid.kind, path)
            measures = tuple(grid.measures)
            for seed in _seeds(grid, source, recipe):
                yield Cell(name, grid.kind, source, model, settings, varied, seed, measures, recipe, blocked)

    def _resolved(
        self, source: Source, model: str, settings: str, over: Mapping[str, Any], kind: str, path: Path
    ) -> tuple[Recipe | None, str]:
        """What is trained, or why it cannot be yet; a slip is said of the file that has it."""
        if kind not in ("trained", "epochs"):
            return None, ""
        if settings in PRESETS:
            with of_file(path):
                return resolve(model, dataset=source.known, preset=settings, settings=over), ""
        if settings not in DECIDED:
            raise ConfigError(
                f"in {path}, settings are {settings!r}, expected tuned, best or a preset ({', '.join(PRESETS)})."
            )
        file = self.recipes / decided_file(source, settings, model)
        if not file.is_file():
            missing = f"{file.parent.name}/{file.name}"
            return None, f"there is no {missing} among the recipes; run `dgcf reproduce tuning` first"
        written = read_toml(file)
        inside, preset = written.pop("model", model), written.pop("preset", "paper")
        if settings == "tuned" and inside != model:
            raise ConfigError(f"{file} is of model {inside}, expected {model}; put each model into its own file.")
        with of_file(file):
            decided = resolve(inside, dataset=source.known, preset=preset, settings=written)
        if not over:
            return decided, ""
        with of_file(path):
            return resolve(inside, dataset=source.known, preset=preset, settings={**written, **over}), ""


def _seeds(grid: Grid, source: Source, recipe: Recipe | None) -> Sequence[int | None]:
    """What is not trained has no seed, and what comes out the same for every seed has one."""
    if grid.kind != "trained":
        return [None]
    seeded = recipe is None or recipe.entry.seeded
    return range(grid.seeds or source.seeds) if seeded else [0]
