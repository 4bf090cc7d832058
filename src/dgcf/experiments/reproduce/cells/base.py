"""The base class of cells: their names and fingerprints, and the operations that differ between the kinds."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired, Self, TypedDict, TypeVar

from dgcf.errors import ConfigError
from dgcf.experiments.reproduce.datasets import Source
from dgcf.train import Recipe, resolve

if TYPE_CHECKING:
    from dgcf.experiments.reproduce.execute import Executor
    from dgcf.experiments.reproduce.recipe import Grid
    from dgcf.experiments.reproduce.results import Index

Line = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K")
# Part of the fingerprint of every cell: a change of it invalidates all recorded results.
PROTOCOL = "best validated epoch; all items ranked; users with train and test items; masks train and train+validation"


class Stage(IntEnum):
    """The order of work."""

    DECIDE = 0
    TRAIN = 1
    COMPUTE = 2
    COMPARE = 3


class CellLine(TypedDict):
    """The fields of every recorded line."""

    experiment: str
    key: str
    kind: str
    fingerprint: str
    data: dict[str, Any]
    seconds: float
    hardware: dict[str, Any]
    measures: NotRequired[dict[str, Any] | None]


@dataclass(frozen=True)
class Cell(ABC):
    """One job of an experiment, such as a training, with the ``key`` ``ml-1m:dgcf:paper:layers=4:seed=0``.

    ``settings`` names their origin: a preset, ``tuned`` or ``best``; for a trial, what it decides. ``varied`` are the
    settings of the grid. ``recipe`` is None if the cell trains nothing, or if it is ``blocked`` by a missing settings
    file.
    """

    kind: ClassVar[str]
    stage: ClassVar[Stage] = Stage.COMPUTE
    line_type: ClassVar[type[CellLine]]
    """The fields of its line, which are checked on reading."""
    needs_model: ClassVar[bool] = False
    """Whether its grids name models and settings."""
    has_recipe: ClassVar[bool] = False
    needs_dataset: ClassVar[bool] = True
    kind_in_key: ClassVar[bool] = True
    averaged: ClassVar[bool] = False
    """Whether a table shows means of test metrics over the seeds, or what was computed."""

    experiment: str
    source: Source
    model: str = ""
    settings: str = ""
    varied: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    measures: tuple[str, ...] = ()
    recipe: Recipe | None = None
    blocked: str = ""

    # -- names ------------------------------------------------------------------------------------------------------

    @cached_property
    def key(self) -> str:
        words = [self.source.name, self.kind if self.kind_in_key else "", self.model, self.settings]
        words += [f"{name}={value}" for name, value in self.varied.items()]
        words += [] if self.seed is None else [f"seed={self.seed}"]
        return ":".join(filter(None, words))

    @property
    def key_without_seed(self) -> str:
        """A name for all cells that differ only by their seed."""
        return replace(self, seed=None).key

    @property
    def labels(self) -> dict[str, Any]:
        """The fields of its line that do not depend on the result."""
        names = {"experiment": self.experiment, "key": self.key, "label": self.model}
        return {**names, "settings_from": self.settings, "varied": dict(self.varied)}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the result: data, model, settings, seed and protocol."""
        identity: dict[str, Any] = {
            "kind": self.kind,
            "data": self.source.fingerprint(self.seed or 0),
            "varied": dict(self.varied),
            "seed": self.seed,
            "protocol": PROTOCOL,
        }
        return digest(json.dumps(identity | self.model_identity(), sort_keys=True))

    def model_identity(self) -> dict[str, Any]:
        """Return the part of the fingerprint that names the model and its settings.

        Settings at their default are left out, so that adding a setting changes no fingerprint.
        """
        if self.recipe is None:
            return {"model": self.model, "from": self.settings, "compared": ()} if self.model else {}
        defaults = _defaults(self.recipe.name)
        changed = {name: value for name, value in self.recipe.settings().items() if value != defaults[name]}
        return {"model": self.recipe.name, "varied": None, "settings": changed}

    @property
    def known_recipe(self) -> Recipe:
        """The recipe of a cell that trains and is not blocked."""
        assert self.recipe is not None
        return self.recipe

    @property
    def group(self) -> str:
        """The name of the cells that may be computed together."""
        return self.fingerprint

    @property
    def claim(self) -> str:
        """The name under which a process claims the work, the same for all cells that it serves."""
        return f"{self.group}-{self.seed}"

    @property
    def timed_with(self) -> tuple[str, ...]:
        """The kinds whose recorded seconds predict those of this cell."""
        return (self.kind,)

    # -- grids ------------------------------------------------------------------------------------------------------

    @classmethod
    def check_grid(cls, grid: Grid, path: Path) -> None:
        """Refuse a grid that lacks what this kind needs, or has what it cannot use."""
        if grid.candidates or grid.decides:
            raise ConfigError(f"a grid of {path} has candidates and is of kind {cls.kind}; only a trial has them.")

    @classmethod
    def grid_points(cls, grid: Grid) -> list[dict[str, Any]]:
        """Return the settings of each point of a grid."""
        points = product(*grid.sweep.values())
        return [{**grid.set, **dict(zip(grid.sweep, point, strict=True))} for point in points]

    @classmethod
    def settings_for(cls, model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a grid point that apply to a model."""
        return dict(settings)

    @classmethod
    def grid_seeds(cls, grid: Grid, source: Source, recipe: Recipe | None) -> Sequence[int | None]:
        """Return the seeds of a grid point; None if the result depends on no seed."""
        return [None]

    def linked(self, cells: Sequence[Cell]) -> Self:
        """Return this cell with references to those of its experiment that it needs."""
        return self

    # -- work -------------------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def execute(cls, cells: Sequence[Any], executor: Executor) -> Iterator[tuple[Cell, Line]]:
        """Compute cells of one group, and yield each with its result as soon as it is finished."""

    def reuse(self, index: Index) -> tuple[str, Line] | None:
        """Return a recorded line with the result of this cell, and its experiment; None if there is none."""
        return None

    def failure(self, reason: str, seconds: float) -> Line | None:
        """Return the result to record if training failed; None if the cell is to stay missing."""
        return None

    @classmethod
    def summary(cls, line: Line) -> str:
        """Return the result of a line in a few words, for progress messages."""
        return ""


@cache
def _defaults(model: str) -> Mapping[str, Any]:
    return resolve(model, preset="plain").settings()


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by ``key``, in the order in which each occurs first."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
