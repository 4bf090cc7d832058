"""The progress of many jobs: a bar with lines above it on a terminal, lines alone elsewhere."""

from __future__ import annotations

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from dgcf.cli.terminal import err, notify, words
from dgcf.experiments.progress import ProgressLines
from dgcf.train import EpochReport


def progress_of(jobs: str) -> ProgressLines:
    """Return the display for ``jobs``, a plural noun such as ``trials``."""
    return ProgressBar(jobs, notify) if err.is_terminal else ProgressLines(jobs, notify)


class ProgressBar(ProgressLines):
    """A bar over the jobs, with the epoch of the job in progress and the best result so far."""

    def started(self, done: int, total: int | None) -> None:
        super().started(done, total)
        columns = (words("description"), BarColumn(), MofNCompleteColumn(), words("fields[best]"))
        self.bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=err, transient=True)
        self.task = self.bar.add_task(self.jobs, completed=done, total=total, best="")
        self.bar.start()

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        self.bar.update(self.task, description=f"{job}, epoch {report.epoch}")

    def job_ended(self, text: str = "", best: str = "") -> None:
        super().job_ended(text, best)
        self.bar.update(self.task, advance=1, best=best)

    def ended(self) -> None:
        self.bar.stop()
