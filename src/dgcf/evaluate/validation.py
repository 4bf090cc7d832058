"""Measure a ranking on the validation split, for early stopping."""

from __future__ import annotations

from collections.abc import Callable

from dgcf.evaluate.evaluator import Evaluator, Splits
from dgcf.evaluate.metrics import parse_metric
from dgcf.ranking.rankings import Ranking


def validator(splits: Splits, metric: str) -> Callable[[Ranking], dict[str, float]]:
    """Return a function from a ranking to its validation metrics at the cut-off of ``metric`` (``recall@20``)."""
    evaluator = Evaluator(splits, split="validation", ks=(parse_metric(metric)[1],))
    return lambda ranking: dict(evaluator.evaluate(ranking).means)
