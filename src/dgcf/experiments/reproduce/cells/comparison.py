"""Cells that compare a model with the reference, user by user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ArtifactError
from dgcf.evaluate.bootstrap import bootstrap_intervals
from dgcf.evaluate.significance import effect_size, sign_flip_test, t_test, users_and_seeds_test
from dgcf.experiments.reproduce.cells.base import Cell, Line, Measures, Stage
from dgcf.experiments.reproduce.cells.computed import ComputedCell
from dgcf.experiments.reproduce.cells.training import Trained
from dgcf.experiments.reproduce.measures import METRICS

if TYPE_CHECKING:
    from dgcf.experiments.reproduce.execute import Executor

REFERENCE = "dgcf"
"""The model that every other one is compared with."""


@dataclass(frozen=True)
class Comparison(ComputedCell):
    """A paired test of a model against the reference over the same users, seeds averaged, train items masked.

    ``compared`` holds the fingerprints of the trainings of the reference and of the model, one for each seed.
    """

    kind = "comparison"
    stage = Stage.COMPARE
    needs_model = True
    needs_dataset = False

    compared: tuple[tuple[str, ...], ...] = ()

    def linked(self, cells: Sequence[Cell]) -> Self:
        trained = [
            cell
            for cell in cells
            if isinstance(cell, Trained) and (cell.source, cell.settings) == (self.source, self.settings)
        ]
        sides = ([cell.fingerprint for cell in trained if cell.model == model] for model in (REFERENCE, self.model))
        return replace(self, compared=tuple(map(tuple, sides)))

    def model_identity(self) -> dict[str, Any]:
        return {**super().model_identity(), "compared": self.compared}

    @classmethod
    def execute(
        cls, cells: Sequence[Comparison], executor: Executor, measures: Measures
    ) -> Iterator[tuple[Cell, Line]]:
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


def paired(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, Any]:
    """Return second − first with every test of it; both are (seeds, users), the first of the reference."""
    difference = second.mean(0) - first.mean(0)
    low, high = bootstrap_intervals(difference[:, None], seed=0)[0]
    several = min(len(first), len(second)) > 1
    return {
        "users": len(difference),
        "difference": float(difference.mean()),
        "interval": [float(low), float(high)],
        "effect_size": effect_size(difference),
        "p_t": t_test(difference),
        "p_permutation": float(sign_flip_test(difference[:, None], seed=0)[0]),
        "p_seeds": users_and_seeds_test(difference, first.mean(1).tolist(), second.mean(1).tolist())
        if several
        else None,
    }
