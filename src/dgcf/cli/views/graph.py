"""Show the graph of a dataset (edges, memory of each form of propagation, histogram of Lc), and walks on it."""

from __future__ import annotations

from dgcf.cli.terminal import Table, notify, out
from dgcf.graph.theory.oscillation import PAPER_CLAIMS, OscillationReport
from dgcf.graph.theory.report import GraphReport

FORMS = {
    "none": "L + I",
    "filtered": "L + Lc + I, filtered",
    "matrix-free": "L + Lc + I, matrix-free",
    "unfiltered": "L + Lc + I, unfiltered, stored",
}
BAR = 30
SHOWN_COMPONENTS = 10


def draw(name: str, report: GraphReport) -> None:
    """Print the counts, and the histogram if there is one."""
    cross = report.cross
    table = Table(title=name, show_header=False)
    table.add_row("users, items", f"{report.n_users:,}, {report.n_items:,}")
    table.add_row("direct edges", f"{cross.direct_edges:,}")
    table.add_row("cross-hop edges", f"{cross.edges:,} ({cross.off_diagonal:,} between different nodes)")
    table.add_row("ratio", f"{cross.ratio:.4g}")
    table.add_row("epsilon", f"{cross.epsilon:.10g}")
    table.add_row("built in", f"{report.build_seconds:.2f} s")
    for form, size in report.memory_bytes.items():
        table.add_row(f"memory of {FORMS[form]}", f"{size / 1e6:,.1f} MB")
    out.print(table)
    if report.histogram is not None:
        _draw_histogram(report)


def _draw_histogram(report: GraphReport) -> None:
    assert report.histogram is not None
    edges, counts = report.histogram.edges, report.histogram.counts
    table = Table("value from", "entries", "")
    table.title = f"all {report.histogram.total:,} values of the cross-hop matrix Lc"
    # An ε outside the range of the values is marked at the nearest end.
    marked = min(max(int(edges.searchsorted(report.cross.epsilon, side="right")) - 1, 0), len(counts) - 1)
    for place, count in enumerate(counts):
        bar = "█" * round(BAR * count / counts.max()) + ("  ← epsilon" if place == marked else "")
        table.add_row(f"{edges[place]:.2e}", f"{count:,}", bar)
    out.print(table)


def draw_oscillation(name: str, report: OscillationReport) -> None:
    """Print a table of the walks on the largest component; a second one if there are other components."""
    table = Table("matrix", "first gap", "last gap", "≤ bound", "decay a step", "flip a step", "limits (paper)")
    table.title = f"{name}, largest component, ε = {report.epsilon:.6g}"
    for label, walk in report.walks.items():
        table.add_row(
            label,
            f"{walk.gaps[0]:.4f}",
            f"{walk.gap_limit:.4f}" if walk.gap_limit > 1e-4 else f"{walk.gap_limit:.0e}",
            "yes" if walk.within_bound else "NO",
            f"{walk.decay_per_step:.4f}",
            f"{walk.flip_per_step:.4f}",
            f"{'two' if walk.two_sided else 'one'} ({PAPER_CLAIMS[label].split()[0]})",
        )
        if not walk.settled:
            notify(f"{label} did not settle in {walk.steps:,} steps; its last gap is not its limit.")
    out.print(table)
    notify(
        "≤ bound: no gap exceeds the paper's bound. Decay: the factor by which a step shrinks the distance to the "
        "limit, in the long run. Flip: the same factor for the part that changes sign at every step, the oscillation; "
        "1 means that it never ends."
    )
    if not report.connected:
        _draw_components(report)


def _draw_components(report: OscillationReport) -> None:
    parts, isolated = report.components, report.isolated
    table = Table("users", "items", "direct edges", "cross-hop edges", "gap of L in the limit", "with cross-hop edges")
    table.title = f"{len(parts):,} connected components with edges, {isolated:,} isolated nodes"
    for part in parts[:SHOWN_COMPONENTS]:
        settles = "one limit" if part.one_limit_with_cross else "two limits: ε keeps no cross-hop edge"
        counts = (part.users, part.items, part.direct_edges, part.cross_edges)
        table.add_row(*(f"{count:,}" for count in counts), f"{part.gap_limit:.4f}", settles)
    out.print(table)
    if len(parts) > SHOWN_COMPONENTS:
        notify(f"{len(parts) - SHOWN_COMPONENTS:,} smaller components are not shown; --json lists all.")
