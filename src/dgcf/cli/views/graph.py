"""Show the graph of a dataset: its edges, the memory of each form of propagation, and a histogram of Lc."""

from __future__ import annotations

from rich.table import Table

from dgcf.cli.terminal import out
from dgcf.graph.theory.report import GraphReport

FORMS = {
    "none": "L + I",
    "filtered": "L + Lc + I, filtered",
    "matrix-free": "L + Lc + I, matrix-free",
    "unfiltered": "L + Lc + I, unfiltered, stored",
}
BAR = 30


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
    table = Table("value of Lc from", "entries", "", title=f"all {report.histogram.total:,} values of Lc")
    # An ε outside the range of the values is marked at the nearest end.
    marked = min(max(int(edges.searchsorted(report.cross.epsilon, side="right")) - 1, 0), len(counts) - 1)
    for place, count in enumerate(counts):
        bar = "█" * round(BAR * count / counts.max()) + ("  ← epsilon" if place == marked else "")
        table.add_row(f"{edges[place]:.2e}", f"{count:,}", bar)
    out.print(table)
