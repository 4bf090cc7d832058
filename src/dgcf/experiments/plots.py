"""The picture of a comparison: a bar for each model, the interval over users, and a dot for each seed."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from dgcf.errors import ConfigError
from dgcf.experiments.results import Standing, Standings
from dgcf.files import atomic_file

LABELS, BARS, ROW = 190, 460, 30
"""Widths of the names and of the longest bar, and the height of a row, in the page's picture."""
PANELS = 3
"""Metrics beside each other in the drawn one."""


def caption(found: Standings) -> str:
    """What bars, lines and dots are."""
    share = found.rows[0].evaluation.confidence
    return (
        f"{found.dataset}, test, mask {found.mask}, {found.users_evaluated:,} users. "
        f"Bar: mean over seeds; line: {share:.0%} interval over users; dots: seeds"
    )


# -- drawn by matplotlib, for files -----------------------------------------------------------------------------------


def refuse_without_matplotlib() -> None:
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ConfigError("drawing needs matplotlib; install it with pip install 'dgcf[plots]'.") from None


def draw_bars(found: Standings, target: Path) -> None:
    """Write the picture as the suffix of ``target`` says: .png or .svg."""
    refuse_without_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no display is needed and no global state is left

    columns = min(PANELS, len(found.metrics))
    lines = math.ceil(len(found.metrics) / columns)
    size = (2.0 + 3.6 * columns, 0.6 + lines * (1.0 + 0.45 * len(found.rows)))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flatten().tolist()
    for metric, axes in zip(found.metrics, panels, strict=False):
        _draw_panel(axes, found, metric)
    for axes in panels[len(found.metrics) :]:
        axes.set_visible(False)
    figure.suptitle(caption(found), fontsize="small", parse_math=False)
    form = target.suffix.lower().lstrip(".")
    # The same comparison gives the same bytes: no date, and names inside the file that are not drawn at random.
    with rc_context({"svg.hashsalt": "dgcf"}), atomic_file(target) as beside:
        figure.savefig(beside, format=form, dpi=120, metadata={"Date": None} if form == "svg" else None)


def _draw_panel(axes: Any, found: Standings, metric: str) -> None:
    places = range(len(found.rows))
    means = [row.test[metric].mean for row in found.rows]
    axes.barh(places, means, color="tab:blue", alpha=0.6)
    for place, row in zip(places, found.rows, strict=True):
        low, high = row.evaluation.intervals[metric]
        axes.plot([low, high], [place, place], color="black", linewidth=1.2)
        axes.plot(row.each[metric], [place] * len(row.each[metric]), "o", color="black", markersize=3)
    axes.set_yticks(places, [row.label for row in found.rows], parse_math=False)  # a name may hold any sign
    axes.set_ylim(len(found.rows) - 0.5, -0.5)  # the first on top, as in the table
    axes.set_xlim(0, 1.05 * _longest(found, metric))
    axes.set_title(metric, fontsize="medium")


# -- written by hand, for the page ------------------------------------------------------------------------------------


def bars_svg(found: Standings) -> str:
    """The same as a figure of a page: its colours come from the page's style, so it follows light and dark."""
    parts, y = [], 0
    for metric in found.metrics:
        scale = BARS / _longest(found, metric)
        y += ROW
        parts.append(f'<text x="0" y="{y - 10}" font-weight="bold">{html.escape(metric)}</text>')
        for row in found.rows:
            parts.append(_bar(row, metric, y, scale))
            y += ROW
    told, width = html.escape(caption(found)), LABELS + BARS + 90
    opening = f'<svg viewBox="0 0 {width} {y}" width="{width}" role="img" aria-label="{told}">'
    return "\n".join(["<figure>", opening, *parts, "</svg>", f"<figcaption>{told}.</figcaption>", "</figure>"])


def _bar(row: Standing, metric: str, y: int, scale: float) -> str:
    """One model's name, bar, interval, dots and value, at the height ``y``."""
    middle = y + ROW // 2
    mean = row.test[metric].mean
    low, high = (LABELS + bound * scale for bound in row.evaluation.intervals[metric])
    dots = "".join(
        f'<circle class="dot" cx="{LABELS + value * scale:.1f}" cy="{middle}" r="2.5"/>' for value in row.each[metric]
    )
    name = row.label if len(row.label) <= 26 else f"{row.label[:25]}…"
    return (
        f'<text x="{LABELS - 8}" y="{middle + 4}" text-anchor="end">{html.escape(name)}</text>'
        f'<rect class="bar" x="{LABELS}" y="{y + 5}" width="{mean * scale:.1f}" height="{ROW - 10}"/>'
        f'<line class="range" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>{dots}'
        f'<text x="{max(high, LABELS) + 8:.1f}" y="{middle + 4}">{mean:.4f}</text>'
    )


def _longest(found: Standings, metric: str) -> float:
    """The right end of the axis: the highest interval or seed, and never nothing."""
    ends = [max(row.evaluation.intervals[metric][1], *row.each[metric]) for row in found.rows]
    return max(ends) or 1.0
