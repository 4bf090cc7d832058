"""Early stopping: the best validation value so far, and the evaluations since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class EarlyStopping:
    """Stops after ``patience`` evaluations without a better value, counted from ``min_epochs`` on.

    A recommender first learns popularity and stays on that plateau for a while before it learns preferences. A plateau
    before ``min_epochs`` therefore does not count; the best epoch may still be there. ``patience`` 0 never stops.
    """

    patience: int
    min_epochs: int
    best: float = float("-inf")
    best_epoch: int = 0
    stale: int = 0

    def update(self, epoch: int, value: float) -> bool:
        """Record one evaluation; return whether it is the best so far. Ties and NaN are not."""
        if value > self.best:
            self.best, self.best_epoch, self.stale = value, epoch, 0
            return True
        if epoch > self.min_epochs:
            self.stale += 1
        return False

    @property
    def exhausted(self) -> bool:
        return 0 < self.patience <= self.stale

    def over(self, epoch: int, done: int, epochs: int) -> bool:
        """Return whether training ends before batch ``done`` of ``epoch``, with at most ``epochs`` epochs."""
        return epoch > epochs or (done == 0 and self.exhausted)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; ``best`` is None as long as any value is better, as JSON has no −∞."""
        best = None if self.best == float("-inf") else self.best
        return {"best": best, "best_epoch": self.best_epoch, "stale": self.stale}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.best = float("-inf") if state["best"] is None else float(state["best"])
        self.best_epoch, self.stale = int(state["best_epoch"]), int(state["stale"])
