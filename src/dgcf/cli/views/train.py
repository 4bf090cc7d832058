"""Show the finished runs of ``dgcf train``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from dgcf.cli.terminal import out


def draw(results: Sequence[dict[str, Any]]) -> None:
    """Print a table with one row for each run, then the run folders."""
    first = results[0]
    table = Table(title=f"{first['model']} on {first['dataset']}, test, mask {first['mask']}")
    names = [name for name in first["test"] if name.startswith(("recall", "ndcg", "precision", "hit"))]
    for column in ("seed", "epochs", "best", "seconds", *names):
        table.add_column(column, justify="right")
    for result in results:
        numbers = [f"{result['test'][name]:.4f}" for name in names]
        table.add_row(
            str(result["seed"]), str(result["epochs"]), str(result["best_epoch"]), f"{result['seconds']:.1f}", *numbers
        )
    out.print(table)
    out.print(f"{first['users_evaluated']:,} users evaluated")
    for result in results:
        out.print(f"run: {result['run']}", soft_wrap=True)
