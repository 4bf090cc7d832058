"""The figure of a run: training loss and validation metric by epoch."""

from __future__ import annotations

from dgcf.files import atomic_file
from dgcf.train.run.folder import Run

CURVES = "curves.png"


def plot_run(run: Run) -> str | None:
    """Draw the curves of a run that was trained in epochs; return a note instead if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # no pyplot: no display is needed and no global state is left
    except ImportError:
        return "no figure of the curves: install matplotlib for it (pip install 'dgcf[plots]')."
    metrics, metric = run.metrics(), run.recipe.train.metric
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    trained = [line for line in metrics if "loss" in line]  # the start of an update has none
    axes.plot([line["epoch"] for line in trained], [line["loss"] for line in trained], color="tab:gray", label="loss")
    axes.set(xlabel="epoch", ylabel="training loss")
    evaluated = [line for line in metrics if metric in line]
    if evaluated:
        right = axes.twinx()
        values = [line[metric] for line in evaluated]
        right.plot([line["epoch"] for line in evaluated], values, color="tab:blue", marker=".", label=metric)
        right.set_ylabel(f"validation {metric}")
        best = max(evaluated, key=lambda line: line[metric])
        right.axvline(best["epoch"], color="tab:blue", linestyle=":")
        right.set_title(f"best {metric} {best[metric]:.4f} at epoch {best['epoch']}")
    with atomic_file(run.path / CURVES) as beside:
        figure.savefig(beside, format="png", dpi=120)
    return None
