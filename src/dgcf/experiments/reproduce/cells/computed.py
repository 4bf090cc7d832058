"""Cells that are computed without training: counts of datasets and edges, walks, and seconds per epoch."""

from __future__ import annotations

import statistics
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import Dataset
from dgcf.data.statistics import statistics as count
from dgcf.errors import ConfigError
from dgcf.experiments.reproduce.cells.base import Cell, CellLine, Line, Measures
from dgcf.experiments.reproduce.measures import Curve
from dgcf.graph import cross_hop, interaction_matrix
from dgcf.graph.theory.oscillation import PAPER_CLAIMS, WalkReport, oscillation
from dgcf.models import GraphModel
from dgcf.train import TrainConfig, build, pick_device
from dgcf.train.trainer import Trainer

if TYPE_CHECKING:
    from dgcf.experiments.reproduce.execute import Executor
    from dgcf.experiments.reproduce.grids import Grid

TIMED_EPOCHS = 6
STEPS = 40
COUNTS = ("users", "items", "density", "train", "validation", "test", "duplicates", "leaks", "popularity")


class ComputedLine(CellLine):
    """The line of a cell that is computed without training."""

    computed: dict[str, Any]


class ComputedCell(Cell):
    """A cell that is computed and not trained."""

    line_type = ComputedLine

    @classmethod
    def values(cls, lines: Sequence[Line]) -> list[str | list[float]]:
        """Return the computed numbers and words in one text."""
        computed = lines[-1]["computed"].items() if lines else ()
        return [", ".join(f"{name} {value}" for name, value in computed if not isinstance(value, dict | list))]


class DatasetCell(ComputedCell):
    """A cell that is computed from its dataset."""

    @classmethod
    def execute(
        cls, cells: Sequence[DatasetCell], executor: Executor, measures: Measures
    ) -> Iterator[tuple[Cell, Line]]:
        for cell in cells:
            dataset = executor.dataset(cell)
            began = time.perf_counter()
            computed = cell.compute(dataset, executor.device)
            yield cell, {"computed": computed, "seconds": round(time.perf_counter() - began, 3)}

    @abstractmethod
    def compute(self, dataset: Dataset, device: str) -> dict[str, Any]:
        """Return the result as JSON."""


class Statistics(DatasetCell):
    """A row of the paper's Table 3, with the flaws of the split."""

    kind = "statistics"

    def compute(self, dataset: Dataset, device: str) -> dict[str, Any]:
        counts = vars(count(dataset))
        return {name: counts[name] for name in COUNTS}


class Edges(DatasetCell):
    """The number of cross-hop edges that ε keeps, beside the direct ones."""

    kind = "edges"

    @classmethod
    def check_grid(cls, grid: Grid, path: Path) -> None:
        super().check_grid(grid, path)
        if "epsilon" not in {**grid.set, **grid.sweep}:
            raise ConfigError(
                f"a grid of {path} counts edges and names no epsilon; give it one, such as set = {{ epsilon = 0.01 }}."
            )

    def compute(self, dataset: Dataset, device: str) -> dict[str, Any]:
        cross = cross_hop(interaction_matrix(dataset.train), self.varied["epsilon"])
        ratio = cross.ratio if cross.edges else None
        return {"direct_edges": cross.direct_edges, "cross_edges": cross.edges, "ratio": ratio}


class Walks(DatasetCell):
    """The paper's four statements in numbers: walks on every matrix, their limits, gaps and bounds."""

    kind = "walks"

    def compute(self, dataset: Dataset, device: str) -> dict[str, Any]:
        report = oscillation(dataset.train, steps=STEPS)
        return {
            "epsilon": report.epsilon,
            "components": len(report.components),
            "isolated": report.isolated,
            "walks": {name: _walk(name, walk) for name, walk in report.walks.items()},
            "symmetric": {
                "gaps": _short(report.symmetric_gaps),
                "within_bound": bool((report.symmetric_gaps <= report.symmetric_bounds * (1 + 1e-12)).all()),
            },
        }


class Epochs(DatasetCell):
    """Seconds per epoch of training without validation: the median of a few epochs after the first."""

    kind = "epochs"
    needs_model = True
    has_recipe = True

    def compute(self, dataset: Dataset, device: str) -> dict[str, Any]:
        recipe = self.recipe
        assert recipe is not None
        place = pick_device(device)
        model, propagation = build(dataset, recipe, device=place)
        assert isinstance(model, GraphModel)
        curve = Curve()
        config = TrainConfig(**{**vars(recipe.train), "epochs": TIMED_EPOCHS})
        Trainer(model, propagation, dataset.train, config, device=place, observer=curve).fit()
        timed = curve.seconds[1:]
        return {"seconds_per_epoch": statistics.median(timed), "epochs_timed": len(timed)}


def _walk(name: str, walk: WalkReport) -> dict[str, Any]:
    return {
        "two_limits": walk.two_sided,
        "claim": PAPER_CLAIMS[name],
        "first_gap": float(walk.gaps[0]),
        "gap_limit": walk.gap_limit,
        "gap_limit_exact": walk.gap_limit_exact,
        "limit_error": walk.limit_error,
        "condition": walk.condition if walk.two_sided else None,
        "decay_per_step": walk.decay_per_step,
        "flip_per_step": walk.flip_per_step,
        "bound": float(walk.bounds[0]),
        "within_bound": walk.within_bound,
        "steps": walk.steps,
        "settled": walk.settled,
        "gaps": _short(walk.gaps),
    }


def _short(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
