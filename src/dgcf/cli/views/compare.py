"""The table that ``dgcf compare`` prints."""

from __future__ import annotations

from rich.text import Text

from dgcf.cli.terminal import Table, bold, out
from dgcf.experiments.report import interval, megabytes, notes, signed
from dgcf.experiments.results import CompareResult, ModelResult


def draw(result: CompareResult) -> None:
    """Print a table: in each cell the mean over seeds, and below it the test against the reference."""
    table = Table("model", *result.metrics, "cost of a run", show_lines=True, title=f"{result.dataset}, test")
    for model in result.models:
        seeds = f"{len(model.seeds)} seed{'s' * (len(model.seeds) > 1)}" if model.seeded else "any seed"
        cost = f"{model.seconds:,.1f} s\n{megabytes(model)} MB"
        table.add_row(f"{model.label}\n{seeds}", *(_cell(result, model, name) for name in result.metrics), cost)
    out.print(table)
    legend = f"below a mean: its difference from {result.reference_label} (p after Holm's correction), and the interval"
    out.print(legend, soft_wrap=True)
    for note in notes(result):
        out.print(note, soft_wrap=True)


def _cell(result: CompareResult, model: ModelResult, metric: str) -> Text:
    value, test = model.test[metric], model.comparison(metric)
    best, mark = value.mean == result.best(metric), "*" * model.differs(metric)
    text = bold(str(value)) if best else Text(str(value))
    text.append(mark)
    if test is not None:
        text.append(f"\n{signed(test.difference)} (p {test.p_holm:.2g})\n{interval(test)}", style="not bold")
    return text
