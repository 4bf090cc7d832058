"""Update a trained model with new rows: the model that an update begins with, and the rows that it adds."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from dgcf.config import refuse_unknown
from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.data.columns import ReadOptions
from dgcf.data.event_export import export_options, is_event_export
from dgcf.data.forget import LIST, entries_of, without_old_rows
from dgcf.data.interactions import RatingFilter, collect
from dgcf.data.pairs import Pairs
from dgcf.data.paths import is_read
from dgcf.data.prepare import Preparation, prepare_rows
from dgcf.data.splits import Split
from dgcf.data.times import DAY_FIRST, MONTH_FIRST
from dgcf.data.update import HELD_OUT
from dgcf.data.update import update as update_dataset
from dgcf.data.weights import COUNTED, Weighting
from dgcf.errors import ArtifactError, ConfigError, DataError
from dgcf.evaluate.validation import validator
from dgcf.models.base import GraphModel
from dgcf.ranking.user_rules import LinearLayers, embeddings_rule
from dgcf.recommend.capture import dataset_of, from_trained, parent_entry
from dgcf.recommend.container import hash_of
from dgcf.recommend.snapshot import Snapshot
from dgcf.text import Notify
from dgcf.train import Observer, Recipe, Run, SeedJob, build, pick_device, resolve, train_together
from dgcf.train.api import Prepared, is_forecast
from dgcf.train.blend import BlendConfig, Blender
from dgcf.train.presets import Size, settings_of_update
from dgcf.train.warm_start import GATES, LAYER0, Start, Weights, warm_start

_AT_LEAST = re.compile(r"rating >= (\S+)")
_ONE_OF = re.compile(r"rating in \{(.+)\}")


@dataclass(frozen=True)
class Parent:
    """The model that is updated: its dataset, recipe, seed and weights (None for a solved model).

    ``original``: the settings of the last training from scratch. ``blend``: the settings of the item weights that were
    chosen; None if they are not known. ``about`` identifies it in the description of the new run.
    """

    dataset: Dataset
    recipe: Recipe
    seed: int
    weights: Weights | None
    original: Mapping[str, Any]
    blend: Mapping[str, Any] | None
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_run(cls, run: Run, data: Any = None, notify: Notify | None = None) -> Parent:
        """Return the model of a finished run."""
        if (stopped := run.stopped) is not None:
            raise ArtifactError(stopped)
        dataset = replace(_with_times(run, data, notify), read_options=run.about["dataset"].get("read", {}))
        run.refuse_changes(dataset)
        tensors, blend = run.best().part("model"), {}
        if run.recipe.blend.parts:
            blending = run.blending(dataset.n_items)
            assert blending is not None
            blend = blending.settings()
        weights = None if run.recipe.entry.solved else Weights(tensors, dataset.train, str(run.path))
        about = {
            "path": str(run.path.resolve()),
            "weights": hash_of(run.path / "best.safetensors"),
            "fingerprint": dataset.fingerprint,
        }
        original = run.about.get("update", {}).get("original") or run.recipe.settings()
        return cls(dataset, run.recipe, run.seed, weights, original, blend, about)

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot, path: Path | None = None, dataset: Dataset | None = None) -> Parent:
        """Return the model of an artefact, which must have its layers unless it is solved at once.

        ``dataset``: the one that it was trained on, with the times that the artefact does not hold.
        """
        about = snapshot.about
        settings = dict(about.get("settings", {}))
        recipe = resolve(snapshot.model, preset=about.get("preset", "plain"), settings=settings)
        name = "the recommender" if path is None else str(path)
        source = about.get("dataset", {"name": "data", "fingerprint": ""})
        if dataset is None:
            held_out = Pairs.from_keys(snapshot.seen.without(snapshot.train).keys(), snapshot.n_users, snapshot.n_items)
            empty = Pairs.empty(snapshot.n_users, snapshot.n_items)
            record = {LIST: about[LIST]} if LIST in about else {}
            dataset = Dataset(
                source["name"], snapshot.users, snapshot.items, snapshot.train, held_out, empty, record=record
            )
        weights = None if recipe.entry.solved else _weights_of(snapshot, name)
        identity = {"path": None if path is None else str(path.resolve()), "fingerprint": source["fingerprint"]}
        identity["weights"] = None if path is None else hash_of(path)
        return cls(dataset, recipe, int(about.get("seed", 0)), weights, settings, about.get("blend"), identity)

    def recipe_of_update(
        self, dataset: Dataset, epochs: int, patience: int, settings: Mapping[str, Any] | None = None
    ) -> Recipe:
        """Return the recipe of an update: the model's own, with at most so many epochs, and each of them validated.

        The first epoch of the run is the start, which takes no step. The choice of item weights is kept, unless the
        updated ``dataset`` lacks the times that a part needs. A default training continues with other rates, and draws
        recent pairs more often.
        """
        blend = dict(self.blend or {})
        if blend and dataset.train.time is None:
            blend = _without_times(blend)
        own = self.recipe.settings()
        if not self.recipe.entry.solved:
            own |= {"epochs": epochs + 1, "evaluate_every": 1, "min_epochs": 0, "patience": patience}
            sizes, ordered = (Size.of(self.dataset), Size.of(dataset)), dataset.train.place is not None
            own |= settings_of_update(self.recipe.preset, own, *sizes, ordered=ordered)
        return resolve(self.recipe.name, preset=self.recipe.preset, settings={**own, **blend, **(settings or {})})


def _without_times(blend: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a composed ranking without parts that need times; the others are weighted anew."""
    parts = BlendConfig(**blend).parts
    kept = [str(part) for part in parts if not part.timed]
    if len(kept) == len(parts):
        return dict(blend)
    return {"blend": "+".join(kept) or "none", "blend_weights": "auto"}


