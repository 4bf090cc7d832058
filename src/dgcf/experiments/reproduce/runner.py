"""Work through cells: find what is recorded already, train and compute the rest, append each as it is finished.

Several processes may share the work over one folder of results: each claims what no other has, and looks again at what
is recorded before it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.experiments.reproduce.datasets import Source, obtain
from dgcf.experiments.reproduce.execute import COMPUTED, Executor, naming
from dgcf.experiments.reproduce.machine import estimate, hardware
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.recipe import Cell, Recipes
from dgcf.experiments.reproduce.results import Index, Line, Store, together
from dgcf.experiments.reproduce.select import settle
from dgcf.train import DivergedError, groups, pick_device

POLL = 1.0
"""Seconds between two looks at what other processes are at."""
Name = tuple[str, str]
"""A cell's experiment and key."""
BEYOND_VALIDATION = ("test", "n_users", "measures")
"""What a trained cell has and a trial has not."""


class Watcher:
    """Hears how the work goes and does nothing; subclasses override what they care for."""

    def began(self, todo: int, known: int) -> None:
        """``todo`` cells are to be computed, ``known`` are recorded."""

    def note(self, text: str) -> None:
        """Something that the person should know, in one sentence."""

    def finished(self, line: Mapping[str, Any]) -> None:
        """One more cell was computed and is recorded."""

    def taken_over(self, line: Mapping[str, Any], origin: str) -> None:
        """One more cell is recorded: the same training was there, as part of the experiment ``origin``."""

    def elsewhere(self, line: Mapping[str, Any]) -> None:
        """One more cell was recorded by another process."""

    def ended(self) -> None:
        """The work is over, finished or not."""


@dataclass
class Tally:
    """What became of the cells that were asked for, by key, after their experiment where ``all`` were asked for.

    ``known`` were recorded before, or meanwhile by other processes; ``taken_over`` from the same training of another
    cell; ``missing`` says why.
    """

    known: list[str] = field(default_factory=list)
    taken_over: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"known": self.known, "taken_over": self.taken_over, "done": self.done, "missing": self.missing}


@dataclass(frozen=True)
class Runner:
    """Where the work is done: the recipes, the results, the prepared datasets if they are not made from files."""

    book: Recipes
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
        watcher: Watcher | None = None,
    ) -> Tally:
        """Compute what is missing of an experiment; with ``all``, of every one. Ctrl-C keeps what is finished.

        What trials decide is written into the folder of recipes, before what uses it is trained. What other processes
        are at is left to them and waited for. ``limit``: seconds after which nothing is begun or waited for any more;
        what would probably not be finished by then is not begun.
        """
        pick_device(self.device)
        heard = watcher or Watcher()
        asked = CellFilter(name, only, seeds)
        asked.refuse_nothing(self.book)
        work = _Work(self, asked, heard, limit)
        try:
            return work.through([cell for one in self.book.chosen(name) for cell in one.trials])
        finally:
            heard.ended()


@dataclass(frozen=True)
class CellFilter:
    """Which cells a person asks for: of one experiment or of ``all``, those that match, the first so many seeds."""

    name: str
    only: str | None = None
    seeds: int | None = None

    def cells(self, book: Recipes) -> list[Cell]:
        """Them; an experiment may have none."""
        return [cell for one in book.chosen(self.name) for cell in one.wanted(self.only, self.seeds)]

    def called(self, cell: Cell) -> str:
        """A cell's key, after its experiment where there are several, which may use the same keys."""
        return f"{cell.experiment} {cell.key}" if self.name == "all" else cell.key

    def refuse_nothing(self, book: Recipes) -> None:
        """Something is asked for, or a sentence says why not."""
        if self.seeds is not None and self.seeds < 1:
            raise ConfigError(f"seeds is {self.seeds}, expected a whole number from 1 on.")
        if self.only is not None and not self.only.strip("^* "):
            raise ConfigError(f"only is {self.only!r}, which is every cell; give part of a name, or leave it out.")
        cells = [cell for one in book.chosen(self.name) for cell in one.cells]
        most = max((cell.seed + 1 for cell in cells if cell.seed is not None), default=None)
        if self.seeds is not None and most is not None and self.seeds > most:
            raise ConfigError(
                f"seeds is {self.seeds}, and {self.name} has {most} at most; ask for fewer, or write "
                f"seeds = {self.seeds} into the grids of its recipe."
            )
        if self.cells(book):
            return
        keys = [cell.key for cell in cells]
        whose = "no experiment has a cell" if self.name == "all" else f"{self.name} has no cell"
        hint = did_you_mean(self.only or "", keys) or f"; give any part of a cell's name, such as {keys[0]}."
        raise ConfigError(f"{whose} {self.only!r}{hint}")


