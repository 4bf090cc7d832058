"""The work behind ``dgcf compare``: train and measure with a word on how it goes, and show the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from dgcf.cli.inputs import read_dataset
from dgcf.cli.terminal import notify, out, progress
from dgcf.cli.views.progress import training_progress
from dgcf.data.paths import absolute_source
from dgcf.errors import ConfigError, StoppedError, did_you_mean
from dgcf.experiments.compare import (
    Measure,
    labels,
    plans,
    ready,
    refuse_other_datasets,
    standings,
)
from dgcf.experiments.report import interval, mean_and_std, megabytes, notes, signed
from dgcf.experiments.results import Standing, Standings
from dgcf.train import Run


@dataclass(frozen=True)
class Shown:
    """What is measured and shown, however the runs came to be."""

    mask: str
    ks: list[int]
    metrics: list[str]
    reference: str | None
    device: str

    def place(self, known: Sequence[str]) -> int:
        """Which of the rows is the reference: the first, unless one is named."""
        if self.reference is None:
            return 0
        if self.reference not in known:
            hint = did_you_mean(self.reference, known) or f"; there are {', '.join(known)}."
            raise ConfigError(f"--reference {self.reference} is not among what is compared{hint}")
        return list(known).index(self.reference)


@dataclass(frozen=True)
class Wanted:
    """What is to be trained, as it was given."""

    models: list[str]
    preset: str
    settings: list[str]
    configs: list[str]
    seeds: list[int]


def finished_runs(paths: Sequence[str], data: str | None, shown: Shown) -> Standings:
    """Two or more run folders, each a row of its own."""
    if len(paths) < 2:
        raise ConfigError(
            f"there is only {paths[0]} to compare; give two or more run folders, "
            "or a dataset with --models dgcf,lightgcn."
        )
    runs = [Run.open(path) for path in paths]
    refuse_other_datasets(runs)
    names = labels(runs)
    place = shown.place(names)
    dataset = read_dataset(data or runs[0].about["dataset"]["source"])
    return _measured(
        Measure.of(dataset, shown.mask, shown.ks), [(n, [r]) for n, r in zip(names, runs, strict=True)], shown, place
    )


def trained(sources: Sequence[str], wanted: Wanted, folder: Path | None, shown: Shown) -> Standings:
    """The models on one dataset, each with all its seeds."""
    if len(sources) > 1:
        raise ConfigError(f"--models compares on one dataset, and {len(sources)} are given; give one.")
    if len(wanted.models) < 2:
        raise ConfigError(
            f"--models names only {', '.join(wanted.models) or 'nothing'}; give two or more, with commas between them."
        )
    place = shown.place(wanted.models)
    (source,) = sources
    dataset = read_dataset(source)
    chosen = plans(
        wanted.models,
        dataset,
        preset=wanted.preset,
        settings=wanted.settings,
        configs=wanted.configs,
        seeds=wanted.seeds,
    )
    measure = Measure.of(dataset, shown.mask, shown.ks)
    target = folder or Path("runs") / f"compare-{dataset.name.replace('/', '-')}"
    try:
        runs = ready(
            dataset,
            chosen,
            target,
            source=absolute_source(source),
            device=shown.device,
            watching=training_progress,
            notify=notify,
        )
        return _measured(measure, list(zip(wanted.models, runs, strict=True)), shown, place)
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; what is trained is kept in {target}. The same command goes on from there."
        ) from None


def _measured(measure: Measure, contenders: list[tuple[str, list[Run]]], shown: Shown, place: int) -> Standings:
    total = sum(len(runs) for _, runs in contenders)
    ended = 0
    with progress("measuring", total) as update:

        def done() -> None:
            nonlocal ended
            ended += 1
            update(ended, total)

        return standings(measure, contenders, shown.metrics, reference=place, device=shown.device, done=done)


def draw(found: Standings) -> None:
    """One table: in each cell the mean over seeds, and below it what the test against the reference says."""
    table = Table("model", *found.metrics, "cost of a run", show_lines=True, title=f"{found.dataset}, test")
    for row in found.rows:
        seeds = f"{len(row.seeds)} seed{'s' * (len(row.seeds) > 1)}" if row.seeded else "any seed"
        cost = f"{row.seconds:,.1f} s\n{megabytes(row)} MB"
        table.add_row(f"{row.label}\n{seeds}", *(_cell(found, row, name) for name in found.metrics), cost)
    out.print(table)
    reference = found.rows[found.reference].label
    told = f"below a mean: its difference from {reference} (p after Holm's correction), and the interval"
    out.print(told, soft_wrap=True)
    for note in notes(found):
        out.print(note, soft_wrap=True)


def _cell(found: Standings, row: Standing, metric: str) -> Text:
    spread, one = row.test[metric], row.compared(metric)
    value = mean_and_std(spread) + "*" * row.differs(metric)
    lines = Text(value, style="bold" if spread.mean == found.best(metric) else "")
    if one is not None:
        lines.append(f"\n{signed(one.difference)} (p {one.p_holm:.2g})\n{interval(one)}", style="not bold")
    return lines
