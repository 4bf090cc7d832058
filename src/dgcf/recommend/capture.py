"""Train a model, and turn a trained model into a snapshot; needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.data.forget import LIST
from dgcf.data.prepare import Preparation
from dgcf.data.splits import time_window
from dgcf.data.update import Counts
from dgcf.evaluate.validation import validator
from dgcf.graph import Propagation
from dgcf.models.base import GraphModel, Model, PropagationStack
from dgcf.ranking.rankings import Ranking, float32_rows
from dgcf.ranking.user_rules import LinearLayers, embeddings_rule
from dgcf.recommend.snapshot import GraphRule, Layers, Snapshot
from dgcf.train import Observer, Recipe, Run, Trained, resolve, train
from dgcf.train import load as load_run
from dgcf.train.blend import Blending
from dgcf.train.plan import Plan, chosen_settings
from dgcf.train.run.folder import BEST
from dgcf.train.run.moved import explain_moved
from dgcf.version import __version__

if TYPE_CHECKING:
    from dgcf.recommend.recommender import Recommender
    from dgcf.text import Notify

COUNTS = tuple(field.name for field in fields(Counts))


def fit_snapshot(
    rec: Recommender, data: Any, *, on: str, titles: Mapping[str, str] | None, observer: Observer | None
) -> Snapshot:
    """Train with the recommender's parameters and return the snapshot."""
    plan = Plan(rec.model, rec.preset, rec.settings, on)  # type: ignore[arg-type]
    # Resolved first, so that a misspelt setting is reported before the data is read.
    recipe = resolve(rec.model, preset=rec.preset, settings=rec.settings)
    dataset = load_data(data, Preparation(keep_order=recipe.train.recency > 0), titles=titles)
    chosen: dict[str, Any] = {}
    if (first := plan.first_stage(dataset)) is not None:
        watched = _trained(rec, dataset, first, observer)[0]
        chosen = chosen_settings(watched.best_epoch, watched.blending)
    dataset, recipe = plan.last_stage(dataset, chosen)
    trained, metrics = _trained(rec, dataset, recipe, observer)
    return from_trained(trained, dataset, rec.seed, metrics)


def _trained(
    rec: Recommender, dataset: Dataset, recipe: Recipe, observer: Observer | None
) -> tuple[Trained, dict[str, float]]:
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    trained = train(dataset, recipe, seed=rec.seed, device=rec.device, validate=validate, observer=observer)
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained, dict(trained.validation or validate(trained.ranking)) if validate else {}


def from_trained(trained: Trained, dataset: Dataset, seed: int, metrics: Mapping[str, Any] | None = None) -> Snapshot:
    """Return the snapshot of the best epoch of a training that has just ended."""
    about = {"seed": seed, "epochs": trained.best_epoch, "metrics": dict(metrics or {}), **_blend(trained.blending)}
    return capture(trained.model, trained.propagation, trained.ranking, dataset, trained.recipe, about)


def from_run(run: Run, data: Any = None, notify: Notify | None = None) -> Snapshot:
    """Return the snapshot of the best epoch of a run folder; ``data`` replaces the dataset that the run names."""
    dataset = dataset_of(run, data, notify)
    model, propagation, ranking = load_run(run, dataset)
    return capture(model, propagation, ranking, dataset, run.recipe, _about_best(run))


def dataset_of(
    run: Run, data: Any = None, notify: Notify | None = None, preparation: Preparation | None = None
) -> Dataset:
    """Return the dataset of a run, as the run uses it; ``data`` replaces the source that the run names."""
    with explain_moved(run, data):
        return run.dataset_of(load_data(run.source_as_read(data), preparation, notify=notify))


def from_finished_run(trained: Trained, run: Run, dataset: Dataset) -> Snapshot:
    """Return the same snapshot as ``from_run``, from the model that has just been trained.

    Weights trained on another device are loaded from the run, so that the CPU computes the same bits.
    """
    model, propagation, ranking = trained.model, trained.propagation, trained.ranking
    if any(tensor.device.type != "cpu" for tensor in model.state_dict().values()):
        model, propagation, ranking = load_run(run, dataset)
    return capture(model, propagation, ranking, dataset, run.recipe, _about_best(run))


def _about_best(run: Run) -> dict[str, Any]:
    epoch = int(run.best().about["epoch"])
    metrics = next((line for line in run.metrics() if line["epoch"] == epoch), {})
    blending = run.blending(run.about["dataset"]["n_items"])
    composed = {} if blending is None else blending.validation  # the line is of the embeddings alone
    about = {"seed": run.seed, "epochs": epoch, "metrics": {**metrics, **composed}, "trained_at": _trained_at(run)}
    return {**about, **_update(run), **_blend(blending), **_stopped(run)}