EPOCHS, PATIENCE = 2, 1
"""The most epochs of an update, and how many of them may bring no better value."""


@dataclass(frozen=True)
class How:
    """The options of an update.

    ``epochs``: at most so many, of which validation chooses one; without a validation part exactly so many. None is
    ``EPOCHS``. ``window``: drop pairs that are so many seconds older than the newest. ``held_out``: the share of new
    pairs for validation. ``settings`` replace those of the model; ``scratch``: also train anew, to compare.
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

    def most_epochs(self, parent: Parent) -> int:
        """Return the most epochs of an update; a solved model has none."""
        if parent.weights is None:
            return 0
        return EPOCHS if self.epochs is None else self.epochs


@dataclass(frozen=True)
class FoldedIn:
    """The model before its training continues, and what that shares with it; ``before`` are its validation metrics.

    ``start`` and ``prepared`` are None for a solved model.
    """

    start: Start | None
    prepared: Prepared | None
    before: Mapping[str, float]

    def about(self, epochs: int, best_epoch: int) -> dict[str, Any]:
        """Return how new rows were filled, the epochs of training without the start, and the metrics before."""
        start = self.start
        return {
            "new_rows": None if start is None else start.new_rows,
            "candidates": {} if start is None else {name: dict(value) for name, value in start.candidates.items()},
            "epochs": 0 if start is None else epochs - 1,
            "best_epoch": 0 if start is None else best_epoch - 1,
            "before": dict(self.before),
        }


def fold_in(parent: Parent, dataset: Dataset, recipe: Recipe, device: torch.device) -> FoldedIn:
    """Return the model of ``parent`` on the updated dataset: known users and items as they were, new ones folded in."""
    if parent.weights is None:
        return FoldedIn(None, None, {})
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    model, propagation = build(dataset, recipe, seed=parent.seed, device=device)
    assert isinstance(model, GraphModel)
    start = warm_start(model, propagation, parent.weights, dataset.train, recipe.train, validate)
    if not recipe.blend.parts:
        return FoldedIn(start, Prepared(model, propagation), dict(start.validation))
    forecast = is_forecast(dataset)
    blender = Blender(recipe.blend, dataset.train, recipe.train.metric, validate, device, forecast=forecast)
    before = blender.fit(start.embeddings).validation
    return FoldedIn(start, Prepared(model, propagation, blender), dict(before))


def updated(
    parent: Parent, rows: Dataset, how: How, *, device: str, observer: Observer | None = None
) -> tuple[Snapshot, Dataset] | None:
    """Return the updated model and its dataset, in memory; None if nothing changes."""
    require_order(parent)
    dataset, counts = update_dataset(parent.dataset, rows, window=how.window, held_out=how.held_out, seed=parent.seed)
    if not counts.new_pairs and not counts.expired_pairs:
        return None
    recipe = parent.recipe_of_update(dataset, how.most_epochs(parent), PATIENCE, how.settings)
    place = pick_device(device)
    folded = fold_in(parent, dataset, recipe, place)
    start = None if folded.start is None else folded.start.checkpoint(recipe.train)
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    job = SeedJob(parent.seed, observer, start=start)
    (trained,) = train_together(dataset, recipe, [job], device=device, validate=validate, prepared=folded.prepared)
    if trained.interrupted:
        raise KeyboardInterrupt
    after = dict(trained.validation or validate(trained.ranking)) if validate else {}
    about = {"parent": parent_entry(parent.about), **counts.to_dict()}
    about |= {**folded.about(trained.epochs, trained.best_epoch), "after": after}
    snapshot = from_trained(trained, dataset, parent.seed, after)
    return replace(snapshot, about={**snapshot.about, "update": about}), dataset


def updated_snapshot(
    snapshot: Snapshot,
    dataset: Dataset | None,
    rows: Any,
    how: How,
    reading: Mapping[str, Any],
    *,
    device: str,
    observer: Observer | None = None,
) -> tuple[Snapshot, Dataset] | None:
    """Return a trained model with ``rows`` added, and its dataset; None if nothing changes.

    ``dataset``: the one that it was trained on, if it is known; ``reading``: fields of ``ReadOptions``.
    """
    refuse_unknown(reading, [field.name for field in fields(ReadOptions)], "update")
    parent = Parent.of_snapshot(snapshot, dataset=dataset)
    new = read_new_rows(rows, parent, ReadOptions(**reading))
    if note := note_if_unknown(new, parent):
        warnings.warn(note, stacklevel=4)
    return updated(parent, new, how, device=device, observer=observer)


def _with_times(run: Run, data: Any, notify: Notify | None) -> Dataset:
    """Return the dataset of a run; if its rows have to be read again, with the times of the pairs if they have some."""
    if is_read(run.source if data is None else data):
        with contextlib.suppress(DataError):  # no times, or not of every row
            return dataset_of(run, data, notify, Preparation(keep_times=True))
    return dataset_of(run, data, notify)


def _weights_of(snapshot: Snapshot, name: str) -> Weights:
    """Return the trained weights that the layers of a snapshot hold."""
    rule = embeddings_rule(snapshot.ranking.user_rule)
    layers = snapshot.layers if isinstance(rule, LinearLayers) else None
    if layers is None:
        raise ArtifactError(
            f"{name} holds the embeddings of {snapshot.model}, but not the weights that they are computed from; give "
            "the run folder that it was trained in."
        )
    tensors = {LAYER0: torch.from_numpy(layers.embeddings[0].copy())}
    if layers.gate_logits is not None:
        tensors[GATES] = torch.from_numpy(layers.gate_logits.copy())
    return Weights(tensors, snapshot.train, name)


def read_new_rows(source: Any, parent: Parent, read: ReadOptions | None = None) -> Dataset:
    """Return the new rows as a dataset; they are read as the parent's data was, unless ``read`` says otherwise.

    Rows of forgotten users that are not known to be later than the forgetting are left out.
    """
    return without_old_rows(_read_new_rows(source, parent, read), entries_of(parent.dataset.record))


def _read_new_rows(source: Any, parent: Parent, read: ReadOptions | None) -> Dataset:
    if isinstance(source, Dataset):
        return source
    if isinstance(source, (str, Path)) and (Path(source) / "dataset.json").is_file():
        return load_data(source)
    record = parent.dataset.record
    if is_event_export(source):  # its columns are its own, whatever those of the parent's data are called
        exported = export_options(weighted=record.get("weights", {}).get("from", COUNTED) != COUNTED)
        options = replace(exported, **{} if read is None else read.given)
    else:
        options = read_options(parent, read)
    ratings = RatingFilter() if options.rating_col == "none" else rating_filter(record)
    how = Preparation(ratings, split=Split("none"), weighting=Weighting.of_record(record.get("weights", {})))
    rows = collect([source], options, ratings, time="used", count=how.weighting.count)
    if rows.timestamp is not None:
        how = replace(how, keep_times=True)
    elif parent.dataset.order is not None:
        rows = collect([source], options, ratings, time="kept", count=how.weighting.count)
        how = replace(how, keep_order=True)
    return prepare_rows(rows, how, name="new rows")


def read_options(parent: Parent, read: ReadOptions | None = None) -> ReadOptions:
    """Return how to read new rows: as the parent's data was read, with the options that are given instead."""
    record = parent.dataset.record
    options = ReadOptions.of_record({**record.get("options", {}), **parent.dataset.read_options})
    recorded = [*record.get("read", []), {}][0]
    if options.day_first is None and recorded.get("times") in (DAY_FIRST, MONTH_FIRST):
        options = replace(options, day_first=recorded["times"] == DAY_FIRST)
    if recorded.get("header") is not False and recorded.get("format") in ("csv", "parquet", "table", "inter"):
        columns = {f"{role}_col": name for role, name in recorded.get("columns", {}).items() if role != "split"}
        if recorded["format"] == "inter":  # recorded with their types, as in user_id:token
            columns = {role: str(name).partition(":")[0] for role, name in columns.items()}
        names = ReadOptions().__dict__.keys() & columns.keys()
        options = replace(options, **{name: columns[name] for name in names})
    return replace(options, **{} if read is None else read.given)


