"""Show the cells that ``dgcf reproduce`` ran, or the files that it wrote."""

from __future__ import annotations

from collections.abc import Mapping

from dgcf.cli.terminal import notify, out
from dgcf.experiments.reproduce.report.pages import Rendered
from dgcf.experiments.reproduce.runner import Tally

LISTED = 20
"""Number of missing cells that are listed by name."""


def draw_tally(tally: Tally) -> None:
    """Print the number of cells by outcome, and the missing ones."""
    taken = f"{len(tally.taken_over)} taken over from other cells, " if tally.taken_over else ""
    known, missing = f"{len(tally.known)} recorded before", f"{len(tally.missing)} missing"
    out.print(f"cells: {len(tally.done)} computed, {taken}{known}, {missing}")
    _draw_missing(tally.missing)


def draw_rendered(rendered: Rendered) -> None:
    """Print the files that were written, and the missing cells."""
    for path in rendered.written:
        out.print(str(path), soft_wrap=True)
    _draw_missing({f"{name} {key}": why for name, keys in rendered.missing.items() for key, why in keys.items()})


def _draw_missing(missing: Mapping[str, str]) -> None:
    for key, why in list(missing.items())[:LISTED]:
        notify(f"missing: {key} ({why})")
    if len(missing) > LISTED:
        notify(f"… and {len(missing) - LISTED:,} more; --json lists all.")
