"""``dgcf evaluate``: measure the best epoch of a run, with standard errors and intervals."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from dgcf.cli.inputs import CutOffs, Device, Mask, RunData, RunFolder, cut_offs, read_dataset
from dgcf.cli.terminal import AsJson, emit, notify, progress


def command(
    run: RunFolder,
    mask: Mask = "train",
    k: CutOffs = "20",
    split: Annotated[str, Option(help="Split to measure on: validation or test.")] = "test",
    groups: Annotated[int, Option(min=0, help="Also measure this many groups of users, by activity.")] = 0,
    gates: Annotated[bool, Option("--gates", help="Also correlate the gates with the node degrees.")] = False,
    data: RunData = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure a trained run by exact rankings of all items, with standard errors and bootstrap intervals.

    Example: `dgcf evaluate runs/deoscirec-ml-100k-dgcf-seed0 --mask train+validation --k 10,20`
    """
    from dgcf.cli.views.evaluate import draw  # here, because torch takes seconds to import
    from dgcf.experiments.measure import evaluate_run
    from dgcf.train import Run
    from dgcf.train.run.moved import explain_moved

    opened, ks = Run.open(run), cut_offs(k)
    if (stopped := opened.stopped) is not None:
        notify(f"note: {stopped}")
    with explain_moved(opened, data):
        dataset = read_dataset(opened.source_as_read(data))
    with progress(f"evaluating {run}"):
        evaluation, answer = evaluate_run(opened, dataset, split, mask, ks, groups=groups, gates=gates, device=device)
    emit(answer, as_json, lambda: draw(evaluation, answer))
