"""Measure the best epoch of a run, with standard errors and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgcf.data import load as load_data
from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.evaluator import Evaluator
from dgcf.models import gate_correlation
from dgcf.text import Notify
from dgcf.train import Run, load


def evaluate_run(
    run: Run,
    *,
    data: str | None = None,
    split: str = "test",
    mask: str = "train",
    ks: Sequence[int] = (20,),
    groups: int = 0,
    gates: bool = False,
    device: str = "auto",
    notify: Notify | None = None,
) -> tuple[Evaluation, dict[str, Any]]:
    """Return the evaluation of a run's best epoch, and the answer: the run, its metrics and their uncertainty.

    ``data``: the dataset, if it is not where the run had it; ``groups``: also measure so many groups of users;
    ``gates``: also correlate the gates with the node degrees.
    """
    dataset = load_data(data or run.about["dataset"]["source"], notify=notify)
    evaluator = Evaluator(dataset, split=split, mask=mask, ks=ks)
    model, _, ranking = load(run, dataset, device=device)
    correlation = dict(gate_correlation(model, dataset.train)) if gates else None
    evaluation = evaluator.evaluate(ranking)
    answer = {**_describe(run), **evaluation.to_dict()}
    if groups:
        answer["groups"] = [group.to_dict() for group in evaluation.groups(n_groups=groups)]
    if correlation is not None:
        answer["gate_correlation"] = correlation
    return evaluation, answer


def _describe(run: Run) -> dict[str, Any]:
    return {
        "model": run.about["model"],
        "dataset": run.about["dataset"]["name"],
        "preset": run.about["preset"],
        "settings": run.recipe.settings(),
        "seed": run.seed,
        "best_epoch": int(run.best().about["epoch"]),
        "run": str(run.path),
    }
