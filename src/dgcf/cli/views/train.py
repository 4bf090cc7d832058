"""Show the finished runs of ``dgcf train``."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any

from dgcf.cli.inputs import reading_words
from dgcf.cli.terminal import Table, out
from dgcf.data import Dataset
from dgcf.experiments.baselines import Standing
from dgcf.text import counted


def draw(results: Sequence[dict[str, Any]]) -> None:
    """Print a table with one row for each run, then the run folders; of a training on all pairs its first stage.

    ``dgcf evaluate`` prints all metrics.
    """
    runs = [result["run"] for result in results]
    results = [result.get("validated", result) for result in results]
    first = results[0]
    measured = f", test, mask {first['mask']}" if first["test"] else ""
    table = Table(title=f"{first['model']} on {first['dataset']}{measured}")
    names = [name for name in first["test"] if name.startswith(("recall", "ndcg"))]
    for column in ("seed", "epochs", "best", "seconds", *names):
        table.add_column(column, justify="right")
    for result in results:
        numbers = [f"{result['test'][name]:.4f}" for name in names]
        table.add_row(
            str(result["seed"]), str(result["epochs"]), str(result["best_epoch"]), f"{result['seconds']:.1f}", *numbers
        )
    out.print(table)
    evaluated = f"{counted(first['users_evaluated'], 'user')} evaluated"
    out.print(evaluated if measured else "not measured: there is no test split")
    for result, run in zip(results, runs, strict=True):
        if result["run"] != run:
            out.print(f"measured before training on all pairs: {result['run']}", soft_wrap=True)
        out.print(f"run: {run}", soft_wrap=True)


def draw_standing(standing: Standing | None, data: str, dataset: Dataset) -> None:
    """Print a line with the model and the baselines by their validation metric, then the command of a better one.

    The command names ``data`` as it was given, and reads it as ``dataset`` was read.
    """
    if standing is None:
        return
    if standing.best is None:
        out.print(f"not compared with the baselines: {standing.left_out[0].reason}", soft_wrap=True)
        return
    numbers = [f"{model} {f'{value:.4f}'.removeprefix('0')}" for model, value in standing.values()]
    out.print(f"validation {standing.metric}: {', '.join(numbers)}", soft_wrap=True)
    if standing.best != standing.trained:
        words = ["dgcf", "train", quote(data), *reading_words(data, dataset), "--model", standing.best]
        out.print(f"{standing.best} is better here: {' '.join(words)}", soft_wrap=True)
