"""Show an explanation: its sentence, its largest parts and its layers."""

from __future__ import annotations

from pathlib import Path

from dgcf.cli.terminal import out
from dgcf.recommend import Explanation

SHOWN = 5
"""Parts of each kind that are shown by default."""


def draw(explanation: Explanation, top: int, chart: Path | None) -> None:
    """Print an explanation with its ``top`` largest parts of each kind."""
    out.print(explanation.text(), soft_wrap=True)
    out.print(explanation.top(top).table())
    layers = ", ".join(f"{number}: {value:.4f}" for number, value in enumerate(explanation.by_layer))
    out.print(f"by layer: {layers}; unexplained: {explanation.residual:.1e}", soft_wrap=True)
    if chart is not None:
        out.print(f"chart written to {chart}", soft_wrap=True)
