"""Where the reproduction trains: all seeds of one recipe at once, each with the curve of how it went."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dgcf.data.dataset import Dataset
from dgcf.train import EpochReport, Observer, Recipe, SeedJob, Trained, Validate, groups, train_many


class Curve(Observer):
    """The loss of every epoch, the metric of every validated one, and how long they took."""

    def __init__(self) -> None:
        self.losses: list[float | None] = []
        self.seconds: list[float] = []
        self.validated: dict[int, float] = {}
        self.best: dict[str, float] = {}

    def epoch_ended(self, report: EpochReport) -> None:
        self.losses.append(report.loss)
        self.seconds.append(report.seconds)
        if report.metric in report.validation:
            self.validated[report.epoch] = report.validation[report.metric]
            if report.best_epoch == report.epoch:
                self.best = dict(report.validation)

    @property
    def seconds_per_epoch(self) -> float:
        """The median, so that the first epochs, which prepare what later ones use again, do not count."""
        return statistics.median(self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, short: the loss of the validated epochs alone where there are any."""
        shown = list(self.validated) or list(range(1, len(self.losses) + 1))
        losses = [self.losses[epoch - 1] for epoch in shown]
        return {
            "epochs": shown,
            "loss": [None if loss is None else round(loss, 6) for loss in losses],
            "validation": [round(value, 6) for value in self.validated.values()],
        }


@dataclass(frozen=True)
class Outcome:
    """One seed's training; ``side_by_side`` counts those that shared its seconds."""

    seed: int
    trained: Trained
    curve: Curve
    side_by_side: int

    @property
    def seconds(self) -> float:
        """This training's share of the time."""
        return self.trained.seconds / self.side_by_side


def train_seeds(
    dataset: Dataset, recipe: Recipe, seeds: Sequence[int], device: str, validate: Validate | None
) -> Iterator[Outcome]:
    """Train one recipe with each seed, on a GPU side by side; what is finished is given at once."""
    for together in groups(seeds, recipe, device):
        curves = {seed: Curve() for seed in together}
        each = [SeedJob(seed, curve) for seed, curve in curves.items()]
        results = train_many(dataset, recipe, each, device=device, validate=validate)
        for (seed, curve), trained in zip(curves.items(), results, strict=True):
            if not trained.interrupted:
                yield Outcome(seed, trained, curve, len(together))
        if any(trained.interrupted for trained in results):
            raise KeyboardInterrupt