class _Work:
    """One sitting: rounds over what is not recorded, past what other processes are at."""

    def __init__(self, runner: Runner, asked: CellFilter, watcher: Watcher, limit: float | None) -> None:
        self.runner, self.asked, self.watcher, self.limit = runner, asked, watcher, limit
        self.began = time.monotonic()
        self.longest = 0.0
        self.executor = Executor(runner.store, runner.prepared, runner.device)
        self.index = Index()
        self.left: dict[Name, Cell] = {}  # what may still be done: not recorded, not blocked, not given up
        self.done: set[Name] = set()
        self.taken_over: set[Name] = set()
        self.given_up: dict[Name, str] = {}
        self.told: set[str] = set()

    def through(self, trials: Sequence[Cell]) -> Tally:
        """Until nothing is left that this process could do, nor anything that others are at."""
        self._plan()
        undecided = len(trials)
        while True:
            busy = self._round("trial")
            missing = sum(self.index.find(cell) is None for cell in trials)
            if missing != undecided and self._decide(trials):
                self._plan()
            undecided = missing
            busy += self._round("trained") + self._round(*COMPUTED, "epochs")
            busy = busy or self._round("comparison")  # last, when all that they compare is there
            if not busy:
                return self._tally()
            if self._late():
                self._give_up(self.left.values(), "other processes were at work, and there was no time left to wait")
                return self._tally()
            self._note_once("other processes are at what is left; waiting for them.")
            time.sleep(POLL)

    def _plan(self) -> None:
        """What the recipes as they are now leave to be done."""
        cells = [cell for cell in self.asked.cells(self.runner.book) if not cell.blocked]
        self.index = self.runner.store.index(self.runner.book.experiments)
        missing = [cell for cell in cells if self.index.find(cell) is None]
        self.left = {_id(cell): cell for cell in missing if _id(cell) not in self.given_up}
        self.watcher.ended()
        self.watcher.began(len(self.left), len(cells) - len(missing))

    def _decide(self, trials: Sequence[Cell]) -> bool:
        """Write the settings that trials have decided; whether the recipes are others now, whoever wrote them."""
        settle(self.runner.book, trials, self.index, self._note_once)
        book = Recipes.read(self.runner.book.recipes)
        changed = book != self.runner.book
        self.runner = replace(self.runner, book=book)
        return changed

    def _tally(self) -> Tally:
        tally = Tally()
        for cell in self.asked.cells(self.runner.book):
            called = self.asked.called(cell)
            if _id(cell) in self.done:
                tally.done.append(called)
            elif _id(cell) in self.taken_over:
                tally.taken_over.append(called)
            elif not cell.blocked and self.index.find(cell):
                tally.known.append(called)
            else:
                tally.missing[called] = cell.blocked or self.given_up[_id(cell)]
        return tally

    def _note_once(self, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            self.watcher.note(text)

    # -- whose it is ------------------------------------------------------------------------------------------------

    def _round(self, *kinds: str) -> list[Cell]:
        """Do what is left of these kinds, and give back what other processes are at."""
        alike: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.left.values():
            if cell.kind in kinds:
                alike.setdefault((cell.kind, together(cell)), []).append(cell)
        at_once = [group for cells in alike.values() for group in _groups(cells, self.runner.device)]
        return [cell for group in at_once for cell in self._share(group)]

    def _share(self, group: Sequence[Cell]) -> list[Cell]:
        """Do of a group what no other process is at; the rest is given back."""
        if not (wanted := self._not_recorded(group)):
            return []
        with self.runner.store.claim(wanted) as got:
            if got:
                self._look()
            cells = [cell for cell in self._not_recorded(got) if not self._take_over(cell)]
            if cells and self._late(cells):
                self._give_up(cells, "there was no time left")
            elif cells:
                self._begin(cells)
        return self._not_recorded(cell for cell in wanted if cell not in got)

    def _look(self) -> None:
        """See what other processes have recorded."""
        self.index = self.runner.store.index(self.runner.book.experiments)
        for name, cell in list(self.left.items()):
            if line := self.index.find(cell):
                del self.left[name]
                self.watcher.elsewhere(line)

    def _not_recorded(self, cells: Iterable[Cell]) -> list[Cell]:
        return [cell for cell in cells if _id(cell) in self.left]

    def _take_over(self, cell: Cell) -> bool:
        """Whether the cell could be recorded at once: the same training is there under another name."""
        found = self._same_training(cell)
        if found is None:
            return False
        origin, line = found
        self._record(cell, line)
        self.taken_over.add(_id(cell))
        self.watcher.taken_over(line, origin)
        return True

    def _same_training(self, cell: Cell) -> tuple[str, Line] | None:
        """The same training from under another name, with what this cell wants of it, and of which experiment it is."""
        if cell.kind == "trained" and (line := self.index.same_training(cell)):
            asked = {name: line["measures"][name] for name in cell.measures}  # the rest stays where it was measured
            return line["experiment"], {**line, **naming(cell), "measures": asked}
        if cell.kind != "trial":
            return None
        if line := self.index.same_training(cell):
            return line["experiment"], {**line, **naming(cell)}
        line = self.index.same_training(replace(cell, kind="trained"))
        if line is None or not line["validation"]:
            return None
        own = {name: value for name, value in line.items() if name not in BEYOND_VALIDATION}
        return line["experiment"], {**own, **naming(cell), "kind": cell.kind, "fingerprint": cell.fingerprint}

    # -- how it ends ------------------------------------------------------------------------------------------------

    def _late(self, cells: Sequence[Cell] = ()) -> bool:
        """Whether what is begun now would probably end too late: by what it should take, and a bit more."""
        if self.limit is None:
            return False
        expected = 0.0
        if cells:
            known = estimate(cells, self.index.lines(), hardware(self.runner.device))
            expected = self.longest if known is None else known
        return time.monotonic() - self.began + 1.1 * expected > self.limit

    def _begin(self, cells: Sequence[Cell]) -> None:
        began = time.monotonic()
        try:
            for cell, line in self.executor.lines(cells, self.runner.book.measures):
                self._finish(cell, line)
            self._give_up(cells, "what it compares is not trained, or the values of its users are not here")
        except (DivergedError, torch.cuda.OutOfMemoryError) as problem:
            why = str(problem).splitlines()[0]
            self.watcher.note(f"{cells[0].key} was given up: {why}")
            crowded = isinstance(problem, torch.cuda.OutOfMemoryError) and self.runner.store.others(cells)
            if cells[0].kind == "trial" and not crowded:
                self._spend(self._not_recorded(cells), why, time.monotonic() - began)
            self._give_up(cells, why)
        self.longest = max(self.longest, time.monotonic() - began)

    def _spend(self, cells: Sequence[Cell], why: str, seconds: float) -> None:
        """A trial that cannot be trained is spent, and recorded, so that it is not tried for ever.

        Not so where other processes may have taken the memory that it needs.
        """
        for cell in cells:
            self._finish(cell, self.executor.failed(cell, why, seconds / len(cells)))

    def _give_up(self, cells: Iterable[Cell], why: str) -> None:
        """What is not recorded of these stays missing."""
        for cell in self._not_recorded(cells):
            del self.left[_id(cell)]
            self.given_up[_id(cell)] = why

    def _finish(self, cell: Cell, line: Line) -> None:
        self._record(cell, line)
        self.done.add(_id(cell))
        self.watcher.finished(line)

    def _record(self, cell: Cell, line: Line) -> None:
        self.runner.store.append(cell.experiment, line)
        self.index.add(line)
        del self.left[_id(cell)]


def _groups(cells: Sequence[Cell], device: str) -> Sequence[Sequence[Cell]]:
    """What this process does in one go of cells that differ by name and seed alone; one training has all its names."""
    recipe = cells[0].recipe
    if recipe is None:
        return [cells]
    at_once = groups(sorted({cell.seed or 0 for cell in cells}), recipe, device)
    return [[cell for cell in cells if (cell.seed or 0) in seeds] for seeds in at_once]


def _id(cell: Cell) -> Name:
    return cell.experiment, cell.key


def describe(line: Mapping[str, Any], origin: str = "") -> str:
    """A recorded cell in one line; one that was taken over from the experiment ``origin`` took no time."""
    words = [f"{line['experiment']} {line['key']}"]
    if line["kind"] == "trained":
        test = line["test"]["train"]
        words.append(f"recall@20 {test['recall@20']:.4f}  ndcg@20 {test['ndcg@20']:.4f}  epoch {line['best_epoch']}")
    if line["kind"] == "trial" and line["validation"]:
        metric = (line.get("settings") or {}).get("metric", METRICS[0])
        words.append(f"validation {metric} {line['validation'].get(metric, 0.0):.4f}  epoch {line['best_epoch']}")
    return "  ".join([*words, f"taken over from {origin}" if origin else f"{line['seconds']:.1f} s"])


def prepare(book: Recipes, asked: CellFilter, folder: Path, notify: Callable[[str], None]) -> list[Path]:
    """Write every dataset that the cells need into ``folder``, for a machine that cannot read the files."""
    written = []
    for source, variant in _needed(book, asked):
        target = folder / source.folder(variant)
        if (target / "dataset.json").exists():
            notify(f"{target} is there already.")
        else:
            obtain(source, variant).save(target)
            notify(f"{target} is written.")
        written.append(target)
    return written


def _needed(book: Recipes, asked: CellFilter) -> list[tuple[Source, int]]:
    asked.refuse_nothing(book)
    cells = [cell for cell in asked.cells(book) if cell.kind != "comparison"]
    found = {(cell.source.name, cell.source.variant(cell.seed or 0)): cell.source for cell in cells}
    if not found:
        raise DataError(f"what is asked for of {asked.name} needs no dataset; ask for more.")
    return [(source, variant) for (_, variant), source in found.items()]
