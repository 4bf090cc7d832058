"""Update a run or a saved recommender with new rows, in a new run folder that holds its own dataset.

The new folder appears as a whole, with the start of the training in it: the old weights, and new users and items folded
in. Training then continues in it as in any run, so that it can be interrupted and resumed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgcf.data import Dataset
from dgcf.data.columns import ReadOptions
from dgcf.data.event_export import is_empty_export
from dgcf.data.update import NO_CHANGE, Counts
from dgcf.data.update import update as update_dataset
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.experiments.jobs import numbered
from dgcf.experiments.train import Options, train_runs
from dgcf.files import atomic_folder
from dgcf.recommend import artifact
from dgcf.recommend.update import (
    PATIENCE,
    FoldedIn,
    How,
    Parent,
    fold_in,
    note_if_unknown,
    read_new_rows,
    require_order,
)
from dgcf.train import Recipe, Run, pick_device, resolve, train
from dgcf.train.run.folder import ABOUT, DATASET, FIRST_STAGE

_OF_UPDATE = re.compile(r"-update(-[0-9]+)?$")


def open_parent(source: Path, data: Any = None, options: Options | None = None) -> Parent:
    """Return the model of a run folder or of a saved recommender."""
    notify = None if options is None else options.notify
    if (source / ABOUT).exists() or (source / FIRST_STAGE).is_dir() or not source.exists():
        return Parent.of_run(Run.open(source), data, notify)
    if data is not None:
        raise ConfigError("--data is for a run folder; a saved recommender holds its own pairs, so leave it out.")
    return Parent.of_snapshot(artifact.load(source), source)


def update(
    source: Path,
    rows: Any,
    target: Path | None,
    options: Options,
    how: How,
    *,
    read: ReadOptions | None = None,
    data: Any = None,
) -> dict[str, Any]:
    """Update the model at ``source`` with ``rows`` in a new run folder, and return its summary.

    If nothing changes, because all pairs are known and none expires, or there are no events, no folder is written.
    """
    started = time.perf_counter()
    parent = open_parent(source, data, options)
    require_order(parent)
    path = target or _free_folder(source)
    Run.refuse_taken(path)
    if how.window is None and is_empty_export(rows):
        return {"updated": False, "run": str(source), "rows": {}, **NO_CHANGE.to_dict()}
    new = read_new_rows(rows, parent, read)
    dataset, counts = update_dataset(parent.dataset, new, window=how.window, held_out=how.held_out, seed=parent.seed)
    if note := note_if_unknown(new, parent):
        options.notify(f"warning: {note}")
    about = {"rows": dict(new.record), **counts.to_dict()}
    if not counts.new_pairs and not counts.expired_pairs:
        return {"updated": False, "run": str(source), **about}
    recipe = parent.recipe_of_update(dataset, how.most_epochs(parent), PATIENCE, how.settings)
    begun = begin(parent, dataset, recipe, path, counts, options)
    summary = train_runs([begun.run], dataset, recipe, options, prepared=begun.folded.prepared)[0]
    answer = {**summary, "updated": True, **about, "metric": recipe.train.metric, "update": begun.about(summary)}
    answer["update"]["seconds"] = time.perf_counter() - started
    if how.scratch:
        answer["scratch"] = train_anew(parent, dataset, recipe, options.device)
    return answer


@dataclass(frozen=True)
class Begun:
    """A new run folder with the start of its training."""

    run: Run
    folded: FoldedIn

    def about(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the update did: the start, the epochs of training, and the metrics before and after."""
        return {
            "parent": self.run.about["update"]["parent"],
            **self.folded.about(summary["epochs"], summary["best_epoch"]),
            "after": summary["validation"],
        }


def begin(parent: Parent, dataset: Dataset, recipe: Recipe, path: Path, counts: Counts, options: Options) -> Begun:
    """Create the run folder of an update, with the folded-in model as the state to continue from."""
    began, device = time.perf_counter(), pick_device(options.device)
    folded = fold_in(parent, dataset, recipe, device)
    about = {"parent": dict(parent.about), "original": dict(parent.original), **counts.to_dict()}
    about["before"] = dict(folded.before)
    source = str(path.resolve() / DATASET)
    with atomic_folder(path) as beside:
        (beside / DATASET).mkdir()
        dataset.write_files(beside / DATASET)
        run = Run.create(
            beside,
            dataset,
            recipe,
            seed=parent.seed,
            device=str(device),
            source=source,
            more={"update": about},
            inside=True,
        )
        if folded.start is not None:
            run.record({"epoch": 1, **folded.start.validation}, time.perf_counter() - began, 0.0)
            run.save(folded.start.checkpoint(recipe.train))
    return Begun(Run.open(path), folded)


def train_anew(parent: Parent, dataset: Dataset, recipe: Recipe, device: str) -> dict[str, Any]:
    """Train on the same pairs from scratch, as the model was trained first; return its validation and its cost."""
    started = time.perf_counter()
    anew = resolve(recipe.name, preset=recipe.preset, settings=parent.original)
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    trained = train(dataset, anew, seed=parent.seed, device=device, validate=validate)
    if trained.interrupted:
        raise KeyboardInterrupt
    validation = dict(trained.validation or validate(trained.ranking)) if validate else {}
    return {"validation": validation, "epochs": trained.epochs, "seconds": time.perf_counter() - started}


def _free_folder(source: Path) -> Path:
    """Return a free folder in runs/ that is named after the parent: ``shop-update``, then ``shop-update-2``."""
    name = _OF_UPDATE.sub("", source.resolve().name.removesuffix(".dgcf"))
    return next(path for path in numbered(Path("runs") / f"{name}-update") if not path.exists())
