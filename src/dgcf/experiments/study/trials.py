"""The trials of a study: as the journal has them, and as they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrialSummary:
    """A trial as ``trials.jsonl`` has it; ``reason`` says why a failed one could not be trained."""

    trial: int
    state: str
    value: float | None
    epoch: int | None
    epochs: int
    seconds: float
    settings: Mapping[str, Any]
    reason: str | None = None

    @property
    def finished(self) -> bool:
        return self.state != "running"

    @property
    def complete(self) -> bool:
        return self.state == "complete"

    def describe(self, metric: str) -> str:
        """Return the finished trial as a line of text."""
        value = "failed" if self.value is None else f"{metric} {self.value:.4f}"
        pruned = " (pruned)" if self.state == "pruned" else ""
        reason = f": {self.reason}" if self.reason else ""
        epochs = f"{self.epochs} epochs, " if self.epochs > 1 else ""
        settings = format_settings(self.settings)
        return f"trial {self.trial}: {value}{pruned}, {epochs}{self.seconds:.1f} s, {settings}{reason}"


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return ``name=value`` for each setting, numbers with three digits."""
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in settings.items()
    )


def best_of(trials: Sequence[TrialSummary]) -> TrialSummary | None:
    """Return the complete trial of the highest value, the first of equal ones; None if there is none."""
    return max((trial for trial in trials if trial.complete), key=lambda t: (t.value, -t.trial), default=None)


@dataclass
class Trial:
    """A trial as the journal has it; ``key`` is its id in the sampler."""

    number: int
    settings: dict[str, Any]
    key: int
    reported: dict[int, float] = field(default_factory=dict)
    ending: Mapping[str, Any] | None = None

    @property
    def last_epoch(self) -> int | None:
        """The last epoch that was reported."""
        return max(self.reported, default=None)

    def summary(self) -> TrialSummary:
        if self.ending is None:
            last = self.last_epoch
            return TrialSummary(self.number, "running", None, last, last or 0, 0.0, dict(self.settings))
        fields = {name: value for name, value in self.ending.items() if name != "event"}
        return TrialSummary(**fields, settings=dict(self.settings))
