"""Figures: the bars of a comparison, as a file or inside an HTML page, and the importance of tuned settings."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dgcf.errors import ConfigError
from dgcf.experiments.results import CompareResult, ModelResult
from dgcf.files import atomic_file

LABELS, BARS, ROW = 190, 460, 30
"""Width of the labels, width of the longest bar and height of a row in the SVG of a page."""
PANELS = 3
"""Number of metrics side by side in a figure."""


def caption(result: CompareResult) -> str:
    """Return what bars, lines and dots stand for."""
    share = result.models[0].evaluation.confidence
    return (
        f"{result.dataset}, test, mask {result.mask}, {result.users_evaluated:,} users. "
        f"Bar: mean over seeds; line: {share:.0%} interval over users; dots: seeds"
    )


def refuse_without_matplotlib() -> None:
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ConfigError("drawing needs matplotlib; install it with pip install 'dgcf[plots]'.") from None


def draw_bars(result: CompareResult, target: Path) -> None:
    """Draw a bar for each model, its interval over users, and a dot for each seed, to a .png or .svg file."""
    refuse_without_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not pyplot, which needs a display and keeps global state

    columns = min(PANELS, len(result.metrics))
    lines = math.ceil(len(result.metrics) / columns)
    size = (2.0 + 3.6 * columns, 0.6 + lines * (1.0 + 0.45 * len(result.models)))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flatten().tolist()
    for metric, axes in zip(result.metrics, panels, strict=False):
        _draw_panel(axes, result, metric)
    for axes in panels[len(result.metrics) :]:
        axes.set_visible(False)
    figure.suptitle(caption(result), fontsize="small", parse_math=False)
    form = target.suffix.lower().lstrip(".")
    # The same comparison gives the same bytes: no date, and no random ids inside the file.
    with rc_context({"svg.hashsalt": "dgcf"}), atomic_file(target) as beside:
        figure.savefig(beside, format=form, dpi=120, metadata={"Date": None} if form == "svg" else None)


def _draw_panel(axes: Any, result: CompareResult, metric: str) -> None:
    places = range(len(result.models))
    means = [model.test[metric].mean for model in result.models]
    axes.barh(places, means, color="tab:blue", alpha=0.6)
    for place, model in zip(places, result.models, strict=True):
        low, high = model.evaluation.intervals[metric]
        axes.plot([low, high], [place, place], color="black", linewidth=1.2)
        values = model.test_by_seed[metric]
        axes.plot(values, [place] * len(values), "o", color="black", markersize=3)
    axes.set_yticks(places, [model.label for model in result.models], parse_math=False)
    axes.set_ylim(len(result.models) - 0.5, -0.5)  # the first on top, as in the table
    axes.set_xlim(0, 1.05 * _longest(result, metric))
    axes.set_title(metric, fontsize="medium")


def bars_svg(result: CompareResult) -> str:
    """Return the bars as a ``<figure>``; the page's style gives its colours, so that it follows light and dark."""
    parts, y = [], 0
    for metric in result.metrics:
        scale = BARS / _longest(result, metric)
        y += ROW
        parts.append(f'<text x="0" y="{y - 10}" font-weight="bold">{html.escape(metric)}</text>')
        for model in result.models:
            parts.append(_bar(model, metric, y, scale))
            y += ROW
    text, width = html.escape(caption(result)), LABELS + BARS + 90
    opening = f'<svg viewBox="0 0 {width} {y}" width="{width}" role="img" aria-label="{text}">'
    return "\n".join(["<figure>", opening, *parts, "</svg>", f"<figcaption>{text}.</figcaption>", "</figure>"])


def _bar(model: ModelResult, metric: str, y: int, scale: float) -> str:
    """Return label, bar, interval, dots and value of a model at height ``y``."""
    middle = y + ROW // 2
    mean = model.test[metric].mean
    low, high = (LABELS + bound * scale for bound in model.evaluation.intervals[metric])
    dots = "".join(
        f'<circle class="dot" cx="{LABELS + value * scale:.1f}" cy="{middle}" r="2.5"/>'
        for value in model.test_by_seed[metric]
    )
    name = model.label if len(model.label) <= 26 else f"{model.label[:25]}…"
    return (
        f'<text x="{LABELS - 8}" y="{middle + 4}" text-anchor="end">{html.escape(name)}</text>'
        f'<rect class="bar" x="{LABELS}" y="{y + 5}" width="{mean * scale:.1f}" height="{ROW - 10}"/>'
        f'<line class="range" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>{dots}'
        f'<text x="{max(high, LABELS) + 8:.1f}" y="{middle + 4}">{mean:.4f}</text>'
    )


def _longest(result: CompareResult, metric: str) -> float:
    """Return the right end of the axis: the highest interval or seed, or 1 if all are 0."""
    ends = [max(model.evaluation.intervals[metric][1], *model.test_by_seed[metric]) for model in result.models]
    return max(ends) or 1.0


def draw_importance(importance: Mapping[str, float], metric: str, target: Path) -> str | None:
    """Draw a bar for each setting to a .png file; without matplotlib, return a note instead."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "importance.png is not drawn without matplotlib; install it with pip install 'dgcf[plots]'."
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
