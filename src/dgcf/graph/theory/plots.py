"""Figures of the graph reports: the histogram of Lc with ε, and the gaps of walks. Needs the extra ``plots``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dgcf.errors import ConfigError
from dgcf.files import atomic_file
from dgcf.graph.theory.oscillation import OscillationReport
from dgcf.graph.theory.report import GraphReport

COLOURS = {"L": "tab:red", "L+I": "tab:orange", "A+I": "tab:brown", "L+Lc": "tab:blue", "L+Lc+I": "tab:green"}
FLOOR = 1e-16
"""Gaps below this are rounding errors; the logarithmic axis ends here."""


def draw_histogram(report: GraphReport, title: str, target: Path) -> None:
    """Write the histogram of the values of Lc, with ε marked, to ``target`` (PNG)."""
    if report.histogram is None:
        raise ConfigError("the figure needs the histogram; remove --no-histogram.")
    figure, axes = _figure(target)
    edges, counts = report.histogram.edges, report.histogram.counts
    kept = edges[:-1] >= report.cross.epsilon
    for wanted, colour, label in ((False, "tab:gray", "filtered out"), (True, "tab:blue", "kept")):
        chosen = kept == wanted
        axes.bar(edges[:-1][chosen], counts[chosen], (edges[1:] - edges[:-1])[chosen], align="edge", color=colour)
        axes.plot([], [], color=colour, linewidth=6, label=label)
    axes.axvline(max(report.cross.epsilon, edges[0]), color="tab:red", label=f"ε = {report.cross.epsilon:g}")
    axes.set(xscale="log", yscale="log", xlabel="value of Lc", ylabel="entries", title=title)
    axes.legend()
    _save(figure, target)


def draw_gaps(report: OscillationReport, title: str, target: Path) -> None:
    """Write the gap between successive steps of the walk on each matrix to ``target`` (PNG)."""
    figure, axes = _figure(target)
    for name, walk in report.walks.items():
        label = f"{name}: gap → {walk.gap_limit_exact:.3g}, × {walk.decay_per_step:.3f} a step"
        style = "--" if name == "A+I" else "-"
        axes.plot(walk.gaps.clip(min=FLOOR), style, color=COLOURS[name], marker=".", markersize=4, label=label)
    axes.set(yscale="log", xlabel="step t", ylabel="‖x(t) − x(t+1)‖₁", title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    _save(figure, target)


def _figure(target: Path) -> tuple[Any, Any]:
    if target.suffix.lower() != ".png":
        raise ConfigError(f"the figure would be written to {target.name}; give a name that ends in .png.")
    try:
        from matplotlib.figure import Figure  # no pyplot: no display is needed and no global state is left
    except ImportError:
        raise ConfigError("drawing needs matplotlib; install it with pip install 'dgcf[plots]'.") from None
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, target: Path) -> None:
    with atomic_file(target) as beside:
        figure.savefig(beside, format="png", dpi=120)
