"""Cells that are computed without training: counts, walks, seconds per epoch, and paired tests of recorded results."""

from __future__ import annotations

import statistics
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import Dataset
from dgcf.data.statistics import statistics as count
from dgcf.errors import ArtifactError, ConfigError
from dgcf.evaluate.bootstrap import bootstrap_intervals
from dgcf.evaluate.significance import effect_size, sign_flip_test, t_test, users_and_seeds_test
from dgcf.experiments.reproduce.cells.base import Cell, CellLine, Line, Stage
from dgcf.experiments.reproduce.cells.training import Trained
from dgcf.experiments.reproduce.measures import METRICS, Curve
from dgcf.graph import cross_hop, interaction_matrix
from dgcf.graph.theory.oscillation import PAPER_CLAIMS, WalkReport, oscillation
from dgcf.models import GraphModel
from dgcf.train import build, pick_device
from dgcf.train.trainer import Trainer

if TYPE_CHECKING:
    from dgcf.experiments.reproduce.execute import Executor
    from dgcf.experiments.reproduce.recipe import Grid

TIMED_EPOCHS = 6
STEPS = 40
REFERENCE = "dgcf"
"""The model that every other one is compared with."""
COUNTS = ("users", "items", "density", "train", "validation", "test", "duplicates", "leaks", "popularity")


class ComputedLine(CellLine):
    """The line of a cell that is computed without training."""

    computed: dict[str, Any]


class DatasetCell(Cell):
    """A cell that is computed from its dataset."""

    line_type = ComputedLine

    @classmethod
    def execute(cls, cells: Sequence[DatasetCell], executor: Executor) -> Iterator[tuple[Cell, Line]]:
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
        recipe, place, curve = self.known_recipe, pick_device(device), Curve()
        model, propagation = build(dataset, recipe, device=place)
        assert isinstance(model, GraphModel)
        config = replace(recipe.train, epochs=TIMED_EPOCHS)
        Trainer(model, propagation, dataset.train, config, device=place, observer=curve).fit()
        timed = curve.seconds[1:]
        return {"seconds_per_epoch": statistics.median(timed), "epochs_timed": len(timed)}


@dataclass(frozen=True)
class Comparison(Cell):
    """A paired test of a model against the reference over the same users, seeds averaged, train items masked.

    ``compared`` holds the fingerprints of the trainings of the reference and of the model, one for each seed.
    """

    kind = "comparison"
    stage = Stage.COMPARE
    line_type = ComputedLine
    needs_model = True
    needs_dataset = False

    compared: tuple[tuple[str, ...], ...] = ()

    def linked(self, cells: Sequence[Cell]) -> Self:
        which = (self.source, self.settings)
        trained = [cell for cell in cells if isinstance(cell, Trained) and (cell.source, cell.settings) == which]
        sides = ([cell.fingerprint for cell in trained if cell.model == model] for model in (REFERENCE, self.model))
        return replace(self, compared=tuple(map(tuple, sides)))

    def model_identity(self) -> dict[str, Any]:
        return {**super().model_identity(), "compared": self.compared}

    @classmethod
    def execute(cls, cells: Sequence[Comparison], executor: Executor) -> Iterator[tuple[Cell, Line]]:
        """Yield the comparisons for which the values of all users are stored."""
        for cell in cells:
            values = [[executor.store.users(fingerprint) for fingerprint in side] for side in cell.compared]
            sides = [[users for users in side if users is not None] for side in values]
            if all(sides) and all(users is not None for side in values for users in side):
                yield cell, {"computed": cell.compare(sides, executor.store.folder), "seconds": 0.0}

    def compare(self, sides: Sequence[Sequence[Mapping[str, NDArray[Any]]]], folder: Path) -> dict[str, Any]:
        """Return the paired tests of each metric; ``sides`` holds the values of users by seed, the reference first."""
        result: dict[str, Any] = {"seeds": [len(side) for side in sides]}
        for metric in METRICS:
            name = f"train {metric}"
            if len({len(users.get(name, ())) for side in sides for users in side} | {0}) != 2:
                raise ArtifactError(
                    f"the values of users that {self.key} compares lack {name!r} or are not of the same users; "
                    f"delete them from {folder}, and train again."
                )
            first, second = (np.stack([users[name] for users in side]).astype(np.float64) for side in sides)
            result[metric] = paired(first, second)
        return result


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


def paired(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, Any]:
    """Return second − first with every test of it; both are (seeds, users), the first of the reference."""
    difference = second.mean(0) - first.mean(0)
    low, high = bootstrap_intervals(difference[:, None], seed=0)[0]
    means = [side.mean(1).tolist() for side in (first, second)]
    return {
        "users": len(difference),
        "difference": float(difference.mean()),
        "interval": [float(low), float(high)],
        "effect_size": effect_size(difference),
        "p_t": t_test(difference),
        "p_permutation": float(sign_flip_test(difference[:, None], seed=0)[0]),
        "p_seeds": users_and_seeds_test(difference, *means) if min(map(len, means)) > 1 else None,
    }
