"""``dgcf graph``: the graph of a dataset in numbers, and the ε that its cross-hop filter would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dgcf.cli.inputs import Data, read_dataset
from dgcf.cli.terminal import AsJson, emit, notify, out, progress, warn
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.graph.spec import Epsilon
    from dgcf.graph.theory.report import GraphReport

EPSILON_HELP = "Keep cross-hop values above this, 0 to 1; `auto` makes cross-hop edges as many as direct ones."
EpsilonOption = Annotated[str, typer.Option("--epsilon", metavar="E|auto", help=EPSILON_HELP)]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Also draw a picture, with matplotlib.")]
FORMS = {
    "none": "L + I",
    "filtered": "L + Lc + I, filtered",
    "matrix-free": "L + Lc + I, matrix-free",
    "unfiltered": "L + Lc + I, unfiltered, stored",
}
BAR = 30


def register(root: typer.Typer) -> None:
    root.command("graph")(show_graph)


def epsilon_of(text: str) -> Epsilon:
    """``auto`` or a number; its range is checked where it is used."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"epsilon is {text!r}, expected a number from 0 to 1, or auto.") from None


def show_graph(
    data: Data,
    epsilon: EpsilonOption = "auto",
    histogram: Annotated[
        bool, typer.Option("--histogram/--no-histogram", help="Count all values of Lc, in a second pass.")
    ] = True,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Count direct and cross-hop edges of the training graph, and what each form of propagation takes.

    The ratio is the paper's: the greater of the two counts divided by the smaller, 1 at best.

    Example: `dgcf graph deoscirec/ml-1m --epsilon 0.001`
    """
    from dgcf.graph.theory.report import graph_report  # here: other verbs need not wait for torch

    threshold = epsilon_of(epsilon)
    dataset = read_dataset(data)
    with progress("building the cross-hop graph") as update:
        report = graph_report(dataset.train.to_scipy(), threshold, histogram=histogram, progress=update)
    warning = report.cross.warning()
    if plot is not None:
        from dgcf.graph.theory.plots import draw_histogram

        draw_histogram(report, f"{dataset.name}: the values of Lc", plot)
    if warning is not None:
        warn(warning)
    emit(to_dict(dataset.name, report), as_json, lambda: draw(dataset.name, report))
    if plot is not None:
        notify(f"Picture written to {plot}.")


def to_dict(name: str, report: GraphReport) -> dict[str, Any]:
    """The whole result, as ``--json`` prints it."""
    cross = report.cross
    warning = cross.warning()
    return {
        "name": name,
        "users": report.n_users,
        "items": report.n_items,
        "direct_edges": cross.direct_edges,
        "cross_edges": cross.edges,
        "cross_edges_off_diagonal": cross.off_diagonal,
        "ratio": cross.ratio,
        "epsilon": cross.epsilon,
        "memory_bytes": report.memory_bytes,
        "peak_held": cross.peak_held,
        "build_seconds": report.build_seconds,
        "histogram": None
        if report.histogram is None
        else {"edges": report.histogram.edges.tolist(), "counts": report.histogram.counts.tolist()},
        "warnings": [] if warning is None else [warning],
    }


def draw(name: str, report: GraphReport) -> None:
    cross = report.cross
    table = Table(title=name, show_header=False)
    table.add_row("users, items", f"{report.n_users:,}, {report.n_items:,}")
    table.add_row("direct edges", f"{cross.direct_edges:,}")
    table.add_row("cross-hop edges", f"{cross.edges:,} ({cross.off_diagonal:,} between different nodes)")
    table.add_row("ratio", f"{cross.ratio:.4g}")
    table.add_row("epsilon", f"{cross.epsilon:.10g}")
    table.add_row("built in", f"{report.build_seconds:.2f} s")
    for form, size in report.memory_bytes.items():
        table.add_row(f"memory of {FORMS[form]}", f"{size / 1e6:,.1f} MB")
    out.print(table)
    if report.histogram is not None:
        _draw_histogram(report)


def _draw_histogram(report: GraphReport) -> None:
    assert report.histogram is not None
    edges, counts = report.histogram.edges, report.histogram.counts
    table = Table("value of Lc from", "entries", "", title=f"all {report.histogram.total:,} values of Lc")
    # An ε below or above all values is marked at that end.
    marked = min(max(int(edges.searchsorted(report.cross.epsilon, side="right")) - 1, 0), len(counts) - 1)
    for place, count in enumerate(counts):
        bar = "█" * round(BAR * count / counts.max()) + ("  ← epsilon" if place == marked else "")
        table.add_row(f"{edges[place]:.2e}", f"{count:,}", bar)
    out.print(table)
