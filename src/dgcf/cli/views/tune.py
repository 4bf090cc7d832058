"""The work behind ``dgcf tune``: read the data, show how the search goes, and draw what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from dgcf.cli.inputs import read_dataset
from dgcf.cli.terminal import err, notify, out, words
from dgcf.data.paths import absolute_source
from dgcf.errors import StoppedError
from dgcf.experiments.search import Search, search_for
from dgcf.experiments.space import parse_space
from dgcf.experiments.study import Row
from dgcf.experiments.tune import Tuned, Watcher, tune
from dgcf.train import EpochReport

TOP = 5


def search_of(
    data: str,
    model: str,
    preset: str,
    fixed: Mapping[str, Any],
    search: Sequence[str],
    metric: str | None,
    seed: int,
    folder: Path | None,
) -> Search:
    """What the words ask for, with the dataset read."""
    spaces = dict(parse_space(word) for word in search)
    return search_for(
        read_dataset(data),
        model,
        preset=preset,
        settings=fixed,
        search=spaces,
        metric=metric,
        seed=seed,
        out=folder,
        source=absolute_source(data),
    )


def run(search: Search, trials: int | None, minutes: float | None, jobs: int, device: str) -> Tuned:
    """Tune; Ctrl-C tells how to go on."""
    notify(f"{search.recipe.name} on {search.dataset.name}, validation {search.metric}, in {search.path}")
    try:
        with Bar(search.metric) if err.is_terminal else Lines(search.metric) as watcher:
            return tune(search, trials=trials, minutes=minutes, jobs=jobs, device=device, watcher=watcher)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; the same command goes on with the study in {search.path}.") from None


def _words(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in settings.items())


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _told(row: Row, metric: str) -> str:
    """A finished trial in one line."""
    value = "failed" if row.value is None else f"{metric} {row.value:.4f}"
    ended = " (pruned)" if row.state == "pruned" else ""
    reason = f": {row.reason}" if row.reason else ""
    epochs = f"{row.epochs} epochs, " if row.epochs > 1 else ""
    return f"trial {row.trial}: {value}{ended}, {epochs}{row.seconds:.1f} s, {_words(row.settings)}{reason}"


class Lines(Watcher):
    """A plain line for every trial."""

    def __init__(self, metric: str) -> None:
        self.metric = metric

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def note(self, text: str) -> None:
        notify(f"note: {text}")

    def began(self, done: int, wanted: int | None) -> None:
        if done:
            notify(f"going on: {done} trials{f' of {wanted}' if wanted else ''} are done.")

    def trial_ended(self, row: Row, best: Row | None) -> None:
        notify(_told(row, self.metric) + (f"; best {best.value:.4f} in trial {best.trial}" if best else ""))


class Bar(Lines):
    """A bar over the trials, with the epoch of the one in progress and the best so far."""

    def __init__(self, metric: str) -> None:
        super().__init__(metric)
        self.bar = Progress(
            words("description"),
            BarColumn(),
            MofNCompleteColumn(),
            words("fields[told]"),
            TimeElapsedColumn(),
            console=err,
            transient=True,
        )
        self.task = self.bar.add_task("tuning", total=None, told="")

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.bar.stop()

    def began(self, done: int, wanted: int | None) -> None:
        self.bar.update(self.task, completed=done, total=wanted)

    def epoch_ended(self, trial: int, report: EpochReport) -> None:
        self.bar.update(self.task, description=f"trial {trial}, epoch {report.epoch}")

    def trial_ended(self, row: Row, best: Row | None) -> None:
        self.bar.advance(self.task)
        if best:
            self.bar.update(self.task, told=f"best {self.metric} {best.value:.4f} in trial {best.trial}")


def draw(tuned: Tuned) -> None:
    """The best trials, what mattered, and how to train with it."""
    found, metric = tuned.to_dict(), tuned.search.metric
    finished = sorted((row for row in tuned.rows if row.usable), key=lambda row: (-(row.value or 0.0), row.trial))
    table = Table(title=f"{found['model']} on {found['dataset']}, validation, the best of {found['trials']} trials")
    for column in ("trial", metric, "epoch", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("settings")
    for row in finished[:TOP]:
        numbers = [str(row.trial), f"{row.value:.4f}", str(row.epoch), f"{row.seconds:.1f}"]
        table.add_row(*numbers, _words(row.settings))
    out.print(table)
    out.print(f"{found['pruned']} pruned, {found['failed']} failed")
    out.print(f"best: {_words(found['best']['settings'])}", soft_wrap=True)
    if tuned.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in tuned.importance.items())
        out.print(f"importance: {shares}", soft_wrap=True)
    out.print(
        f"train: dgcf train {quote(tuned.search.source)} --config {quote(found['config'])}",
        soft_wrap=True,
    )
