"""Where trials become settings: the candidate of the highest validation is written as a recipe for all that use it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from dgcf.errors import ArtifactError
from dgcf.experiments.reproduce.datasets import Source
from dgcf.experiments.reproduce.recipe import Cell, Recipes, decided_file
from dgcf.experiments.reproduce.results import Index, Line
from dgcf.experiments.settings_file import write_settings
from dgcf.train import Recipe, resolve


@dataclass(frozen=True)
class Candidate:
    """Settings that were tried, with a cell for each seed, and the lines of those that are recorded."""

    cells: Sequence[Cell]
    lines: Sequence[Line]

    @property
    def recorded(self) -> bool:
        return len(self.lines) == len(self.cells)

    @property
    def recipe(self) -> Recipe:
        recipe = self.cells[0].recipe
        assert recipe is not None
        return recipe

    @cached_property
    def value(self) -> float | None:
        """The mean over the seeds of what validation gave; None where any is missing or failed."""
        found = [line["validation"] for line in self.lines]
        if not self.recorded or not all(found):
            return None
        metric = self.recipe.train.metric
        if lacking := [line["key"] for line in self.lines if metric not in line["validation"]]:
            raise ArtifactError(
                f"the result {lacking[0]} has no validation {metric}; delete its line, and try it again."
            )
        return statistics.fmean(one[metric] for one in found)

    @property
    def epochs(self) -> list[int]:
        """The best epoch of each seed."""
        return [line["best_epoch"] for line in self.lines]


@dataclass(frozen=True)
class Decision:
    """All that was tried to decide one file of settings."""

    file: str
    settings: str
    source: Source
    candidates: Sequence[Candidate]

    @property
    def recorded(self) -> bool:
        return all(one.recorded for one in self.candidates)

    @property
    def winner(self) -> Candidate | None:
        """Of the highest validation, of equal ones the first; None while trials are missing, or if all failed."""
        usable = [one for one in self.candidates if one.value is not None]
        return max(usable, key=lambda one: one.value or 0.0) if self.recorded and usable else None

    def searched(self, recipe: Recipe) -> list[str]:
        """What any candidate of that model sets."""
        alike = [one.cells[0].varied for one in self.candidates if one.recipe.name == recipe.name]
        return list(dict.fromkeys(name for varied in alike for name in varied))


def decisions(cells: Iterable[Cell], index: Index) -> list[Decision]:
    """Trials by the file that they decide, in the order of the recipe."""
    files: dict[str, dict[tuple[Any, ...], list[Cell]]] = {}
    for cell in cells:
        candidates = files.setdefault(decided_file(cell.source, cell.settings, cell.model), {})
        candidates.setdefault((cell.model, *cell.varied.items()), []).append(cell)
    return [_decision(file, list(candidates.values()), index) for file, candidates in files.items()]


def _decision(file: str, tried: Sequence[Sequence[Cell]], index: Index) -> Decision:
    candidates = [Candidate(seeds, [line for cell in seeds if (line := index.find(cell))]) for seeds in tried]
    first = tried[0][0]
    return Decision(file, first.settings, first.source, candidates)


def settle(book: Recipes, cells: Iterable[Cell], index: Index, note: Callable[[str], None]) -> list[Path]:
    """Write what is decided by now, and leave what stands there already; the files that changed."""
    written = []
    for decision in decisions(cells, index):
        if decision.recorded and decision.winner is None:
            note(f"no candidate for {decision.file} could be trained, so nothing is decided; give it others.")
        for file, recipe, header in _files(decision, book):
            path = book.recipes / file
            if write_settings(path, recipe, decision.searched(recipe), header):
                note(f"{path} is written.")
                written.append(path)
    return written


def _files(decision: Decision, book: Recipes) -> Iterator[tuple[str, Recipe, list[str]]]:
    """The dataset's own file, and one for each dataset that takes its settings from there."""
    winner = decision.winner
    if winner is None:
        return
    recipe = winner.recipe
    yield decision.file, recipe, [*_found(decision, winner), _use(book, decision.source, decision, recipe)]
    for source in _followers(book, decision.source):
        fixed = _without_validation(recipe, source, round(statistics.fmean(winner.epochs)))
        told = [*_found(decision, winner), "It is trained for that many epochs, without validation."]
        file = decided_file(source, decision.settings, recipe.name)
        yield file, fixed, [*told, _use(book, source, decision, recipe)]


def _followers(book: Recipes, source: Source) -> list[Source]:
    """The datasets that take their settings from the trials on this one."""
    return [one for one in book.sources.values() if one.settings_of == source.name]


def _without_validation(recipe: Recipe, source: Source, epochs: int) -> Recipe:
    """The same to be trained for so many epochs; nothing stops it earlier, and it would be the last that is kept."""
    if recipe.entry.solved:
        return recipe
    fixed = {"epochs": epochs, "min_epochs": 0, "patience": 0}
    told = {name: value for name, value in recipe.settings().items() if value is not None}
    return resolve(recipe.name, dataset=source.known, preset=recipe.preset, settings={**told, **fixed})


def _found(decision: Decision, winner: Candidate) -> list[str]:
    """Of how many, on which data, and how good."""
    seeds = [cell.seed or 0 for cell in winner.cells]
    prints = ", ".join(dict.fromkeys(decision.source.fingerprint(seed)[:12] for seed in seeds))
    mean = "" if len(seeds) == 1 else "mean "
    epochs, drawn = (", ".join(map(str, numbers)) for numbers in (winner.epochs, seeds))
    tried = len(decision.candidates)
    which = "The only candidate" if tried == 1 else f"The best of {tried} candidates"
    return [
        f"{which} of `dgcf reproduce tuning` on {decision.source.name} ({prints}):",
        f"{mean}validation {winner.recipe.train.metric} {winner.value:.6f} at epoch {epochs}, seed {drawn}.",
    ]


def _use(book: Recipes, source: Source, decision: Decision, recipe: Recipe) -> str:
    """How to use the file; a dataset that is split or carved here is known to the reproduction alone.

    A carved one has perhaps no cells of its own, but those of the dataset that it was carved out of.
    """
    if not source.made_here:
        file = decided_file(source, decision.settings, recipe.name)
        return f"Use it by: dgcf train {source.known} --config recipes/{file}"
    cells = [cell for one in book.experiments.values() for cell in one.cells if cell.settings == decision.settings]
    for one in (source, *_followers(book, source)):
        beginning = f"{one.name}:{recipe.name}:{decision.settings}:"
        if any(cell.key.startswith(beginning) for cell in cells):
            how = "Use it by" if one == source else f"It is used on {one.name}, for that many epochs, by"
            return f"{how}: dgcf reproduce all --only {quote(f'{beginning}*')}"
    return f"It was tried by: dgcf reproduce tuning --only {quote(f'{source.name}:trial:*:{decision.settings}:*')}"
