"""Where each model stands: means over seeds, costs, and the paired tests against the reference, ready to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.significance import Comparison, averaged, compare_with, users_and_seeds_test
from dgcf.train import Run, resolve

LEVEL = 0.05
"""Below this, after Holm's correction, a difference is marked."""


@dataclass(frozen=True)
class Spread:
    """A metric over the seeds: its mean and sample deviation, which a single draw does not have (None)."""

    mean: float
    std: float | None

    def to_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "std": self.std}


@dataclass(frozen=True)
class Standing:
    """One row: a model (or a single run) with all its seeds.

    ``changed`` are the settings that are not the preset's. ``seconds`` is the mean time of a run, training and
    validation; ``peak_mb`` the most memory that any of them held. ``evaluation`` is the test, averaged over the seeds
    user by user; ``comparisons`` are those with the reference, which has none itself.
    """

    label: str
    model: str
    preset: str
    settings: Mapping[str, Any]
    changed: Mapping[str, Any]
    seeded: bool
    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    test: Mapping[str, Spread]
    each: Mapping[str, tuple[float, ...]]
    validation: Mapping[str, Spread]
    seconds: float
    peak_mb: float | None
    epochs: tuple[int, ...]
    evaluation: Evaluation = field(repr=False)
    comparisons: tuple[Comparison, ...] = ()

    def compared(self, metric: str) -> Comparison | None:
        """The test of one metric against the reference, or None for the reference itself."""
        return next((one for one in self.comparisons if one.metric == metric), None)

    def differs(self, metric: str) -> bool:
        """Whether it differs from the reference: over users after Holm's correction, and over seeds where known."""
        one = self.compared(metric)
        return one is not None and one.significant(LEVEL) and (one.p_seeds is None or one.p_seeds < LEVEL)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the comparisons."""
        return {
            "label": self.label,
            "model": self.model,
            "preset": self.preset,
            "settings": dict(self.settings),
            "seeds": list(self.seeds),
            "seeded": self.seeded,
            "runs": list(self.runs),
            "test": {name: spread.to_dict() for name, spread in self.test.items()},
            "validation": {name: spread.to_dict() for name, spread in self.validation.items()},
            "seconds": self.seconds,
            "peak_mb": self.peak_mb,
            "epochs": list(self.epochs),
        }


@dataclass(frozen=True)
class Standings:
    """The whole table, and what must stand beside it. ``reference`` is the row that all others are tested against."""

    dataset: str
    fingerprint: str
    mask: str
    users_evaluated: int
    metrics: tuple[str, ...]
    reference: int
    rows: tuple[Standing, ...]

    def best(self, metric: str) -> float:
        """The highest mean, which is set in bold."""
        return max(row.test[metric].mean for row in self.rows)

    @property
    def n_comparisons(self) -> int:
        """How many tests Holm's correction is over."""
        return sum(len(row.comparisons) for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: ``{"dataset": …, "models": […], "comparisons": […]}``; a difference is model − reference."""
        reference = self.rows[self.reference].label
        return {
            "dataset": self.dataset,
            "fingerprint": self.fingerprint,
            "split": "test",
            "mask": self.mask,
            "users_evaluated": self.users_evaluated,
            "reference": reference,
            "seeds": sorted({seed for row in self.rows for seed in row.seeds}),
            "models": [row.to_dict() for row in self.rows],
            "comparisons": [
                {"model": row.label, "reference": reference, **one.to_dict()}
                for row in self.rows
                for one in row.comparisons
            ],
        }


def standing(
    label: str, runs: Sequence[Run], tested: Sequence[Evaluation], validated: Sequence[Evaluation]
) -> Standing:
    """One row from the runs of one model and their evaluations; ``validated`` may be empty."""
    recipe = runs[0].recipe
    preset = resolve(recipe.name, dataset=runs[0].about["dataset"]["name"], preset=recipe.preset).settings()
    settings = recipe.settings()
    peaks = [run.peak_mb for run in runs if run.peak_mb is not None]
    seeded = recipe.entry.seeded
    return Standing(
        label=label,
        model=recipe.name,
        preset=recipe.preset,
        settings=settings,
        changed={key: value for key, value in settings.items() if preset.get(key) != value},
        seeded=seeded,
        seeds=tuple(run.seed for run in runs),
        runs=tuple(str(run.path) for run in runs),
        test=_spreads(tested, seeded),
        each={name: tuple(one.means[name] for one in tested) for name in tested[0].means},
        validation=_spreads(validated, seeded),
        seconds=float(np.mean([run.seconds for run in runs])),
        peak_mb=max(peaks, default=None),
        epochs=tuple(len(run.metrics()) for run in runs),
        evaluation=averaged(tested),
    )


def _spreads(evaluations: Sequence[Evaluation], seeded: bool) -> dict[str, Spread]:
    """Mean and sample deviation of each metric; what the seed cannot change deviates by nothing."""
    found = {}
    for name in evaluations[0].means if evaluations else ():
        values = [one.means[name] for one in evaluations]
        alone = None if seeded else 0.0
        found[name] = Spread(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else alone)
    return found


def with_comparisons(rows: Sequence[Standing], reference: int, metrics: Sequence[str]) -> tuple[Standing, ...]:
    """Every row but the reference tested against it; Holm's correction is over all rows and metrics."""
    first = rows[reference]
    others = [row.evaluation for row in rows if row is not first]
    found = iter(compare_with(first.evaluation, others, metrics))

    def tested(row: Standing) -> Standing:
        tests = (replace(one, p_seeds=_p_seeds(first, row, one.metric)) for one in next(found))
        return replace(row, comparisons=tuple(tests))

    return tuple(row if row is first else tested(row) for row in rows)


def _p_seeds(first: Standing, second: Standing, metric: str) -> float | None:
    """The test that counts the spread between seeds too; a model that draws at random needs two of them to show it."""
    if first.test[metric].std is None or second.test[metric].std is None:
        return None
    difference = second.evaluation.value(metric) - first.evaluation.value(metric)
    return users_and_seeds_test(difference, first.each[metric], second.each[metric])