def _trained_at(run: Run) -> str:
    """Return when the best weights were written, in UTC: ``2026-11-19T21:37:51Z``."""
    written = datetime.fromtimestamp((run.path / BEST).stat().st_mtime, UTC)
    return written.strftime("%Y-%m-%dT%H:%M:%SZ")


def _update(run: Run) -> dict[str, Any]:
    """Return the entry of an update: the parent by its name and hashes, and what changed; empty for other runs."""
    update = run.about.get("update")
    if update is None:
        return {}
    counts = {name: update[name] for name in COUNTS if name in update}
    return {"update": {"parent": parent_entry(update.get("parent", {})), **counts}}


def parent_entry(parent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of the model that was updated, without the folders in its path."""
    path = parent.get("path")
    hashes = {name: parent[name] for name in ("weights", "fingerprint") if parent.get(name)}
    return {"name": None if path is None else Path(path).name, **hashes}


def _stopped(run: Run) -> dict[str, str]:
    """Return the entry of an interrupted training; empty if it is finished."""
    stopped = run.stopped
    return {} if stopped is None else {"stopped": stopped}


def _blend(blending: Blending | None) -> dict[str, Any]:
    """Return the entry of the item weights that were chosen, as settings that give them again."""
    return {} if blending is None else {"blend": blending.settings()}


def capture(
    model: Model,
    propagation: Propagation | None,
    ranking: Ranking,
    dataset: Dataset,
    recipe: Recipe,
    about: Mapping[str, Any],
) -> Snapshot:
    """Return the snapshot of a model; the layers are computed again if its ranking declares ``LinearLayers``."""
    layers: Layers | None = None
    if isinstance(embeddings_rule(ranking.user_rule), LinearLayers) and isinstance(model, GraphModel):
        stack = model.stack()
        assert stack is not None
        layers = _layers(stack, model.ego(), propagation)
    return Snapshot(
        about={
            "model": recipe.name,
            "preset": recipe.preset,
            "settings": recipe.settings(),
            **about,
            "dataset": {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                **_item_column(dataset),
                **_window_and_split(dataset),
            },
            **({LIST: dataset.record[LIST]} if LIST in dataset.record else {}),
            "dgcf": __version__,
        },
        users=dataset.users,
        items=dataset.items,
        train=dataset.train,
        seen=dataset.train.union(dataset.validation, dataset.test),
        ranking=ranking.to_numpy(),
        rule=_rule(propagation),
        readout="last" if recipe.model.readout == "last" else "mean",
        cosine=recipe.train.objective.cosine,
        load_layers=None if layers is None else partial(_same, layers),
    )


def _item_column(dataset: Dataset) -> dict[str, str]:
    """Return the entry of the item column's name, by which rules find it in tables; empty without a name."""
    read = [*dataset.record.get("read", []), {}][0]
    column = read.get("columns", {}).get("item") if read.get("header") is not False else None
    return {"item_col": column} if isinstance(column, str) else {}


def _window_and_split(dataset: Dataset) -> dict[str, Any]:
    """Return the first and the last time of the training pairs, and how they were split, as far as both are known."""
    times, split = dataset.train.time, dataset.record.get("split")
    window = {} if times is None else {"window": time_window(times)}
    return {**window, **({"split": dict(split)} if isinstance(split, Mapping) else {})}


def _same(layers: Layers) -> Layers:
    return layers


def _rule(propagation: Propagation | None) -> GraphRule | None:
    """Return the rule of the graph; None without a graph, or if fold-in cannot compute its rows."""
    if propagation is None or propagation.spec.renormalised or propagation.spec.spectral is not None:
        return None
    if propagation.spec.edge_weights:  # a new user's items have no weights
        return None
    spec = asdict(propagation.spec)
    for name in ("epsilon", "cross", "renormalised", "spectral", "edge_weights"):
        spec.pop(name, None)
    return GraphRule(cross=propagation.spec.cross != "none", epsilon=propagation.epsilon, **spec)


@torch.no_grad()
def _layers(stack: PropagationStack, x: torch.Tensor, propagation: Propagation | None) -> Layers:
    """Return the layers E⁽⁰⁾ … E⁽ᴸ⁾ from ``x`` = E⁽⁰⁾ (N, dim), and the gates."""
    logits = stack.gate_logits
    # Filled in place: for large data this is most of the memory.
    embeddings = np.empty((stack.layers + 1, *x.shape), dtype=np.float32)
    embeddings[0] = float32_rows(x)
    for layer in range(stack.layers):
        assert propagation is not None
        x = propagation.apply(x if logits is None else torch.sigmoid(logits[layer % len(logits)]).unsqueeze(1) * x)
        embeddings[layer + 1] = float32_rows(x)
    return Layers(embeddings, None if logits is None else float32_rows(logits))
