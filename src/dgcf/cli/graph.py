"""``dgcf graph``: count the edges of a dataset's graph, and find the ε of its cross-hop filter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from dgcf.cli.inputs import Data, read_dataset
from dgcf.cli.terminal import AsJson, emit, notify, progress, warn
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.graph.spec import Epsilon

EPSILON_HELP = "Threshold of the cross-hop filter, 0 to 1; `auto` keeps about as many cross-hop as direct edges."
EpsilonOption = Annotated[str, Option("--epsilon", metavar="E|auto", help=EPSILON_HELP)]
Plot = Annotated[Path | None, Option("--plot", metavar="FILE.png", help="Also write a plot.")]


def epsilon_of(text: str) -> Epsilon:
    """Return ``auto`` or a number; the graph checks the range."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"epsilon is {text!r}, expected a number from 0 to 1, or auto.") from None


def command(
    data: Data,
    epsilon: EpsilonOption = "auto",
    histogram: Annotated[
        bool, Option("--histogram/--no-histogram", help="Also count all values of Lc, in a second pass.")
    ] = True,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Count direct and cross-hop edges of the training graph, and the memory of each form of propagation.

    The ratio is the paper's: the larger of the two counts divided by the smaller; 1 is best. L is the matrix of direct
    edges, Lc that of cross-hop edges, I the identity.

    Example: `dgcf graph deoscirec/ml-1m --epsilon 0.001`
    """
    from dgcf.cli.views.graph import draw  # here, because torch takes seconds to import
    from dgcf.graph.theory.report import graph_report

    threshold = epsilon_of(epsilon)
    dataset = read_dataset(data)
    with progress("building the cross-hop graph") as update:
        report = graph_report(dataset.train, threshold, histogram=histogram, progress=update)
    if plot is not None:
        from dgcf.graph.theory.plots import draw_histogram

        draw_histogram(report, f"{dataset.name}: the values of Lc", plot)
        notify(f"Plot written to {plot}.")
    answer = report.to_dict(dataset.name)
    for warning in answer["warnings"]:
        warn(warning)
    emit(answer, as_json, lambda: draw(dataset.name, report))
