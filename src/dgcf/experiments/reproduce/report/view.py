"""The recorded results of an experiment, ready to be shown: lines by cell, means over seeds, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.experiments.measure import MeanStd
from dgcf.experiments.report import Table, TableCell, signed
from dgcf.experiments.reproduce.cells import Cell, Line, Trained
from dgcf.experiments.reproduce.cells.base import grouped
from dgcf.experiments.reproduce.datasets import Source
from dgcf.experiments.reproduce.execute import describe_hardware
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.recipe import Experiment
from dgcf.experiments.reproduce.results import Index
from dgcf.text import counted

MISSING = "–"


@dataclass(frozen=True)
class Section:
    """An experiment as the report shows it: tables with captions, notes, and ``draw``, which fills a figure.

    ``hardware``: a note on the hardware follows the others.
    """

    tables: Sequence[tuple[str, Table]] = ()
    notes: Sequence[str] = ()
    draw: Callable[[Any], None] | None = None
    size: tuple[float, float] = (8.0, 4.0)
    hardware: bool = True


@dataclass(frozen=True)
class View:
    """An experiment with its recorded cells.

    ``paper`` holds the paper's numbers by experiment; ``recipes`` is the folder of settings files.
    """

    experiment: Experiment
    index: Index
    paper: Mapping[str, Any] = field(default_factory=dict)
    recipes: Path = Path("recipes")

    @cached_property
    def _lines(self) -> list[tuple[Cell, Line | None]]:
        return [(cell, self.index.find(cell)) for cell in self.experiment.cells]

    @property
    def missing(self) -> dict[str, str]:
        """The cells that are not recorded, with the reason."""
        return {cell.key: cell.blocked or "not computed yet" for cell, line in self._lines if line is None}

    @property
    def missing_groups(self) -> dict[str, int]:
        """The number of missing cells, by a name for those that differ only by their seed or, for trials, settings."""
        groups = grouped([cell for cell, line in self._lines if line is None], lambda cell: cell.key_without_seed)
        return {name if len(cells) > 1 else cells[0].key: len(cells) for name, cells in groups.items()}

    @property
    def recorded(self) -> list[Line]:
        return [line for _, line in self._lines if line is not None]

    def hardware_note(self) -> list[str]:
        """Return a note on the hardware and the time of the computation; none if nothing is recorded."""
        machines = dict.fromkeys(describe_hardware(line["hardware"]) for line in self.recorded)
        seconds, cells = sum(line["seconds"] for line in self.recorded), counted(len(self.recorded), "cell")
        took = f"{seconds / 3600:.1f} hours" if seconds >= 5400 else counted(round(seconds), "second")
        return [f"Computed on {'; '.join(machines)}: {took} in all, {cells}."] if machines else []

    def cells(self, kind: type[Cell] = Trained, **which: Any) -> list[tuple[Cell, Line | None]]:
        """Return the cells of a kind with their lines.

        ``which`` selects by ``data``, ``model``, ``settings`` and the settings that a grid varies.
        """
        return [
            (cell, line)
            for cell, line in self._lines
            if isinstance(cell, kind) and all(_attribute(cell, name) == value for name, value in which.items())
        ]

    def source(self, data: str) -> Source:
        """Return the dataset ``data`` of the trained cells."""
        return self.cells(data=data)[0][0].source

    def lines(self, kind: type[Cell] = Trained, **which: Any) -> list[Line]:
        """Return the lines of the cells that match and are recorded."""
        return [line for _, line in self.cells(kind, **which) if line is not None]

    def computed(self, kind: type[Cell], **which: Any) -> dict[str, Any] | None:
        """Return the result of the first recorded cell that matches."""
        lines = self.lines(kind, **which)
        return lines[0]["computed"] if lines else None

    def values(self, metric: str, mask: str = "train", **which: Any) -> dict[int, float]:
        """Return a test metric by seed."""
        return {line["seed"]: line["test"][mask][metric] for line in self.lines(**which)}

    def mean(self, metric: str, mask: str = "train", **which: Any) -> MeanStd | None:
        """Return the mean and deviation of a test metric over the seeds."""
        return mean_std(list(self.values(metric, mask, **which).values()))

    def accuracy(self, **which: Any) -> list[TableCell | str]:
        """Return the means of all test metrics as entries of a table."""
        return [shown(self.mean(metric, **which)) for metric in METRICS]

    def names(self, attribute: str, **which: Any) -> list[Any]:
        """Return the values of ``data``, ``model``, ``settings`` or a varied setting, in the order of the recipe."""
        values = (_attribute(cell, attribute) for cell, _ in self.cells(**which))
        return [value for value in dict.fromkeys(values) if value is not None]

    def seeds(self, **which: Any) -> str:
        """Return how many of the seeds are recorded: ``5``, or ``3 of 5``."""
        cells = self.cells(**which)
        return out_of(sum(line is not None for _, line in cells), len(cells))

    def by_depth(self, metric: str, depths: Sequence[int], model: str) -> NDArray[np.float64] | None:
        """Return a metric, (seeds, depths), of the seeds that are recorded for every depth; None if none is."""
        values = [self.values(metric, model=model, layers=depth) for depth in depths]
        seeds = sorted(set.intersection(*map(set, values))) if values else []
        return np.array([[of_depth[seed] for of_depth in values] for seed in seeds]) if seeds else None


def _attribute(cell: Cell, name: str) -> Any:
    own = {"data": cell.source.name, "model": cell.model, "settings": cell.settings}
    return own[name] if name in own else cell.varied.get(name)


def mean_std(values: Sequence[float]) -> MeanStd | None:
    """Return mean and sample deviation; None if there is no value."""
    return MeanStd.of(values) if values else None


# -- entries of tables ------------------------------------------------------------------------------------------------


def out_of(done: int, total: int) -> str:
    """Return ``5``, or ``3 of 5``."""
    return str(done) if done == total else f"{done} of {total}"


def shown(value: MeanStd | None, *, best: float | None = None, marked: bool = False) -> TableCell | str:
    """Return mean ± deviation, in bold if the mean is ``best``."""
    return MISSING if value is None else TableCell(str(value), value.mean == best, marked)


def number(value: float | None, form: str = ".4f") -> str:
    return MISSING if value is None else format(value, form)


def difference(value: MeanStd | None, paper: float | None) -> str:
    """Return our mean less the paper's number."""
    return MISSING if value is None or paper is None else signed(value.mean - paper)


def in_words(settings: Mapping[str, Any]) -> str:
    """Return settings as ``dim 128, layers 3``."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())
