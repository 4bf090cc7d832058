"""``dgcf evaluate``: measure the best epoch of a run, with standard errors and intervals."""

from __future__ import annotations

from typing import Annotated

import typer

from dgcf.cli.inputs import CutOffs, Device, Mask, RunData, RunFolder, cut_offs
from dgcf.cli.terminal import AsJson, emit, notify, progress


def register(root: typer.Typer) -> None:
    root.command("evaluate")(evaluate_run)


def evaluate_run(
    run: RunFolder,
    mask: Mask = "train",
    k: CutOffs = "20",
    split: Annotated[str, typer.Option(help="Split to measure on: validation or test.")] = "test",
    groups: Annotated[int, typer.Option(min=0, help="Also measure this many groups of users, by activity.")] = 0,
    gates: Annotated[bool, typer.Option("--gates", help="Also correlate the gates with the node degrees.")] = False,
    data: RunData = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure a trained run by exact rankings of all items, with standard errors and bootstrap intervals.

    Example: `dgcf evaluate runs/deoscirec-ml-100k-dgcf-seed0 --mask train+validation --k 10,20`
    """
    from dgcf.cli.views.evaluate import draw  # here, because torch takes seconds to import
    from dgcf.experiments.evaluate import evaluate_run as evaluate
    from dgcf.train import Run

    opened = Run.open(run)
    with progress(f"evaluating {run}"):
        evaluation, answer = evaluate(
            opened,
            data=data,
            split=split,
            mask=mask,
            ks=cut_offs(k),
            groups=groups,
            gates=gates,
            device=device,
            notify=notify,
        )
    emit(answer, as_json, lambda: draw(evaluation, answer))
