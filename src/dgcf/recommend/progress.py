"""Show the progress of a training as a bar that fits 80 columns."""

from __future__ import annotations

from rich.console import Console

from dgcf.console import SHORT, Bar, PlainConsole, time_left
from dgcf.train import EpochReport, Observer


class TrainingBar(Bar, Observer):
    """Epoch, validation metric, the best so far, and the time left if training does not stop early."""

    _validation = ""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "training", times=time_left(), width=SHORT)
        self.console = console

    def note(self, text: str) -> None:
        self.console.print(f"note: {text}", soft_wrap=True)

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        self.update((epoch - 1) * batches + done, epochs * batches, description=f"epoch {epoch}/{epochs}")

    def batch_done(self) -> None:
        self.advance()

    def epoch_ended(self, report: EpochReport) -> None:
        if report.metric in report.validation:
            self._validation = f"{report.metric} {report.validation[report.metric]:.4f}"
        best = "" if report.best is None else f" best {report.best:.4f} at {report.best_epoch}"
        loss = "" if report.loss is None or self._validation else f"loss {report.loss:.4f}"
        self.update(detail=f"{loss}{self._validation}{best}")

    def finished(self, reason: str) -> None:
        self.console.print(reason, soft_wrap=True)


def training_bar(progress: bool | None) -> TrainingBar | None:
    """Return a bar on stderr if ``progress`` is true, or if it is None and stderr is a terminal."""
    if progress is False:
        return None
    console = PlainConsole(stderr=True, force_terminal=progress)
    return TrainingBar(console) if console.is_terminal or console.is_jupyter else None
