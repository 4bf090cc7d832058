"""What is recorded of an experiment, ready to be shown: lines by what they are of, means over seeds, what lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.experiments.measure import MeanStd
from dgcf.experiments.report import Table, TableCell, signed
from dgcf.experiments.reproduce.recipe import Cell, Experiment
from dgcf.experiments.reproduce.results import Index, Line

MISSING = "–"


@dataclass(frozen=True)
class Chapter:
    """An experiment as it is shown: captioned tables, a picture that ``draw`` puts into a figure, and notes."""

    tables: Sequence[tuple[str, Table]] = ()
    notes: Sequence[str] = ()
    draw: Callable[[Any], None] | None = None
    size: tuple[float, float] = (8.0, 4.0)


@dataclass(frozen=True)
class View:
    """One experiment with its finished cells.

    ``paper`` holds the paper's numbers by experiment, ``recipes`` is where decided settings are.
    """

    experiment: Experiment
    index: Index
    paper: Mapping[str, Any] = field(default_factory=dict)
    recipes: Path = Path("recipes")

    @cached_property
    def _found(self) -> list[tuple[Cell, Line | None]]:
        return [(cell, self.index.find(cell)) for cell in self.experiment.cells]

    @property
    def missing(self) -> dict[str, str]:
        """The cells that are not recorded, and why where that is known."""
        return {cell.key: cell.blocked or "not computed yet" for cell, line in self._found if line is None}

    @property
    def missing_groups(self) -> dict[str, int]:
        """The same in short, with how many there are: one name for what differs by the seed, or by what was tried."""
        groups: dict[str, list[str]] = {}
        for cell, line in self._found:
            if line is None:
                groups.setdefault(_less_seed(cell), []).append(cell.key)
        return {name if len(keys) > 1 else keys[0]: len(keys) for name, keys in groups.items()}

    @property
    def recorded(self) -> list[Line]:
        return [line for _, line in self._found if line is not None]

    def cells(self, kind: str = "trained", **which: Any) -> list[tuple[Cell, Line | None]]:
        """The cells of a kind; ``which`` may name ``data``, ``model``, ``settings`` and whatever a grid varies."""
        return [(cell, line) for cell, line in self._found if cell.kind == kind and _matches(cell, which)]

    def lines(self, kind: str = "trained", **which: Any) -> list[Line]:
        """The finished ones of them."""
        return [line for _, line in self.cells(kind, **which) if line is not None]

    def one(self, kind: str, **which: Any) -> dict[str, Any] | None:
        """What was computed in the one cell that matches."""
        lines = self.lines(kind, **which)
        return lines[0]["computed"] if lines else None

    def values(self, metric: str, mask: str = "train", **which: Any) -> dict[int, float]:
        """A test metric by seed."""
        return {line["seed"]: line["test"][mask][metric] for line in self.lines(**which)}

    def spread(self, metric: str, mask: str = "train", **which: Any) -> MeanStd | None:
        """Its mean and deviation over the seeds."""
        return spread(list(self.values(metric, mask, **which).values()))

    def names(self, what: str, kind: str = "trained", **which: Any) -> list[Any]:
        """All that the recipe names, in its order: of ``data``, ``model``, ``settings`` or what a grid varies."""
        named = (_attribute(cell, what) for cell, _ in self.cells(kind, **which))
        return [name for name in dict.fromkeys(named) if name is not None]

    def seeds(self, **which: Any) -> str:
        """How many of the seeds are there: ``5``, or ``3 of 5``."""
        cells = self.cells(**which)
        return out_of(sum(line is not None for _, line in cells), len(cells))

    def table(self, metric: str, depth: str, points: Sequence[Any], **which: Any) -> NDArray[np.float64] | None:
        """(seeds, points) a metric along something varied, for the seeds that have every point; None if none has."""
        found = [self.values(metric, **{**which, depth: point}) for point in points]
        shared = sorted(set.intersection(*map(set, found))) if found else []
        return np.array([[values[seed] for values in found] for seed in shared]) if shared else None


def _less_seed(cell: Cell) -> str:
    short = replace(cell, seed=None, varied={}) if cell.kind == "trial" else replace(cell, seed=None)
    return short.key


def _attribute(cell: Cell, what: str) -> Any:
    own = {"data": cell.source.name, "model": cell.model, "settings": cell.settings}
    return own[what] if what in own else cell.varied.get(what)


def _matches(cell: Cell, which: Mapping[str, Any]) -> bool:
    return all(_attribute(cell, name) == value for name, value in which.items())


def spread(values: Sequence[float]) -> MeanStd | None:
    """Mean and sample deviation; None of nothing."""
    return MeanStd.of(values) if values else None


# -- words of tables --------------------------------------------------------------------------------------------------


def out_of(done: int, wanted: int) -> str:
    """``5``, or ``3 of 5``."""
    return str(done) if done == wanted else f"{done} of {wanted}"


def shown(found: MeanStd | None, *, best: bool = False, marked: bool = False) -> TableCell:
    """Mean ± deviation, or the sign of what is missing."""
    return TableCell(MISSING) if found is None else TableCell(str(found), best, marked)


def number(value: float | None, form: str = ".4f") -> TableCell:
    return TableCell(MISSING if value is None else format(value, form))


def less(found: MeanStd | None, paper: float | None) -> TableCell:
    """Ours less the paper's."""
    return TableCell(MISSING if found is None or paper is None else signed(found.mean - paper))


def counted(how_many: int, what: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{how_many:,} {what}{'s' * (how_many != 1)}"


def words(*texts: str) -> list[TableCell]:
    return [TableCell(text) for text in texts]


def hardware_note(lines: Sequence[Line]) -> list[str]:
    """On what it was computed, and how long it took."""
    if not lines:
        return []
    places = dict.fromkeys(hardware_words(line["hardware"]) for line in lines)
    seconds = sum(line["seconds"] for line in lines)
    took = f"{seconds / 3600:.1f} hours" if seconds >= 5400 else counted(round(seconds), "second")
    return [f"Computed on {'; '.join(places)}: {took} in all, {counted(len(lines), 'cell')}."]


def hardware_words(about: Mapping[str, Any]) -> str:
    """``NVIDIA H200``, or ``AMD EPYC, 2 cores``."""
    return str(about["gpu"]) if "gpu" in about else f"{about['cpu']}, {counted(about['cores'], 'core')}"
