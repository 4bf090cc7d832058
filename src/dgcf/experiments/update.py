"""Update a run or a saved recommender with new rows, in a new run folder that holds its own dataset.

The new folder appears as a whole, with the start of the training in it: the old weights, and new users and items folded
in. Training then continues in it as in any run, so that it can be interrupted and resumed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgcf.data import Dataset
from dgcf.data.columns import ReadOptions
from dgcf.data.update import HELD_OUT, Counts
from dgcf.data.update import update as update_dataset
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.experiments.jobs import numbered
from dgcf.experiments.train import Options, train_runs
from dgcf.files import atomic_folder
from dgcf.models.base import GraphModel
from dgcf.recommend import artifact
from dgcf.recommend.update import Parent, note_if_unknown, read_new_rows, require_order
from dgcf.train import Recipe, Run, build, pick_device, resolve, train
from dgcf.train.blend import Blender
from dgcf.train.run.folder import ABOUT, DATASET, FIRST_STAGE
from dgcf.train.warm_start import Start, warm_start

EPOCHS, PATIENCE = 5, 1
"""The most epochs of an update, and how many of them may bring no better value."""


@dataclass(frozen=True)
class How:
    """The options of an update.

    ``epochs``: at most so many, each validated; None is ``EPOCHS``, or 0 without a validation part. ``window``: drop
    pairs that are so many seconds older than the newest. ``held_out``: the share of new pairs for validation.
    ``settings`` replace those of the model; ``scratch``: also train anew, to compare.
    """

    epochs: int | None = None
    window: float | None = None
    held_out: float = HELD_OUT
    settings: Mapping[str, Any] = field(default_factory=dict)
    scratch: bool = False

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 0:
            raise ConfigError(f"--epochs is {self.epochs}, expected 0 (only fold in) or more.")
        if loop := {"epochs", "patience", "evaluate_every", "min_epochs"} & self.settings.keys():
            raise ConfigError(f"an update validates every epoch, so {min(loop)} cannot be set; use --epochs.")


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

    If nothing changes, because all pairs are known and none expires, no folder is written.
    """
    started = time.perf_counter()
    parent = open_parent(source, data, options)
    require_order(parent)
    path = target or next(path for path in numbered(Path("runs") / f"{source.stem}-update") if not path.exists())
    Run.refuse_taken(path)
    new = read_new_rows(rows, parent, read)
    if note := note_if_unknown(new, parent):
        options.notify(f"warning: {note}")
    dataset, counts = update_dataset(parent.dataset, new, window=how.window, held_out=how.held_out, seed=parent.seed)
    if not counts.new_pairs and not counts.expired_pairs:
        return {"updated": False, "run": str(source), **counts.to_dict()}
    recipe = parent.recipe_of_update(_epochs(how, counts, parent, options), PATIENCE, how.settings)
    begun = begin(parent, dataset, recipe, path, counts, options)
    summary = train_runs([begun.run], dataset, recipe, options, blender=begun.blender)[0]
    answer = {**summary, "updated": True, **counts.to_dict(), "update": begun.about(summary)}
    answer["update"]["seconds"] = time.perf_counter() - started
    if how.scratch:
        answer["scratch"] = train_anew(parent, dataset, recipe, options.device)
    return answer


@dataclass(frozen=True)
class Begun:
    """A new run folder with the start of its training; ``before`` are the validation metrics of the start."""

    run: Run
    start: Start | None
    blender: Blender | None
    before: Mapping[str, float]

    def about(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the update did: the start, the epochs of training, and the metrics before and after."""
        start = self.start
        return {
            "parent": self.run.about["update"]["parent"],
            "new_rows": None if start is None else start.new_rows,
            "candidates": {} if start is None else {name: dict(value) for name, value in start.candidates.items()},
            "epochs": 0 if start is None else summary["epochs"] - 1,
            "best_epoch": 0 if start is None else summary["best_epoch"] - 1,
            "before": dict(self.before),
            "after": summary["validation"],
        }


def begin(parent: Parent, dataset: Dataset, recipe: Recipe, path: Path, counts: Counts, options: Options) -> Begun:
    """Create the run folder of an update, with the folded-in model as the state to continue from."""
    began, device = time.perf_counter(), pick_device(options.device)
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    start, blender, before = None, None, dict[str, float]()
    if parent.weights is not None:
        model, propagation = build(dataset, recipe, seed=parent.seed, device=device)
        assert isinstance(model, GraphModel)
        start = warm_start(model, propagation, parent.weights, dataset.train, recipe.train, validate)
        before = dict(start.validation)
        if recipe.blend.parts:
            blender = Blender(recipe.blend, dataset.train, recipe.train.metric, validate, device)
            before = dict(blender.fit(start.embeddings).validation)
    about = {"parent": dict(parent.about), "original": dict(parent.original), **counts.to_dict(), "before": before}
    source = str(path.resolve() / DATASET)
    with atomic_folder(path) as beside:
        dataset.save(beside / DATASET)
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
        if start is not None:
            run.record({"epoch": 1, **start.validation}, time.perf_counter() - began, 0.0)
            run.save(start.checkpoint(recipe.train))
    return Begun(Run.open(path), start, blender, before)


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


def _epochs(how: How, counts: Counts, parent: Parent, options: Options) -> int:
    """Return the most epochs of an update."""
    if how.epochs is not None or parent.weights is None:
        return how.epochs or 0
    if counts.held_out:
        return EPOCHS
    options.notify(
        "note: no new pair is held out, so nothing decides how long to train: new users and items are only folded in; "
        "give --epochs to train."
    )
    return 0
