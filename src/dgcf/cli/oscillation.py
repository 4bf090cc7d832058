"""``dgcf oscillation``: does propagation on a dataset's graph settle, how fast, and what do cross-hop edges change?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dgcf.cli.graph import EpsilonOption, Plot, epsilon_of
from dgcf.cli.inputs import Data, read_dataset
from dgcf.cli.terminal import AsJson, emit, notify, out, progress

if TYPE_CHECKING:
    from dgcf.graph.theory.oscillation import Component, OscillationReport

SHOWN_COMPONENTS = 10
RECORDED = {
    "gap_limit": "gap_limit",
    "gap_limit_exact": "gap_limit_exact",
    "decay_per_step": "decay_per_step",
    "flip_per_step": "flip_per_step",
    "within_bound": "within_bound",
    "pi_error": "limit_error",
    "two_limits": "two_sided",
    "steps": "steps",
    "settled": "settled",
}


def register(root: typer.Typer) -> None:
    root.command("oscillation")(show_oscillation)


def show_oscillation(
    data: Data,
    epsilon: EpsilonOption = "auto",
    steps: Annotated[int, typer.Option(min=2, max=100_000, help="Steps whose gaps are recorded and drawn.")] = 40,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Walk on L, L + I, L + Lc and L + Lc + I, columns normalised, from the uniform start, and measure the gap.

    The gap of step t is ‖x(t) − x(t+1)‖₁; where it does not vanish, odd and even layers see different things.
    Walks run on the largest connected component, in float64. A + I is the self-loop of graph convolutions.

    Example: `dgcf oscillation deoscirec/ml-100k --plot gap.png`
    """
    from dgcf.graph.theory.oscillation import oscillation  # here: other verbs need not wait for torch

    threshold = epsilon_of(epsilon)
    dataset = read_dataset(data)
    with progress("walking") as update:
        report = oscillation(dataset.train.to_scipy(), threshold, steps=steps, progress=update)
    if plot is not None:
        from dgcf.graph.theory.plots import draw_gaps

        draw_gaps(report, f"{dataset.name}: the gap between successive steps of a walk", plot)
    emit(to_dict(dataset.name, report), as_json, lambda: draw(dataset.name, report))
    if plot is not None:
        notify(f"Picture written to {plot}.")


def to_dict(name: str, report: OscillationReport) -> dict[str, Any]:
    """The whole result, as ``--json`` prints it."""
    from dgcf.graph.theory.oscillation import PAPER_CLAIMS

    walks = report.walks
    return {
        "name": name,
        "epsilon": report.epsilon,
        **{key: {name: getattr(walk, field) for name, walk in walks.items()} for key, field in RECORDED.items()},
        "paper_claims": PAPER_CLAIMS,
        "gaps": {name: walk.gaps.tolist() for name, walk in walks.items()},
        "bound": {name: walk.bounds.tolist() for name, walk in walks.items()},
        "spectrum": {name: {"lowest": w.ends.lowest, "second": w.ends.highest} for name, w in walks.items()},
        "condition": {name: walk.condition for name, walk in walks.items() if walk.two_sided},
        "symmetric": {"gaps": report.symmetric_gaps.tolist(), "bound": report.symmetric_bounds.tolist()},
        "connected": report.connected,
        "isolated_nodes": report.isolated,
        "components": [_component(part) for part in report.components],
    }


def _component(part: Component) -> dict[str, Any]:
    return {
        "users": part.users,
        "items": part.items,
        "direct_edges": part.direct_edges,
        "cross_edges": part.cross_edges,
        "gap_limit": part.gap_limit,
        "one_limit_with_cross": part.one_limit_with_cross,
    }


def draw(name: str, report: OscillationReport) -> None:
    from dgcf.graph.theory.oscillation import PAPER_CLAIMS

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
            notify(f"{label} had not settled after {walk.steps:,} steps; its last gap is still on its way.")
    out.print(table)
    notify(
        "Decay: the factor by which a step shrinks the distance to the limit, in the long run. Flip: the same for the "
        "part that changes sign at every step, the oscillation itself; 1 means that it never ends."
    )
    if not report.connected:
        _draw_components(report)


def _draw_components(report: OscillationReport) -> None:
    parts, isolated = report.components, report.isolated
    table = Table("users", "items", "direct edges", "cross-hop edges", "gap of L in the limit", "with cross-hop edges")
    table.title = f"{len(parts):,} connected components with edges, {isolated:,} isolated nodes"
    for part in parts[:SHOWN_COMPONENTS]:
        settles = "one limit" if part.one_limit_with_cross else "two limits: ε leaves it no cross-hop edge"
        counts = (part.users, part.items, part.direct_edges, part.cross_edges)
        table.add_row(*(f"{count:,}" for count in counts), f"{part.gap_limit:.4f}", settles)
    out.print(table)
    if len(parts) > SHOWN_COMPONENTS:
        notify(f"{len(parts) - SHOWN_COMPONENTS:,} smaller components are not shown; --json lists all.")
