"""Show the evaluation of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgcf.cli.terminal import Table, out
from dgcf.evaluate.evaluation import Evaluation


def draw(evaluation: Evaluation, result: Mapping[str, Any]) -> None:
    """Print the metrics of a run, and of its groups and gates if they were measured."""
    table = Table("metric", "mean", "std error", "95 % interval", title=f"{result['model']} in {result['run']}")
    for name, mean in evaluation.means.items():
        if name in evaluation.values:
            low, high = evaluation.intervals[name]
            table.add_row(name, f"{mean:.4f}", f"{evaluation.standard_errors[name]:.4f}", f"{low:.4f} – {high:.4f}")
        else:
            table.add_row(name, f"{mean:.4f}", "", "")
    out.print(table)
    for group in result.get("groups", []):
        metrics = ", ".join(
            f"{name} {group[name]:.4f}" for name in evaluation.values if name.startswith(("recall", "ndcg"))
        )
        out.print(f"{group['at_least']}–{group['at_most']} interactions: {group['users']:,} users, {metrics}")
    if "gate_correlation" in result:
        for number, layer in enumerate(result["gate_correlation"]["layers"], start=1):
            sides = ", ".join(f"{side} {value:.3f}" for side, value in layer.items() if value is not None)
            out.print(f"correlation of 1/α and log degree, layer {number}: {sides}")
    out.print(f"{evaluation.split}, mask {evaluation.mask}, {evaluation.users_evaluated:,} users evaluated")
