"""The log of a run folder, ``log.txt``, and the observer that writes it."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from dgcf.train.run.folder import Run, environment
from dgcf.train.run.observer import Observer, PlainLines, Several
from dgcf.train.run.records import append_text


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
