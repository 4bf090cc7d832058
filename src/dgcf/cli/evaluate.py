"""``dgcf evaluate``: measure the best epoch of a run, with standard errors and intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgcf.cli.inputs import CutOffs, Device, Mask, RunData, RunFolder
from dgcf.cli.terminal import AsJson, emit, notify, progress
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.evaluate.evaluation import Evaluation
    from dgcf.train import Run


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
    from dgcf.train import Run

    opened = Run.open(run)
    with progress(f"evaluating {run}"):
        evaluation, correlation = measure(opened, data, split, mask, cut_offs(k), device, gates)
    result = {**about(opened), **evaluation.to_dict()}
    if groups:
        result["groups"] = [group.to_dict() for group in evaluation.groups(n_groups=groups)]
    if correlation is not None:
        result["gate_correlation"] = correlation
    emit(result, as_json, lambda: draw(evaluation, result))


def cut_offs(text: str) -> list[int]:
    """Return the cut-offs of ``--k``, such as ``10,20``."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--k got {text!r}, expected whole numbers separated by commas, such as 10,20.") from None


def about(run: Run) -> dict[str, Any]:
    """Which run a number belongs to."""
    return {
        "model": run.about["model"],
        "dataset": run.about["dataset"]["name"],
        "preset": run.about["preset"],
        "settings": run.recipe.settings(),
        "seed": run.seed,
        "best_epoch": int(run.best().about["epoch"]),
        "run": str(run.path),
    }


def measure(
    run: Run, data: str | None, split: str, mask: str, ks: list[int], device: str, gates: bool = False
) -> tuple[Evaluation, dict[str, Any] | None]:
    """The evaluation of a run's best epoch, and what its gates show if that is asked."""
    from dgcf.data import load as load_data
    from dgcf.evaluate.evaluator import Evaluator
    from dgcf.models import gate_correlation
    from dgcf.train import load

    dataset = load_data(data or run.about["dataset"]["source"], notify=notify)
    evaluator = Evaluator(dataset, split=split, mask=mask, ks=ks)
    model, _, found = load(run, dataset, device=device)
    correlation = dict(gate_correlation(model, dataset.train)) if gates else None
    return evaluator.evaluate(found), correlation
