"""Show the best trials of ``dgcf tune``."""

from __future__ import annotations

from shlex import quote

from dgcf.cli.inputs import reading_words
from dgcf.cli.terminal import Table, notify, out
from dgcf.experiments.study.trials import format_settings
from dgcf.experiments.tune import Tuned

TOP = 5


def draw(tuned: Tuned) -> None:
    """Print the best trials, the importance of each setting, and the command that trains with the best settings."""
    answer, metric = tuned.to_dict(), tuned.search.metric
    complete = sorted((row for row in tuned.trials if row.complete), key=lambda row: (-(row.value or 0.0), row.trial))
    table = Table(title=f"{answer['model']} on {answer['dataset']}, validation, the best of {answer['trials']} trials")
    for column in ("trial", metric, "epoch", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("settings")
    for row in complete[:TOP]:
        numbers = [str(row.trial), f"{row.value:.4f}", str(row.epoch), f"{row.seconds:.1f}"]
        table.add_row(*numbers, format_settings(tuned.search.effective(row.settings)))
    out.print(table)
    out.print(f"{answer['pruned']} pruned, {answer['failed']} failed")
    out.print(f"best: {format_settings(answer['best']['settings'])}", soft_wrap=True)
    if tuned.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in tuned.importance.items())
        out.print(f"importance: {shares}", soft_wrap=True)
    if tuned.importance_note:
        notify(f"note: {tuned.importance_note}")
    source = tuned.search.source
    words = [quote(source), *reading_words(source, tuned.search.dataset), "--config", quote(answer["config"])]
    out.print(f"train: dgcf train {' '.join(words)}", soft_wrap=True)
