"""The picture of a study: how much each setting mattered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dgcf.files import atomic_file


def draw_importance(importance: Mapping[str, float], metric: str, target: Path) -> str | None:
    """Write the picture; where matplotlib is not installed give a note in place of it."""
    try:
        from matplotlib.figure import Figure  # no pyplot: no display is needed and no global state is left
    except ImportError:
        return "no picture of the importance: install matplotlib for one (pip install 'dgcf[plots]')."
    names = list(importance)[::-1]  # the most important on top
    figure = Figure(figsize=(6.0, 1.2 + 0.4 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, [importance[name] for name in names], color="tab:blue")
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set_xlim(0, 1.1 * max(importance.values()))
    axes.set_xlabel(f"share in what sets the best trials apart ({metric})")
    with atomic_file(target) as beside:
        figure.savefig(beside, format="png", dpi=120)
    return None