def rating_filter(record: Mapping[str, Any]) -> RatingFilter:
    """Return the filter of ratings that the record of a dataset describes."""
    for step in record.get("filters", []):
        name = str(step.get("filter", ""))
        if match := _AT_LEAST.fullmatch(name):
            return RatingFilter(float(match[1]))
        if match := _ONE_OF.fullmatch(name):
            return RatingFilter(values=tuple(float(value) for value in match[1].split(",")))
    return RatingFilter()


def note_if_unknown(rows: Dataset, parent: Parent) -> str | None:
    """Return a remark if no user or no item of the rows is known, as of a file of something else."""
    for what, new, known in (("user", rows.users, parent.dataset.users), ("item", rows.items, parent.dataset.items)):
        if len(new) and not any(text in known for text in new.texts):
            return (
                f"none of the {len(new):,} {what}s of the new rows is known, such as {new.texts[0]!r} (a known one is "
                f"{known.texts[0]!r}); check that the file and its columns are the right ones."
            )
    return None


def require_order(parent: Parent) -> None:
    """Raise ``DataError`` for a model that was trained by the order of pairs, if that order is not known.

    That an update favours recent pairs does not count: without an order, the next one does not.
    """
    size, own = Size.of(parent.dataset), parent.recipe.settings()
    own |= settings_of_update(parent.recipe.preset, own, size, size, ordered=False)
    if own.get("recency") and parent.dataset.order is None:
        raise DataError(
            "the setting recency needs the order of all pairs, which a saved recommender does not hold; give the run "
            "folder that it was trained in."
        )
