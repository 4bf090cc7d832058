"""Show the progress of training and of many jobs: a bar with remarks above it on a terminal, lines elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from dgcf.cli.terminal import Bar, err, notify
from dgcf.experiments.progress import ProgressLines
from dgcf.recommend.progress import TrainingBar
from dgcf.train import EpochReport, Observer, PlainLines

LONGEST = 26
"""Characters of a job and its epoch, so that the line fits 80 columns."""


def progress_of(jobs: str) -> ProgressLines:
    """Return the display for ``jobs``, a plural noun such as ``trials``."""
    return ProgressBar(jobs, notify) if err.is_terminal else ProgressLines(jobs, notify)


def training_progress() -> AbstractContextManager[Observer]:
    """Return the display for the training of one run."""
    return TrainingBar(err) if err.is_terminal else nullcontext(PlainLines())


class ProgressBar(ProgressLines):
    """A bar over the jobs, with the epoch of the job in progress and the best result so far."""

    bar: Bar | None = None

    def started(self, done: int, total: int | None) -> None:
        super().started(done, total)
        self.done, self.total = done, total
        self.bar = Bar(self.jobs, total, done, short=True).start()

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        if self.bar is not None:
            text = f"{job}, epoch {report.epoch}"
            self.bar.update(description=text if len(text) <= LONGEST else f"…{text[1 - LONGEST :]}")

    def job_ended(self, text: str = "", best: str = "") -> None:
        super().job_ended(text, best)
        self.done += 1
        count = str(self.done) if self.total is None else f"{self.done}/{self.total}"
        if self.bar is not None:
            self.bar.update(self.done, detail=f"{count}  {best}")

    def ended(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
