"""How training is watched: from what a model ranks with to its metrics on the validation split."""

from __future__ import annotations

from collections.abc import Callable

from dgcf.evaluate.evaluator import Evaluator, Splits
from dgcf.evaluate.metrics import parse_metric
from dgcf.ranking.rankings import Ranking


def validator(splits: Splits, metric: str) -> Callable[[Ranking], dict[str, float]]:
    """A ranking to all validation metrics at the cut-off that ``metric`` names, such as ``recall@20``."""
    evaluator = Evaluator(splits, split="validation", ks=(parse_metric(metric)[1],))

    def validate(found: Ranking) -> dict[str, float]:
        return dict(evaluator.evaluate(found).means)

    return validate
