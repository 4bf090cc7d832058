"""Observers of a training: the loop reports to them and never prints."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import torch

from dgcf.text import printable_line
from dgcf.train.run.description import environment
from dgcf.train.run.folder import Run
from dgcf.train.run.records import append_text


@dataclass(frozen=True)
class EpochReport:
    """The result of one epoch. ``validation`` is empty if the epoch was not evaluated.

    A solved model has one epoch and no ``loss``.
    """

    epoch: int
    epochs: int
    loss: float | None
    seconds: float
    pairs: int
    metric: str
    best: float | None
    best_epoch: int
    validation: Mapping[str, float] = field(default_factory=dict)

    @property
    def pairs_per_second(self) -> float:
        return self.pairs / self.seconds if self.seconds > 0 else 0.0

    def line(self) -> str:
        """Return the epoch as one line of text, with the validation metric; up to 99 epochs, it fits 80 columns."""
        words = [f"epoch {self.epoch}/{self.epochs}"]
        words += [] if self.loss is None else [f"loss {self.loss:.4f}"]
        if self.metric in self.validation:
            words.append(f"{self.metric} {self.validation[self.metric]:.4f}")
        if self.best is not None:
            words.append(f"best {self.best:.4f} at {self.best_epoch}")
        words.append(f"{self.seconds:.1f} s" if self.loss is None else f"{self.pairs_per_second:,.0f} pairs/s")
        return "  ".join(words)


class Observer:
    """Ignores all events; subclasses override the methods that they need."""

    def note(self, text: str) -> None:
        """Receive a sentence for the user."""

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        """An epoch begins, or is resumed after ``done`` of its ``batches``."""

    def batch_done(self) -> None:
        """A batch of the epoch is done."""

    def epoch_ended(self, report: EpochReport) -> None:
        """An epoch ended, validation included."""

    def finished(self, reason: str) -> None:
        """Training stopped; ``reason`` is a phrase."""


class PlainLines(Observer):
    """Prints plain lines for logs and pipes: notes, and each epoch that was evaluated."""

    def __init__(self, stream: TextIO | None = None, *, every_epoch: bool = False) -> None:
        self.stream: TextIO | None = sys.stderr if stream is None else stream  # None where stderr is closed
        self.every_epoch = every_epoch

    def _print(self, text: str) -> None:
        if self.stream is not None:
            with contextlib.suppress(OSError):  # a closed pipe must not stop training
                print(printable_line(text), file=self.stream, flush=True)

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def epoch_ended(self, report: EpochReport) -> None:
        if self.every_epoch or report.validation or report.epoch == report.epochs:
            self._print(report.line())

    def finished(self, reason: str) -> None:
        self._print(reason)


class Several(Observer):
    """Passes all events to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def note(self, text: str) -> None:
        for observer in self.observers:
            observer.note(text)

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        for observer in self.observers:
            observer.epoch_began(epoch, epochs, batches, done)

    def batch_done(self) -> None:
        for observer in self.observers:
            observer.batch_done()

    def epoch_ended(self, report: EpochReport) -> None:
        for observer in self.observers:
            observer.epoch_ended(report)

    def finished(self, reason: str) -> None:
        for observer in self.observers:
            observer.finished(reason)


class LogFile(PlainLines):
    """Writes every epoch and note to a file, each with its time."""

    def __init__(self, path: Path) -> None:
        super().__init__(every_epoch=True)
        self.path = path

    def _print(self, text: str) -> None:
        append_text(self.path, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")


def run_observer(observer: Observer | None, run: Run | None, device: torch.device) -> Observer:
    """Return an observer that also writes the run's log, and note what differs from the run's first environment."""
    observer = observer or Observer()
    if run is None:
        return observer
    both = Several(observer, LogFile(run.path / "log.txt"))
    now, before = environment(str(device)), run.about["environment"]
    if changes := [f"{key} {old} is now {now.get(key)}" for key, old in before.items() if now.get(key) != old]:
        both.note(f"{'; '.join(changes)}: results may differ in their last bits.")
    return both
