"""Work through cells: find what is recorded already, train and compute the rest, append each as it is finished."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.validation import validator
from dgcf.experiments.reproduce import computing, measuring
from dgcf.experiments.reproduce.choosing import settle
from dgcf.experiments.reproduce.plan import Book, Cell, Experiment
from dgcf.experiments.reproduce.sources import Source, obtain
from dgcf.experiments.reproduce.store import Line, Store
from dgcf.experiments.reproduce.training import Outcome, train_seeds
from dgcf.train import DivergedError, pick_device
from dgcf.version import __version__

COMPUTED: Mapping[str, Callable[[Cell, Dataset], dict[str, Any]]] = {
    "statistics": computing.statistics_of,
    "edges": computing.edges_of,
    "walks": computing.walks_of,
}

TRAINED = ("trial", "trained")
"""The kinds that are trained, in the order of work."""
BEYOND_VALIDATION = ("test", "n_users", "measures")
"""What a trained cell has and a trial has not."""


class Watcher:
    """Hears how the work goes and does nothing; subclasses override what they care for."""

    def began(self, todo: int, known: int) -> None:
        """``todo`` cells are to be computed, ``known`` are recorded."""

    def note(self, text: str) -> None:
        """Something that the person should know, in one sentence."""

    def finished(self, line: Mapping[str, Any]) -> None:
        """One more cell is recorded."""

    def ended(self) -> None:
        """The work is over, finished or not."""


@dataclass
class Tally:
    """What became of the cells that were asked for, by key; ``missing`` says why."""

    known: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"known": self.known, "done": self.done, "missing": self.missing}


@dataclass(frozen=True)
class Desk:
    """Where the work is done: the recipes, the results, the prepared datasets if they are not made from files."""

    book: Book
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

        What trials decide is written into the folder of recipes, before what uses it is trained.
        ``limit``: seconds after which nothing is begun any more, nor what would probably not be finished by then.
        """
        if seeds is not None and seeds < 1:
            raise ConfigError(f"seeds is {seeds}, expected a whole number from 1 on.")
        pick_device(self.device)
        heard = watcher or Watcher()
        chosen = self.book.chosen(name)
        if not _asked(chosen, only, seeds, alone=len(chosen) == 1):
            raise ConfigError(f"no experiment has a cell {only!r}; leave --only out, or name one with its experiment.")
        work = _Work(self, Tally(), heard, limit)
        try:
            for deciding in (True, False):
                names = [one.name for one in chosen if bool(one.trials) == deciding]
                experiments = [work.desk.book.experiment(one) for one in names]  # the book may have changed
                if cells := _asked(experiments, only, seeds):
                    work.through(cells)
                    heard.ended()
                work.decide(experiments)
        finally:
            heard.ended()
        return work.tally


def _asked(
    experiments: Iterable[Experiment], only: str | None, seeds: int | None, *, alone: bool = False
) -> list[Cell]:
    """The cells that are asked for; unless it is ``alone``, an experiment may have none that match."""
    found = []
    for experiment in experiments:
        try:
            found += experiment.wanted(only, seeds)
        except ConfigError:
            if alone:
                raise
    return found


