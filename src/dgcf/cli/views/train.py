"""Show training: a bar or plain lines while it runs, and a table of the finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dgcf.cli.terminal import err, notify, out, words
from dgcf.train import EpochReport, Observer, PlainLines


def draw(results: Sequence[dict[str, Any]]) -> None:
    """Print a table with one row for each run, then the run folders."""
    first = results[0]
    table = Table(title=f"{first['model']} on {first['dataset']}, test, mask {first['mask']}")
    names = [name for name in first["test"] if name.startswith(("recall", "ndcg", "precision", "hit"))]
    for column in ("seed", "epochs", "best", "seconds", *names):
        table.add_column(column, justify="right")
    for result in results:
        numbers = [f"{result['test'][name]:.4f}" for name in names]
        table.add_row(
            str(result["seed"]), str(result["epochs"]), str(result["best_epoch"]), f"{result['seconds']:.1f}", *numbers
        )
    out.print(table)
    out.print(f"{first['users_evaluated']:,} users evaluated")
    for result in results:
        out.print(f"run: {result['run']}", soft_wrap=True)


class Bar(Observer):
    """Epoch, loss, validation metric, best, pairs per second and the time left if no patience ends it sooner."""

    def __init__(self) -> None:
        self.bar = Progress(
            words("description"),
            BarColumn(),
            words("fields[told]"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self.task = self.bar.add_task("training", total=None, told="")

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        notify(f"note: {text}")

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        self.bar.update(
            self.task,
            total=epochs * batches,
            completed=(epoch - 1) * batches + done,
            description=f"epoch {epoch}/{epochs}",
        )

    def batch_done(self) -> None:
        self.bar.advance(self.task)

    def epoch_ended(self, report: EpochReport) -> None:
        words = report.line().split("  ")[1:]
        if report.validation:
            self.validated = words[1]
        elif report.best is not None:
            words.insert(1, self.validated)
        self.bar.update(self.task, told="  ".join(words))

    validated = ""

    def finished(self, reason: str) -> None:
        notify(reason)


class Lines(PlainLines):
    """The same for pipes and logs."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


def observer() -> Bar | Lines:
    return Bar() if err.is_terminal else Lines()
