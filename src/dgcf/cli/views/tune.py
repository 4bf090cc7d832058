"""The work behind ``dgcf tune``: read the data, show how the search goes, and draw what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.table import Table

from dgcf.cli.inputs import read_dataset
from dgcf.cli.terminal import notify, out
from dgcf.cli.views.progress import progress_of
from dgcf.data.paths import absolute_source
from dgcf.errors import StoppedError
from dgcf.experiments.search import Search, search_for
from dgcf.experiments.space import parse_space
from dgcf.experiments.trials import format_settings
from dgcf.experiments.tune import Tuned, tune

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
        display = progress_of("trials")
        return tune(search, trials=trials, minutes=minutes, jobs=jobs, device=device, progress=display)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; the same command goes on with the study in {search.path}.") from None


def draw(tuned: Tuned) -> None:
    """The best trials, what mattered, and how to train with it."""
    found, metric = tuned.to_dict(), tuned.search.metric
    complete = sorted((row for row in tuned.trials if row.complete), key=lambda row: (-(row.value or 0.0), row.trial))
    table = Table(title=f"{found['model']} on {found['dataset']}, validation, the best of {found['trials']} trials")
    for column in ("trial", metric, "epoch", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("settings")
    for row in complete[:TOP]:
        numbers = [str(row.trial), f"{row.value:.4f}", str(row.epoch), f"{row.seconds:.1f}"]
        table.add_row(*numbers, format_settings(row.settings))
    out.print(table)
    out.print(f"{found['pruned']} pruned, {found['failed']} failed")
    out.print(f"best: {format_settings(found['best']['settings'])}", soft_wrap=True)
    if tuned.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in tuned.importance.items())
        out.print(f"importance: {shares}", soft_wrap=True)
    out.print(
        f"train: dgcf train {quote(tuned.search.source)} --config {quote(found['config'])}",
        soft_wrap=True,
    )
