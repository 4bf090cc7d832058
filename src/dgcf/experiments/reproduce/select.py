"""Select settings by trials: the candidate with the highest validation metric is written as a settings file."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote

from dgcf.errors import ArtifactError
from dgcf.experiments.reproduce.cells import Line, Trial
from dgcf.experiments.reproduce.cells.base import grouped
from dgcf.experiments.reproduce.datasets import Source
from dgcf.experiments.reproduce.recipe import Recipes, settings_file
from dgcf.experiments.reproduce.results import Index
from dgcf.experiments.settings_file import write_settings
from dgcf.train import Recipe, resolve
from dgcf.train.blend.result import settings_of


@dataclass(frozen=True)
class Candidate:
    """Settings to try: a trial for each seed, and the lines of those that are recorded."""

    cells: Sequence[Trial]
    lines: Sequence[Line]

    @property
    def recorded(self) -> bool:
        return len(self.lines) == len(self.cells)

    @property
    def recipe(self) -> Recipe:
        return self.cells[0].known_recipe

    @cached_property
    def value(self) -> float | None:
        """The mean validation metric over the seeds; None if a seed is missing or failed."""
        validations = [line["validation"] for line in self.lines]
        if not self.recorded or not all(validations):
            return None
        metric = self.recipe.train.metric
        if missing := [line["key"] for line in self.lines if metric not in line["validation"]]:
            raise ArtifactError(
                f"the result {missing[0]} has no validation {metric}; delete its line, and try it again."
            )
        return statistics.fmean(validation[metric] for validation in validations)

    @property
    def blending(self) -> Mapping[str, str]:
        """The settings that fix the item weights that validation chose with the first seed; empty without any."""
        chosen = self.lines[0].get("blending")
        return {} if chosen is None else settings_of(chosen["parts"])

    @property
    def epochs(self) -> list[int]:
        """The best epoch of each seed."""
        return [line["best_epoch"] for line in self.lines]


@dataclass(frozen=True)
class Decision:
    """All candidates for one settings file."""

    file: str
    settings: str
    source: Source
    candidates: Sequence[Candidate]

    @property
    def recorded(self) -> bool:
        return all(one.recorded for one in self.candidates)

    @property
    def winner(self) -> Candidate | None:
        """The first candidate with the highest metric; None while trials are missing, or if all failed."""
        usable = [one for one in self.candidates if one.value is not None]
        return max(usable, key=lambda one: one.value or 0.0) if self.recorded and usable else None

    def searched(self, recipe: Recipe) -> list[str]:
        """Return the settings that any candidate of the same model sets."""
        settings = [one.cells[0].varied for one in self.candidates if one.recipe.name == recipe.name]
        return list(dict.fromkeys(name for varied in settings for name in varied))


def decisions(cells: Iterable[Trial], index: Index) -> list[Decision]:
    """Return the decisions that trials make, in the order of the recipe."""
    made = []
    for file, trials in grouped(cells, lambda cell: settings_file(cell.source, cell.settings, cell.model)).items():
        by_settings = grouped(trials, lambda cell: (cell.model, *cell.varied.items()))
        candidates = [Candidate(seeds, list(filter(None, map(index.find, seeds)))) for seeds in by_settings.values()]
        made.append(Decision(file, trials[0].settings, trials[0].source, candidates))
    return made


def write_decisions(
    recipes: Recipes, cells: Iterable[Trial], index: Index, notify: Callable[[str], None]
) -> list[Path]:
    """Write the settings that are decided by now; return the files that changed."""
    written = []
    for decision in decisions(cells, index):
        if decision.recorded and decision.winner is None:
            notify(f"no candidate for {decision.file} could be trained, so nothing is decided; give it others.")
        for file, recipe, header in _files(decision, recipes):
            path = recipes.folder / file
            if write_settings(path, recipe, decision.searched(recipe), header):
                notify(f"{path} is written.")
                written.append(path)
    return written


def _files(decision: Decision, recipes: Recipes) -> Iterator[tuple[str, Recipe, list[str]]]:
    """Yield the file of the dataset, and one for each dataset that takes its settings, with recipe and header."""
    winner = decision.winner
    if winner is None:
        return
    recipe = winner.recipe
    yield decision.file, recipe, [*_summary(decision, winner), _use(recipes, decision.source, decision, recipe)]
    for source in _followers(recipes, decision.source):
        fixed = _without_validation(recipe, source, round(statistics.fmean(winner.epochs)), winner.blending)
        header = [*_summary(decision, winner), "It is trained for that many epochs, without validation."]
        file = settings_file(source, decision.settings, recipe.name)
        yield file, fixed, [*header, _use(recipes, source, decision, recipe)]


def _followers(recipes: Recipes, source: Source) -> list[Source]:
    """Return the datasets that take their settings from the trials on this one."""
    return [one for one in recipes.sources.values() if one.settings_of == source.name]


def _without_validation(recipe: Recipe, source: Source, epochs: int, blending: Mapping[str, str]) -> Recipe:
    """Return the recipe for training that many epochs without early stopping, with the item weights ``blending``."""
    if recipe.entry.solved:
        return recipe
    fixed = {"epochs": epochs, "min_epochs": 0, "patience": 0, **blending}
    settings = {name: value for name, value in recipe.settings().items() if value is not None}
    return resolve(recipe.name, dataset=source.known, preset=recipe.preset, settings={**settings, **fixed})


def _summary(decision: Decision, winner: Candidate) -> list[str]:
    """Return the header of a settings file: how many candidates, which data, and the metric."""
    seeds = [cell.seed or 0 for cell in winner.cells]
    prints = ", ".join(dict.fromkeys(decision.source.fingerprint(seed)[:12] for seed in seeds))
    mean = "" if len(seeds) == 1 else "mean "
    epochs, listed = (", ".join(map(str, numbers)) for numbers in (winner.epochs, seeds))
    tried = len(decision.candidates)
    which = "The only candidate" if tried == 1 else f"The best of {tried} candidates"
    return [
        f"{which} of `dgcf reproduce tuning` on {decision.source.name} ({prints}):",
        f"{mean}validation {winner.recipe.train.metric} {winner.value:.6f} at epoch {epochs}, seed {listed}.",
    ]


def _use(recipes: Recipes, source: Source, decision: Decision, recipe: Recipe) -> str:
    """Return how to use a settings file. Only these experiments have a dataset that they derive from a known one.

    If it has no cells of its own, those of a dataset that takes its settings are named.
    """
    if not source.derived:
        file = settings_file(source, decision.settings, recipe.name)
        return f"Use it by: dgcf train {source.known} --config recipes/{file}"
    cells = [cell for one in recipes.experiments.values() for cell in one.cells if cell.settings == decision.settings]
    for one in (source, *_followers(recipes, source)):
        beginning = f"{one.name}:{recipe.name}:{decision.settings}:"
        if any(cell.key.startswith(beginning) for cell in cells):
            how = "Use it by" if one == source else f"It is used on {one.name}, for that many epochs, by"
            return f"{how}: dgcf reproduce all --only {quote(f'{beginning}*')}"
    return f"It was tried by: dgcf reproduce tuning --only {quote(f'{source.name}:trial:*:{decision.settings}:*')}"
