"""Where the reproduction trains: all seeds of one recipe at once, each with the curve of how it went."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from dgcf.data.dataset import Dataset
from dgcf.train import EpochReport, Observer, Recipe, Trained, Validate, train


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


def train_seeds(
    dataset: Dataset, recipe: Recipe, seeds: Sequence[int], device: str, validate: Validate | None
) -> Iterator[tuple[int, Trained, Curve]]:
    """Train one recipe with each seed; what is finished is given at once. Ctrl-C is passed on."""
    for seed in seeds:
        curve = Curve()
        trained = train(dataset, recipe, seed=seed, device=device, validate=validate, observer=curve)
        if trained.interrupted:
            raise KeyboardInterrupt
        yield seed, trained, curve
