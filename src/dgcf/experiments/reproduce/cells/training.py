"""Cells that train a model: trainings that are tested, and trials that decide settings on validation alone."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from dgcf.config import refuse_unknown
from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.experiments.jobs import train_seeds
from dgcf.experiments.reproduce.cells.base import Cell, CellLine, Line, Stage, digest, grouped
from dgcf.experiments.reproduce.datasets import Source
from dgcf.experiments.reproduce.measures import METRICS, Curve, Examiner, training_record
from dgcf.experiments.reproduce.schema import errors_name_file
from dgcf.train import Recipe, SeedJob, resolve
from dgcf.train.presets import PRESETS

if TYPE_CHECKING:
    from dgcf.experiments.reproduce.execute import Executor
    from dgcf.experiments.reproduce.recipe import Grid
    from dgcf.experiments.reproduce.results import Index

DECIDED = ("tuned", "best")
"""What trials can decide: the settings of each model, or the best settings of any model."""
BEYOND_VALIDATION = ("test", "n_users", "measures")
"""The fields of a trained line that the line of a trial does not have."""
Means = TypedDict("Means", {"recall@20": float, "ndcg@20": float})
Tests = TypedDict("Tests", {"train": Means, "train+validation": NotRequired[Means]})


class TrialLine(CellLine):
    """The line of a trial; ``validation`` is None if training failed."""

    settings: NotRequired[dict[str, Any] | None]
    validation: dict[str, float] | None
    best_epoch: NotRequired[int | None]


class TrainedLine(TrialLine):
    """The line of a training."""

    test: Tests
    epochs: int
    seed: int


class TrainingCell(Cell):
    """A cell that trains a model. Cells that differ only by their seed are trained together."""

    needs_model = True
    has_recipe = True

    @cached_property
    def group(self) -> str:
        settings = json.dumps(self.known_recipe.settings(), sort_keys=True)
        return digest(json.dumps([self.source.fingerprint(self.seed or 0), self.known_recipe.name, settings]))

    @property
    def timed_with(self) -> tuple[str, ...]:
        return (Trial.kind, Trained.kind)

    @classmethod
    def execute(cls, cells: Sequence[TrainingCell], executor: Executor) -> Iterator[tuple[Cell, Line]]:
        first, dataset = cells[0], executor.dataset(cells[0])
        recipe = first.known_recipe
        by_seed = grouped(cells, lambda cell: cell.seed or 0)
        examiner = first.examiner(dataset)
        curves = {seed: Curve() for seed in by_seed}
        jobs = [SeedJob(seed, curve) for seed, curve in curves.items()]
        validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
        for job, trained in train_seeds(dataset, recipe, jobs, device=executor.device, validate=validate):
            curve = curves[job.seed]
            result = training_record(trained, curve, side_by_side=len(jobs))
            if examiner is not None:
                fingerprint = by_seed[job.seed][0].fingerprint
                tests, user_values = examiner.examine(trained, curve, executor.measures.get(fingerprint, ()))
                executor.store.keep_users(fingerprint, user_values)
                result |= tests
            for cell in by_seed[job.seed]:  # several if one training has several names
                yield cell, result

    @abstractmethod
    def examiner(self, dataset: Dataset) -> Examiner | None:
        """Return what tests the trained models; None if they are not tested."""


class Trained(TrainingCell):
    """A training that is tested and measured."""

    kind = "trained"
    stage = Stage.TRAIN
    line_type = TrainedLine
    kind_in_key = False
    averaged = True

    @classmethod
    def grid_seeds(cls, grid: Grid, source: Source, recipe: Recipe | None) -> Sequence[int | None]:
        seeded = recipe is None or recipe.entry.seeded
        return range(grid.seeds or source.seeds) if seeded else [0]

    def examiner(self, dataset: Dataset) -> Examiner | None:
        return Examiner(dataset)

    def reuse(self, index: Index) -> tuple[str, Line] | None:
        line = index.same_training(self)
        if line is None:
            return None
        own = {name: line["measures"][name] for name in self.measures}  # the others stay where they were measured
        return line["experiment"], {**line, **self.labels, "measures": own}

    @classmethod
    def summary(cls, line: Line) -> str:
        test = line["test"]["train"]
        return f"recall@20 {test['recall@20']:.4f}  ndcg@20 {test['ndcg@20']:.4f}  epoch {line['best_epoch']}"


class Trial(TrainingCell):
    """A training of candidate settings, of which only the validation metrics are recorded."""

    kind = "trial"
    stage = Stage.DECIDE
    line_type = TrialLine

    @property
    def key_without_seed(self) -> str:
        return replace(self, seed=None, varied={}).key

    @classmethod
    def check_grid(cls, grid: Grid, path: Path) -> None:
        if grid.decides not in DECIDED:
            raise ConfigError(f"trials of {path} decide {grid.decides!r}, expected {' or '.join(DECIDED)}.")
        if not grid.candidates or grid.sweep:
            raise ConfigError(
                f"trials of {path} need candidates, a list such as [{{}}, {{ layers = 2 }}], and no sweep."
            )
        if len(grid.settings) != 1 or grid.settings[0] not in PRESETS:
            raise ConfigError(
                f"trials of {path} are laid over {list(grid.settings)}, expected one preset ({', '.join(PRESETS)})."
            )
        with errors_name_file(path):
            known = set[str]().union(*map(_settings_of, grid.models))
        settings = [name for point in cls.grid_points(grid) for name in point]
        refuse_unknown(settings, known, f"a trial of {path}")

    @classmethod
    def grid_points(cls, grid: Grid) -> list[dict[str, Any]]:
        return [{**grid.set, **candidate} for candidate in grid.candidates]

    @classmethod
    def settings_for(cls, model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        known = _settings_of(model)
        return {name: value for name, value in settings.items() if name in known}

    @classmethod
    def grid_seeds(cls, grid: Grid, source: Source, recipe: Recipe | None) -> Sequence[int | None]:
        assert recipe is not None
        return range((grid.seeds or 1) if recipe.entry.seeded else 1)

    def examiner(self, dataset: Dataset) -> Examiner | None:
        if not len(dataset.validation):
            raise ConfigError(f"{self.key} decides on validation, and {self.source.name} has none; leave it out.")
        return None  # no look at test before settings are decided

    def reuse(self, index: Index) -> tuple[str, Line] | None:
        if line := index.same_training(self):
            return line["experiment"], {**line, **self.labels}
        line = index.same_training(Trained(self.experiment, self.source, seed=self.seed, recipe=self.recipe))
        if line is None or not line["validation"]:
            return None
        own = {name: value for name, value in line.items() if name not in BEYOND_VALIDATION}
        return line["experiment"], {**own, **self.labels, "kind": self.kind, "fingerprint": self.fingerprint}

    def failure(self, reason: str, seconds: float) -> Line | None:
        return {"seconds": round(seconds, 3), "validation": None, "reason": reason}

    @classmethod
    def summary(cls, line: Line) -> str:
        if not line["validation"]:
            return ""
        metric = (line.get("settings") or {}).get("metric", METRICS[0])
        return f"validation {metric} {line['validation'].get(metric, 0.0):.4f}  epoch {line['best_epoch']}"


@cache
def _settings_of(model: str) -> set[str]:
    """Return the names of the settings that have an effect on a model."""
    recipe = resolve(model, preset="plain")
    idle = set() if recipe.entry.solved or recipe.model.drops_edges else {"edge_dropout", "dropout_draws"}
    return set(recipe.settings()) - idle
