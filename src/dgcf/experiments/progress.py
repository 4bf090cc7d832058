"""Progress of an experiment with many jobs: the events, and their form as plain lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from dgcf.train import EpochReport

Update = Callable[[float, float | None], None]
"""Receives how much is done, and the total if it is known."""


Bar = Callable[[str, float | None], AbstractContextManager[Update]]
"""Opens a progress bar: ``with bar("evaluating", total) as update: update(done, total)``."""


class Progress:
    """Receive what happens to the jobs of an experiment and show nothing; subclasses override what they show."""

    def note(self, text: str) -> None:
        """Show a remark of one sentence."""

    def started(self, done: int, total: int | None) -> None:
        """Work starts with ``done`` of ``total`` jobs recorded; ``total`` is None if time alone ends it.

        Called again, after `ended`, if the jobs change on the way.
        """

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        """A job of this process finished an epoch."""

    def job_ended(self, text: str = "", best: str = "") -> None:
        """One more job is recorded.

        ``text`` describes it, and is empty if another process recorded it. ``best`` names the best result so far.
        """

    def ended(self) -> None:
        """Work has ended, with or without jobs left."""


class ProgressLines(Progress):
    """A line for each event, for pipes and logs. ``jobs`` is the plural noun for the jobs, such as ``trials``."""

    def __init__(self, jobs: str, show: Callable[[str], None]) -> None:
        self.jobs, self.show = jobs, show

    def note(self, text: str) -> None:
        self.show(text)

    def started(self, done: int, total: int | None) -> None:
        left = "" if total is None else f", {max(0, total - done)} to run"
        self.show(f"{self.jobs}: {done} recorded{left}")

    def job_ended(self, text: str = "", best: str = "") -> None:
        if text:
            self.show(f"{text}; {best}" if best else text)
