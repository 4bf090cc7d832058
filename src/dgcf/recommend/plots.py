"""An explanation as a bar picture, for those who have matplotlib."""

from __future__ import annotations

from pathlib import Path

from dgcf.errors import ConfigError
from dgcf.files import atomic_file
from dgcf.recommend.explain import KINDS, Explanation

_COLOURS = {"item": "#3b6fb6", "user": "#e08a2e", "prior": "#7a7a7a"}
_BARS = 8


def draw_bars(explanation: Explanation, path: str | Path) -> Path:
    """Write the greatest parts as horizontal bars (PNG, SVG or PDF, by the name)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("a picture needs matplotlib; install it with: pip install 'dgcf[plots]'.") from None
    target = Path(path)
    kind = target.suffix.lstrip(".").lower() or "png"
    if kind not in ("png", "svg", "pdf"):
        raise ConfigError(f"a picture cannot be written as {target.suffix!r}; name it .png, .svg or .pdf.")
    parts = sorted(explanation.top(_BARS).parts, key=lambda part: part.value)
    figure = Figure(figsize=(8, 1.2 + 0.3 * len(parts)), layout="constrained")
    axes = figure.subplots()
    # Dollar signs in a title are no mathematics.
    names = [part.title.replace("$", r"\$")[:50] for part in parts]
    axes.barh(range(len(parts)), [part.value for part in parts], color=[_COLOURS[part.kind] for part in parts])
    axes.set_yticks(range(len(parts)), names)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(f"adds to the score ({explanation.score:.4f} in all)")
    axes.set_title(f"Why {explanation.title}".replace("$", r"\$"))
    handles = [axes.barh([0], [0], color=_COLOURS[name], label=label) for name, label in KINDS.items()]
    axes.legend(handles=handles, loc="lower right")
    with atomic_file(target) as beside:
        figure.savefig(beside, format=kind, dpi=150)
    return target