class _Work:
    """One sitting."""

    def __init__(self, desk: Desk, tally: Tally, watcher: Watcher, limit: float | None) -> None:
        self.desk, self.tally, self.watcher, self.limit = desk, tally, watcher, limit
        self.began = time.monotonic()
        self.longest = 0.0
        self.datasets: dict[str, Dataset] = {}
        self.index = desk.store.index(desk.book.experiments)

    def through(self, cells: Sequence[Cell]) -> Tally:
        todo = [cell for cell in cells if not self._known(cell)]
        self.watcher.began(len(todo), len(cells) - len(todo))
        for kind in TRAINED:
            for group in _groups([cell for cell in todo if cell.kind == kind]):
                self._begin(group, self._train)
        for cell in todo:
            if cell.kind not in (*TRAINED, "comparison"):
                self._begin([cell], self._compute)
        for cell in todo:  # last, when all that they compare is there
            if cell.kind == "comparison":
                self._compare(cell)
        return self.tally

    def decide(self, experiments: Iterable[Experiment]) -> None:
        """Write the settings that trials have decided; what uses them is read again."""
        trials = [cell for one in experiments for cell in one.trials]
        if settle(self.desk.book, trials, self.index, self.watcher.note):
            self.desk = replace(self.desk, book=Book.read(self.desk.book.recipes))

    # -- what need not be done --------------------------------------------------------------------------------------

    def _known(self, cell: Cell) -> bool:
        """Whether the cell is recorded here, or can be taken over from another experiment, or cannot be done yet."""
        if cell.blocked:
            self.tally.missing[cell.key] = cell.blocked
            return True
        if self.index.find(cell) is None:
            line = self._taken_over(cell)
            if line is None:
                return False
            self._record(cell, line)
        self.tally.known.append(cell.key)
        return True

    def _taken_over(self, cell: Cell) -> Line | None:
        """The same training from under another name, with what this cell wants of it."""
        if cell.kind == "trained" and (line := self.index.same_training(cell)):
            asked = {name: line["measures"][name] for name in cell.measures}  # the rest stays where it was measured
            return {**line, **_name(cell), "measures": asked}
        if cell.kind != "trial":
            return None
        if line := self.index.same_training(cell):
            return {**line, **_name(cell)}
        line = self.index.same_training(replace(cell, kind="trained"))
        if line is None or not line["validation"]:
            return None
        own = {name: value for name, value in line.items() if name not in BEYOND_VALIDATION}
        return {**own, **_name(cell), "kind": cell.kind, "fingerprint": cell.fingerprint}

    def _late(self) -> bool:
        """Whether what is begun now would probably end too late: as long as the longest so far, and a bit more."""
        return self.limit is not None and time.monotonic() - self.began + 1.1 * self.longest > self.limit

    def _begin(self, cells: Sequence[Cell], work: Callable[[Sequence[Cell]], None]) -> None:
        if self._late():
            self.tally.missing |= {cell.key: "there was no time left" for cell in cells}
            return
        began = time.monotonic()
        try:
            work(cells)
        except (DivergedError, torch.cuda.OutOfMemoryError) as problem:
            why = str(problem).splitlines()[0]
            self.watcher.note(f"{cells[0].key} was given up: {why}")
            done = set(self.tally.done)
            self._give_up([cell for cell in cells if cell.key not in done], why, time.monotonic() - began)
        self.longest = max(self.longest, time.monotonic() - began)

    def _give_up(self, cells: Sequence[Cell], why: str, seconds: float) -> None:
        """What cannot be trained is missing; a trial is spent, and recorded, so that it is not tried for ever."""
        for cell in cells:
            if cell.kind == "trial":
                record = {"seconds": round(seconds / len(cells), 3), "validation": None, "reason": why}
                self._record(cell, self._line(cell, self._dataset(cell), record))
                self.tally.done.append(cell.key)
            else:
                self.tally.missing[cell.key] = why

    # -- what is done -----------------------------------------------------------------------------------------------

    def _train(self, cells: Sequence[Cell]) -> None:
        first = cells[0]
        recipe = first.recipe
        assert recipe is not None
        by_seed: dict[int, list[Cell]] = {}
        for cell in cells:
            by_seed.setdefault(cell.seed or 0, []).append(cell)
        dataset = self._dataset(first)
        validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
        if first.kind == "trial":
            if validate is None:
                raise ConfigError(f"{first.key} decides on validation, and {first.source.name} has none; leave it out.")
            examiner = None  # test decides nothing
        else:
            examiner = measuring.Examiner.of(dataset)
        for outcome in train_seeds(dataset, recipe, list(by_seed), self.desk.device, validate):
            same = by_seed[outcome.seed]
            record = _trained(outcome) if examiner is None else self._measured(same[0], outcome, examiner)
            for cell in same:  # more than one where two names stand for one training
                self._record(cell, self._line(cell, dataset, record))
                self.tally.done.append(cell.key)

    def _measured(self, cell: Cell, outcome: Outcome, examiner: measuring.Examiner) -> dict[str, Any]:
        tested = examiner.tested(outcome.trained)
        finished = measuring.Finished(outcome, examiner.dataset, tested)
        self.desk.store.keep_users(cell.fingerprint, measuring.user_values(tested))
        asked = self.desk.book.measures.get(cell.fingerprint, ())
        return {
            **_trained(outcome),
            "test": measuring.test_record(tested),
            "n_users": tested["train"].users_evaluated,
            "measures": {name: measuring.ASKED[name](finished) for name in asked},
        }

    def _compute(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            dataset = self._dataset(cell)
            began = time.perf_counter()
            if cell.kind == "epochs":
                found = computing.epochs_of(cell, dataset, self.desk.device)
            else:
                found = COMPUTED[cell.kind](cell, dataset)
            record = {"computed": found, "seconds": round(time.perf_counter() - began, 3)}
            self._record(cell, self._line(cell, dataset, record))
            self.tally.done.append(cell.key)

    def _compare(self, cell: Cell) -> None:
        found = computing.comparison_of(cell, self.desk.store)
        if found is None:
            self.tally.missing[cell.key] = "what it compares is not trained, or the values of its users are not here"
            return
        self._record(cell, self._line(cell, None, {"computed": found, "seconds": 0.0}))
        self.tally.done.append(cell.key)

    def _dataset(self, cell: Cell) -> Dataset:
        """The dataset that a cell is on; one at a time is held."""
        variant = cell.source.variant(cell.seed or 0)
        name = cell.source.folder(variant)
        if name not in self.datasets:
            self.datasets = {name: obtain(cell.source, variant, self.desk.prepared)}
        return self.datasets[name]

    def _line(self, cell: Cell, dataset: Dataset | None, record: Mapping[str, Any]) -> Line:
        recipe = cell.recipe
        about: dict[str, Any] = {"name": cell.source.name, "source": cell.source.known}
        if dataset is not None:
            about |= {"fingerprint": dataset.fingerprint, "n_users": dataset.n_users, "n_items": dataset.n_items}
        return {
            **_name(cell),
            "kind": cell.kind,
            "fingerprint": cell.fingerprint,
            "data": about,
            "model": recipe.name if recipe else cell.model,
            "preset": recipe.preset if recipe else None,
            "settings": recipe.settings() if recipe else None,
            "seed": cell.seed,
            "version": __version__,
            "hardware": hardware(self.desk.device),
            **record,
        }

    def _record(self, cell: Cell, line: Line) -> None:
        self.desk.store.append(cell.experiment, line)
        self.index.add(line)
        self.watcher.finished(line)


def _name(cell: Cell) -> dict[str, Any]:
    """What is of the experiment and not of the training."""
    return {
        "experiment": cell.experiment,
        "key": cell.key,
        "label": cell.model,
        "settings_from": cell.settings,
        "varied": dict(cell.varied),
    }


def _groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that differ by name and seed alone together, in the order of the recipes."""
    found: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.group, []).append(cell)
    return list(found.values())


def _trained(outcome: Outcome) -> dict[str, Any]:
    trained, curve = outcome.trained, outcome.curve
    looked_at = {*measuring.METRICS, trained.recipe.train.metric}
    return {
        "seconds": round(outcome.seconds, 3),
        "seconds_per_epoch": round(curve.seconds_per_epoch / outcome.side_by_side, 6),
        "side_by_side": outcome.side_by_side,
        "epochs": trained.epochs,
        "best_epoch": trained.best_epoch,
        "reason": trained.reason,
        "validation": {name: round(value, 8) for name, value in curve.best.items() if name in looked_at},
    }


def told(line: Mapping[str, Any]) -> str:
    """A finished cell in one line."""
    words = [f"{line['experiment']} {line['key']}"]
    if line["kind"] == "trained":
        test = line["test"]["train"]
        words.append(f"recall@20 {test['recall@20']:.4f}  ndcg@20 {test['ndcg@20']:.4f}  epoch {line['best_epoch']}")
    if line["kind"] == "trial" and line["validation"]:
        metric = line["settings"].get("metric", measuring.METRICS[0])
        words.append(f"validation {metric} {line['validation'][metric]:.4f}  epoch {line['best_epoch']}")
    return "  ".join([*words, f"{line['seconds']:.1f} s"])


def hardware(device: str) -> dict[str, Any]:
    """What computed, in words that name no host."""
    place = pick_device(device)
    found = {"device": place.type, "cpu": _processor(), "cores": os.cpu_count(), "torch": torch.__version__}
    return {**found, "gpu": torch.cuda.get_device_name(place)} if place.type == "cuda" else found


def _processor() -> str:
    """The processor's name; Linux keeps it in a file."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def prepare(book: Book, name: str, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Write every dataset that an experiment needs into ``folder``, for a machine that cannot read the files."""
    written = []
    for source, variant in _needed(book, name):
        target = folder / source.folder(variant)
        if (target / "dataset.json").exists():
            say(f"{target} is there already.")
        else:
            obtain(source, variant).save(target)
            say(f"{target} is written.")
        written.append(target)
    return written


def _needed(book: Book, name: str) -> list[tuple[Source, int]]:
    cells = [cell for one in book.chosen(name) for cell in one.cells if cell.kind != "comparison"]
    found = {(cell.source.name, cell.source.variant(cell.seed or 0)): cell.source for cell in cells}
    if not found:
        raise DataError(f"{name} needs no dataset; choose another experiment.")
    return [(source, variant) for (_, variant), source in found.items()]
