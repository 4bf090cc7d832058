"""``dgcf evaluate``: measure the best epoch of a run, with its uncertainty, and look at its gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dgcf.cli.inputs import CutOffs, Device, Mask, RunData, RunFolder
from dgcf.cli.terminal import AsJson, emit, notify, out, progress
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
    split: Annotated[str, typer.Option(help="validation or test.")] = "test",
    groups: Annotated[int, typer.Option(min=0, help="Also by so many groups of users, fewest interactions first.")] = 0,
    gates: Annotated[bool, typer.Option("--gates", help="Also how the learned gates go with the degrees.")] = False,
    data: RunData = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure a trained run: all items ranked, exactly, with standard errors and bootstrap intervals.

    Example: `dgcf evaluate runs/deoscirec-ml-100k-dgcf-seed0 --mask train+validation --k 10,20`
    """
    from dgcf.train import Run  # here and below: torch takes seconds to import and other verbs do not need it

    opened = Run.open(run)
    with progress(f"evaluating {run}"):
        evaluation, correlation = measure(opened, data, split, mask, cut_offs(k), device, gates)
    result = {**about(opened), **evaluation.to_dict()}
    if groups:
        result["groups"] = [group.to_dict() for group in evaluation.groups(n_groups=groups)]
    if correlation is not None:
        result["gate_correlation"] = correlation
    emit(result, as_json, lambda: _draw(opened, evaluation, result))


def cut_offs(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--k got {text!r}, expected whole numbers with commas between them, such as 10,20."
        ) from None


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


def _draw(run: Run, evaluation: Evaluation, result: dict[str, Any]) -> None:
    table = Table("metric", "mean", "standard error", "95 % interval", title=f"{run.about['model']} in {run.path}")
    for name, mean in evaluation.means.items():
        if name in evaluation.values:
            low, high = evaluation.intervals[name]
            table.add_row(name, f"{mean:.4f}", f"{evaluation.standard_errors[name]:.4f}", f"{low:.4f} – {high:.4f}")
        else:
            table.add_row(name, f"{mean:.4f}", "", "")
    out.print(table)
    for group in result.get("groups", []):
        told = ", ".join(
            f"{name} {group[name]:.4f}" for name in evaluation.values if name.startswith(("recall", "ndcg"))
        )
        out.print(f"{group['at_least']}–{group['at_most']} interactions: {group['users']:,} users, {told}")
    if "gate_correlation" in result:
        for number, layer in enumerate(result["gate_correlation"]["layers"], start=1):
            shown = ", ".join(f"{side} {value:.3f}" for side, value in layer.items() if value is not None)
            out.print(f"correlation of 1/α and log degree, layer {number}: {shown}")
    out.print(f"{evaluation.split}, mask {evaluation.mask}, {evaluation.users_evaluated:,} users evaluated")
