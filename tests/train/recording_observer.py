"""An observer for tests."""

from __future__ import annotations

from dgcf.train import EpochReport, Observer


class RecordingObserver(Observer):
    """An observer that keeps notes and epoch reports."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.reports: list[EpochReport] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def epoch_ended(self, report: EpochReport) -> None:
        self.reports.append(report)
