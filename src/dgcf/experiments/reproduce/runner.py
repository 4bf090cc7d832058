"""Run experiments: compute the cells that are not recorded, and append each result as soon as it is finished.

Several processes may share the work over one folder of results: each claims cells that no other has, and reads what is
recorded before it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.experiments.jobs import TRAINING_FAILED, work
from dgcf.experiments.progress import Progress
from dgcf.experiments.reproduce.cells import KINDS, Cell, Line, Stage
from dgcf.experiments.reproduce.cells.base import grouped
from dgcf.experiments.reproduce.datasets import open_dataset
from dgcf.experiments.reproduce.execute import Executor, estimate, hardware
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.results import Store
from dgcf.experiments.reproduce.select import write_decisions
from dgcf.train import groups, pick_device

Name = tuple[str, str]
"""The experiment and the key of a cell."""


@dataclass
class Tally:
    """The cells of a run by key, with their experiment in front if ``all`` were run.

    ``known`` were recorded before, or meanwhile by other processes; ``taken_over`` have the result of the same training
    of another cell; ``missing`` gives the reason.
    """

    experiment: str
    known: list[str] = field(default_factory=list)
    taken_over: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CellFilter:
    """The cells to run: of experiment ``name`` or ``all``, those that match ``only``, and the first ``seeds``."""

    name: str
    only: str | None = None
    seeds: int | None = None

    def cells(self, recipes: Recipes) -> list[Cell]:
        return [cell for one in recipes.named(self.name) for cell in one.matching(self.only, self.seeds)]

    def label(self, cell: Cell) -> str:
        """Return the key of a cell, with its experiment in front if there are several, which may share keys."""
        return f"{cell.experiment} {cell.key}" if self.name == "all" else cell.key

    def check(self, recipes: Recipes) -> None:
        """Refuse a filter that matches no cell."""
        if self.seeds is not None and self.seeds < 1:
            raise ConfigError(f"seeds is {self.seeds}, expected a whole number from 1 on.")
        if self.only is not None and not self.only.strip("^* "):
            raise ConfigError(f"only is {self.only!r}, which is every cell; give part of a name, or leave it out.")
        cells = [cell for one in recipes.named(self.name) for cell in one.cells]
        most = max((cell.seed + 1 for cell in cells if cell.seed is not None), default=None)
        if self.seeds is not None and most is not None and self.seeds > most:
            raise ConfigError(
                f"seeds is {self.seeds}, and {self.name} has {most} at most; request fewer, or write "
                f"seeds = {self.seeds} into the grids of its recipe."
            )
        if self.cells(recipes):
            return
        keys = [cell.key for cell in cells]
        subject = "no experiment has a cell" if self.name == "all" else f"{self.name} has no cell"
        hint = did_you_mean(self.only or "", keys) or f"; give any part of a cell's name, such as {keys[0]}."
        raise ConfigError(f"{subject} {self.only!r}{hint}")


@dataclass(frozen=True)
class Runner:
    """Runs experiments. ``prepared`` is a folder of prepared datasets; without it they are built from known files."""

    recipes: Recipes
    store: Store
    prepared: Path | None = None
    device: str = "auto"

    def run(
        self,
        name: str,
        *,
        seeds: int | None = None,
        only: str | None = None,
        limit: float | None = None,
        progress: Progress | None = None,
    ) -> Tally:
        """Compute the missing cells of an experiment; with ``all``, of every one. Ctrl-C keeps what is finished.

        Settings that trials decide are written into the folder of recipes before cells use them. Cells that other
        processes work on are waited for. After ``limit`` seconds nothing is started or waited for, nor is anything
        that would probably not be finished by then.
        """
        pick_device(self.device)
        selection = CellFilter(name, only, seeds)
        selection.check(self.recipes)
        progress = progress or Progress()
        queue = _CellQueue(self, selection, progress, limit)
        try:
            work(queue)
            return queue.tally()
        finally:
            progress.ended()


class _CellQueue:
    """The missing cells of one run as a queue of jobs; a job is a group of cells that are computed together."""

    def __init__(self, runner: Runner, selection: CellFilter, progress: Progress, limit: float | None) -> None:
        self.recipes, self.store, self.device = runner.recipes, runner.store, runner.device
        self.selection, self.progress, self.limit = selection, progress, limit
        self.began = time.monotonic()
        self.longest = 0.0
        self.executor = Executor(runner.store, runner.prepared, runner.device)
        self.trials = [cell for one in runner.recipes.named(selection.name) for cell in one.trials]
        self.undecided = len(self.trials)
        self.left: dict[Name, Cell] = {}  # neither recorded nor blocked nor given up
        self.busy = False  # whether other processes hold some of these
        self.done: set[Name] = set()
        self.taken_over: set[Name] = set()
        self.given_up: dict[Name, str] = {}
        self.noted: set[str] = set()
        self._plan()

    def _plan(self) -> None:
        """Find what the recipes in their present state leave to compute."""
        cells = [cell for cell in self.selection.cells(self.recipes) if not cell.blocked]
        self.index = self.store.index(self.recipes.experiments)
        self.executor.measures = self.recipes.measures
        missing = [cell for cell in cells if self.index.find(cell) is None]
        self.left = {_name(cell): cell for cell in missing if _name(cell) not in self.given_up}
        recorded = len(cells) - len(missing)
        self.progress.ended()
        self.progress.started(recorded, recorded + len(self.left))

    def tally(self) -> Tally:
        tally = Tally(self.selection.name)
        for cell in self.selection.cells(self.recipes):
            label = self.selection.label(cell)
            if _name(cell) in self.done:
                tally.done.append(label)
            elif _name(cell) in self.taken_over:
                tally.taken_over.append(label)
            elif not cell.blocked and self.index.find(cell):
                tally.known.append(label)
            else:
                tally.missing[label] = cell.blocked or self.given_up[_name(cell)]
        return tally

    # -- jobs -------------------------------------------------------------------------------------------------------

    @contextmanager
    def claim(self) -> Iterator[list[Cell] | None]:
        """Hold the next group of cells, in the order of the stages; comparisons wait for all that they compare."""
        self.busy = False
        for stage in Stage:
            if stage == Stage.TRAIN:
                self._decide()
            if stage == Stage.COMPARE and self.busy:
                break
            for group in self._groups(stage):
                if not (group := self._unrecorded(group)):
                    continue
                with self.store.claim(group) as claimed:
                    if cells := self._to_compute(claimed):
                        yield cells
                        return
                self.busy = self.busy or bool(self._unrecorded(cell for cell in group if cell not in claimed))
        yield None

    def run(self, job: list[Cell]) -> None:
        """Compute claimed cells and record them."""
        began = time.monotonic()
        try:
            for cell, result in job[0].execute(job, self.executor):
                self._record(cell, self.executor.line(cell, result))
            self._give_up(job, "what it compares is not trained, or the values of its users are not here")
        except TRAINING_FAILED as problem:
            reason = str(problem).splitlines()[0]
            self.progress.note(f"{job[0].key} was given up: {reason}")
            # Other processes may have taken the memory: then it is worth another try.
            if not (isinstance(problem, torch.cuda.OutOfMemoryError) and self.store.others(job)):
                self._record_failure(self._unrecorded(job), reason, time.monotonic() - began)
            self._give_up(job, reason)
        self.longest = max(self.longest, time.monotonic() - began)

    def waiting(self) -> bool:
        if self.busy and self._late():
            self._give_up(self.left.values(), "other processes were at work, and there was no time left to wait")
            return False
        if self.busy:
            self._note_once("other processes are at what is left; waiting for them.")
        return self.busy

    def _decide(self) -> None:
        """Write the settings that trials have decided; plan again if the recipes have changed."""
        missing = sum(self.index.find(cell) is None for cell in self.trials)
        if missing == self.undecided:
            return
        self.undecided = missing
        write_decisions(self.recipes, self.trials, self.index, self._note_once)
        recipes = Recipes.read(self.recipes.folder)
        if recipes != self.recipes:
            self.recipes = recipes
            self._plan()

    def _groups(self, stage: Stage) -> list[list[Cell]]:
        """Return the cells of a stage that are left, in groups that this process computes together.

        Trainings that differ only by their seed are split into those that train at once.
        """
        together = []
        left = [cell for cell in self.left.values() if cell.stage == stage]
        for cells in grouped(left, lambda cell: (cell.kind, cell.group)).values():
            by_seed, recipe = grouped(cells, lambda cell: cell.seed or 0), cells[0].recipe
            seeds = [list(by_seed)] if recipe is None else groups(sorted(by_seed), recipe, self.device)
            together += [[cell for seed in group for cell in by_seed[seed]] for group in seeds]
        return together

    def _to_compute(self, claimed: Sequence[Cell]) -> list[Cell]:
        """Return what remains of claimed cells after reading and reusing what is recorded, if there is time for it."""
        if not claimed:
            return []
        self._read_results()
        for cell in self._unrecorded(claimed):
            if reused := cell.reuse(self.index):
                origin, line = reused
                self._record(cell, line, origin)
        cells = self._unrecorded(claimed)
        if cells and self._late(cells):
            self._give_up(cells, "there was no time left")
            return []
        return cells

    def _read_results(self) -> None:
        """Read what other processes have recorded."""
        self.index = self.store.index(self.recipes.experiments)
        for name, cell in list(self.left.items()):
            if self.index.find(cell):
                del self.left[name]
                self.progress.job_ended()

    def _late(self, cells: Sequence[Cell] = ()) -> bool:
        """Return whether cells that start now would probably end after the limit, with a margin of a tenth."""
        if self.limit is None:
            return False
        seconds = estimate(cells, self.index.lines(), hardware(self.device)) if cells else 0.0
        expected = self.longest if seconds is None else seconds
        return time.monotonic() - self.began + 1.1 * expected > self.limit

    # -- records ----------------------------------------------------------------------------------------------------

    def _unrecorded(self, cells: Iterable[Cell]) -> list[Cell]:
        return [cell for cell in cells if _name(cell) in self.left]

    def _record_failure(self, cells: Sequence[Cell], reason: str, seconds: float) -> None:
        """Record the cells that failed for good, so that they are not retried."""
        for cell in cells:
            if result := cell.failure(reason, seconds / len(cells)):
                self._record(cell, self.executor.line(cell, result))

    def _give_up(self, cells: Iterable[Cell], reason: str) -> None:
        for cell in self._unrecorded(cells):
            del self.left[_name(cell)]
            self.given_up[_name(cell)] = reason

    def _record(self, cell: Cell, line: Line, origin: str = "") -> None:
        """Record a cell; ``origin`` is the experiment that its line was taken from."""
        self.store.append(cell.experiment, line)
        self.index.add(line)
        del self.left[_name(cell)]
        (self.taken_over if origin else self.done).add(_name(cell))
        self.progress.job_ended(describe(line, origin))

    def _note_once(self, text: str) -> None:
        if text not in self.noted:
            self.noted.add(text)
            self.progress.note(text)


def _name(cell: Cell) -> Name:
    return cell.experiment, cell.key


def describe(line: Line, origin: str = "") -> str:
    """Return a recorded cell in one line of text; ``origin`` is the experiment that its result was taken from."""
    took = f"taken over from {origin}" if origin else f"{line['seconds']:.1f} s"
    words = [f"{line['experiment']} {line['key']}", KINDS[line["kind"]].summary(line), took]
    return "  ".join(filter(None, words))


def prepare(
    recipes: Recipes, selection: CellFilter, folder: Path, notify: Callable[[str], None]
) -> dict[str, list[str]]:
    """Write every dataset that the cells need into ``folder``, for a machine without the original files."""
    selection.check(recipes)
    cells = [cell for cell in selection.cells(recipes) if cell.needs_dataset]
    if not cells:
        raise DataError(f"the selected cells of {selection.name} need no dataset; select more.")
    written = []
    for source, variant in dict.fromkeys((cell.source, cell.source.variant(cell.seed or 0)) for cell in cells):
        target = folder / source.folder(variant)
        if (target / "dataset.json").exists():
            notify(f"{target} is there already.")
        else:
            open_dataset(source, variant).save(target)
            notify(f"{target} is written.")
        written.append(str(target))
    return {"prepared": written}
