"""``dgcf oscillation``: measure whether propagation on a dataset's graph settles, and what cross-hop edges change."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from dgcf.cli.graph import EpsilonOption, Plot, epsilon_of
from dgcf.cli.inputs import Data, read_dataset
from dgcf.cli.terminal import AsJson, emit, notify, progress


def command(
    data: Data,
    epsilon: EpsilonOption = "auto",
    steps: Annotated[int, Option(min=2, max=100_000, help="Number of steps to record and plot.")] = 40,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Measure the oscillation of random walks on L, L + I, A + I, L + Lc and L + Lc + I, columns normalised.

    The gap of step t is ‖x(t) − x(t+1)‖₁; if it does not vanish, odd and even layers have different limits. Walks
    start from the uniform distribution on the largest connected component, in float64. A + I is the self-loop of graph
    convolutions.

    Example: `dgcf oscillation deoscirec/ml-100k --plot gap.png`
    """
    from dgcf.cli.views.graph import draw_oscillation  # here, because torch takes seconds to import
    from dgcf.graph.theory.oscillation import oscillation

    threshold = epsilon_of(epsilon)
    dataset = read_dataset(data)
    with progress("walking") as update:
        report = oscillation(dataset.train, threshold, steps=steps, progress=update)
    if plot is not None:
        from dgcf.graph.theory.plots import draw_gaps

        draw_gaps(report, f"{dataset.name}: the gap between successive steps of a walk", plot)
        notify(f"Plot written to {plot}.")
    emit(report.to_dict(dataset.name), as_json, lambda: draw_oscillation(dataset.name, report))
