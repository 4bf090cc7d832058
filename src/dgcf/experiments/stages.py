"""Train on all pairs in run folders: in two stages if validation is to choose the epochs, else in one.

The first stage is a run of its own in the folder ``validated`` of the run. The last stage begins when it is finished,
so that a kill at any time leaves a folder that ``resume`` continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dgcf.data import Dataset
from dgcf.experiments.jobs import discard_unstarted
from dgcf.experiments.train import (
    Options,
    evaluator_for_test,
    refuse_changes,
    resume_run,
    run_folder,
    start_runs,
    train_runs,
)
from dgcf.train import Run, pick_device
from dgcf.train.plan import Plan, chosen_settings
from dgcf.train.run.folder import ABOUT, FIRST_STAGE
from dgcf.train.run.tracking import refuse_unknown_trackers


def start(
    dataset: Dataset, plan: Plan, seeds: Sequence[int], folder: Path | None, source: str, options: Options
) -> list[dict[str, Any]]:
    """Train a new run for each seed by ``plan``, and return their summaries."""
    if (epochs := plan.epochs_unwatched(dataset)) is not None:
        options.notify(
            f"note: {dataset.name} has no validation split and no epochs are set, so training takes {epochs} epochs; "
            "choose another number with --set epochs=N."
        )
    first = plan.first_stage(dataset)
    if first is None:
        used, recipe = plan.last_stage(dataset)
        more = {} if plan.on == "train" else {"on": plan.on, "epochs_from": _epochs_from(plan)}
        return start_runs(used, recipe, seeds, folder, source, options, more)
    device = str(pick_device(options.device))
    refuse_unknown_trackers(options.track)
    evaluator_for_test(dataset, first.train.metric, options.mask)
    paths = {seed: run_folder(folder, dataset, first, seed, len(seeds)) for seed in seeds}
    for path in paths.values():
        Run.refuse_taken(path)
    then = {"then": {"settings": dict(plan.settings)}}
    summaries = []
    for seed, path in paths.items():
        run = Run.create(path / FIRST_STAGE, dataset, first, seed=seed, device=device, source=source, more=then)
        with discard_unstarted([run]):
            summaries.append(_finish(path, run, dataset, options))
    return summaries


def resume(
    path: Path,
    run: Run,
    dataset: Dataset,
    options: Options,
    *,
    model: str | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Resume a training in a folder at the stage where it stopped, and return its summary.

    ``run`` is the ``first_run`` of the folder. Other settings than its own are refused.
    """
    given: dict[str, Any] = {"model": model, "preset": preset, "settings": settings, "seed": seed}
    if not (path / FIRST_STAGE).is_dir():
        return resume_run(run, run.dataset_of(dataset), options, **given)
    first = run if run.path == path / FIRST_STAGE else Run.open(path / FIRST_STAGE)
    refuse_changes(first, dataset, **given)
    return _finish(path, first, dataset, options)


def first_run(path: Path) -> Run:
    """Return the run in a folder; of one whose last stage has not begun, that of the first stage."""
    staged = (path / FIRST_STAGE / ABOUT).is_file() and not (path / ABOUT).exists()
    return Run.open(path / FIRST_STAGE if staged else path)


def _finish(path: Path, first: Run, dataset: Dataset, options: Options) -> dict[str, Any]:
    """Train what is left of both stages, and return the summary of the last one with that of the first."""
    watched = train_runs([first], dataset, first.recipe, options, resume_at=path)[0]
    plan = Plan(
        first.about["model"], first.about["preset"], first.about.get("then", {}).get("settings", {}), "everything"
    )
    chosen = chosen_settings(int(first.best().about["epoch"]), first.blending(dataset.n_items))
    used, recipe = plan.last_stage(dataset, chosen)
    if (path / ABOUT).exists():
        last = Run.open(path)
        last.refuse_changes(used, recipe)
    else:
        device, source = str(pick_device(options.device)), str(first.about["dataset"]["source"])
        more = {"on": plan.on, "epochs_from": "validation"}
        last = Run.create(path, used, recipe, seed=first.seed, device=device, source=source, more=more, inside=True)
    options.notify(f"trained on all pairs for the {recipe.train.epochs} epochs that validation chose.")
    return {**train_runs([last], used, recipe, options)[0], "validated": watched}


def _epochs_from(plan: Plan) -> str:
    return "settings" if "epochs" in plan.settings else "default"
