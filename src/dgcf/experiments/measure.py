"""Evaluations of finished runs, and the mean ± sample standard deviation over the seeds of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgcf.data.dataset import Dataset
from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.evaluator import Evaluator
from dgcf.models import gate_correlation
from dgcf.train import Run, load


@dataclass(frozen=True)
class MeanStd:
    """The mean of a metric over the seeds and its sample standard deviation, which is None for a single seed.

    The deviation is 0, and is not shown, for a model that does not depend on the seed.
    """

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float], *, seeded: bool = True) -> MeanStd:
        """Return mean and deviation; the deviation of a model that does not depend on the seed is 0."""
        if not seeded or len(values) < 2:
            return cls(float(np.mean(values)), None if seeded else 0.0)
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)))

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + (f" ± {self.std:.4f}" if self.std else "")


@dataclass(frozen=True)
class RunEvaluator:
    """Evaluate runs on test, and on validation if the dataset has that split.

    Create it before training, so that a wrong mask or a dataset without a test split is refused early.
    """

    dataset: Dataset
    test: Evaluator
    validation: Evaluator | None

    @classmethod
    def of(cls, dataset: Dataset, mask: str, ks: Sequence[int]) -> RunEvaluator:
        test = Evaluator(dataset, split="test", mask=mask, ks=ks)
        return cls(dataset, test, Evaluator(dataset, split="validation", ks=ks) if len(dataset.validation) else None)

    def evaluate(
        self, runs: Sequence[Run], device: str, done: Callable[[], None]
    ) -> tuple[list[Evaluation], list[Evaluation]]:
        """Return the evaluations of the runs' best epochs on test and on validation; call ``done`` after each run."""
        tested, validated = [], []
        for run in runs:
            run.require_held_out()
            ranking = load(run, self.dataset, device=device)[2]
            tested.append(self.test.evaluate(ranking))
            if self.validation is not None:
                validated.append(self.validation.evaluate(ranking))
            done()
        return tested, validated


def evaluate_run(
    run: Run,
    dataset: Dataset,
    split: str,
    mask: str,
    ks: Sequence[int],
    *,
    groups: int = 0,
    gates: bool = False,
    device: str = "auto",
) -> tuple[Evaluation, dict[str, Any]]:
    """Return the evaluation of a run's best epoch, and the answer: the run, its metrics and their uncertainty.

    ``groups``: also measure so many groups of users; ``gates``: also correlate the gates with the node degrees.
    """
    run.require_held_out()
    evaluator = Evaluator(dataset, split=split, mask=mask, ks=ks)
    model, _, ranking = load(run, dataset, device=device)
    correlation = dict(gate_correlation(model, dataset.train)) if gates else None
    evaluation = evaluator.evaluate(ranking)
    answer = {
        "model": run.about["model"],
        "dataset": run.about["dataset"]["name"],
        "preset": run.about["preset"],
        "settings": run.recipe.settings(),
        "seed": run.seed,
        "best_epoch": int(run.best().about["epoch"]),
        "run": str(run.path),
        **evaluation.to_dict(),
    }
    if groups:
        answer["groups"] = [group.to_dict() for group in evaluation.groups(n_groups=groups)]
    if correlation is not None:
        answer["gate_correlation"] = correlation
    return evaluation, answer
