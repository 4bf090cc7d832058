"""``dgcf compare``: is one run better than another? A paired test over the users that both evaluated."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from dgcf.cli.evaluate import Data, Ks, Mask, RunFolder, about, cut_offs, measure
from dgcf.cli.terminal import AsJson, emit, out, progress
from dgcf.errors import ConfigError


def register(root: typer.Typer) -> None:
    root.command("compare")(compare_runs)


def compare_runs(
    first: RunFolder,
    second: RunFolder,
    mask: Mask = "train",
    k: Ks = "20",
    metrics: Annotated[
        str, typer.Option("--metric", help="Metrics, with commas between them, or `all`.")
    ] = "recall,ndcg",
    data: Data = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare two runs user by user: difference, bootstrap interval, t-test, permutation test, Holm's correction.

    Example: `dgcf compare runs/lightgcn runs/dgcf`
    """
    from dgcf.evaluate.significance import compare  # here: other verbs need neither torch nor tests
    from dgcf.train import Run

    ks = cut_offs(k)
    one, other = Run.open(first), Run.open(second)
    prints = [run.about["dataset"]["fingerprint"] for run in (one, other)]
    if prints[0] != prints[1]:
        raise ConfigError(
            f"{first} was trained on {one.about['dataset']['name']} ({prints[0][:12]}), {second} on "
            f"{other.about['dataset']['name']} ({prints[1][:12]}); compare two runs on one dataset."
        )
    names = None if metrics == "all" else [f"{name.strip()}@{cut}" for name in metrics.split(",") for cut in ks]
    with progress(f"comparing {first} and {second}"):
        ours, theirs = (measure(run, data, "test", mask, ks, device)[0] for run in (one, other))
        found = compare(ours, theirs, names)
    result = {
        "first": about(one),
        "second": about(other),
        "mask": mask,
        "users_evaluated": ours.users_evaluated,
        "comparisons": [comparison.to_dict() for comparison in found],
    }

    def show() -> None:
        table = Table("metric", "first", "second", "difference", "95 % interval", "p", "p (Holm)")
        for c in found:
            interval = f"{c.interval[0]:+.4f} … {c.interval[1]:+.4f}"
            told = f"{c.first:.4f}", f"{c.second:.4f}", f"{c.difference:+.4f}", interval
            table.add_row(c.metric, *told, f"{c.p_permutation:.2g}", f"{c.p_holm:.2g}")
        out.print(table)
        out.print(f"first: {first}\nsecond: {second}", markup=False, soft_wrap=True)
        out.print(f"test, mask {mask}, {ours.users_evaluated:,} users; p of the paired permutation test", markup=False)

    emit(result, as_json, show)
