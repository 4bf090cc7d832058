"""From a dataset and a recipe to a trained model, in memory or in a run folder; the room's front door."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError
from dgcf.files import sole_use
from dgcf.graph import Propagation, build_propagation
from dgcf.models.base import AtOnceModel, Model, Ranking
from dgcf.models.limits import refuse_too_large
from dgcf.train import atonce
from dgcf.train.checkpoint import fill_model
from dgcf.train.interrupt import asked_to_stop
from dgcf.train.memory import mark_peak
from dgcf.train.observer import Observer, PlainLines, Several
from dgcf.train.picture import draw_curves
from dgcf.train.recipe import Recipe
from dgcf.train.run import Run, append_line, environment
from dgcf.train.trainer import Trainer, Validate, ranked_embeddings


@dataclass(frozen=True)
class Trained:
    """The outcome: the best epoch's model and what it ranks with, and how it came about."""

    model: Model
    propagation: Propagation | None
    ranking: Ranking
    recipe: Recipe
    epochs: int
    best_epoch: int
    seconds: float
    reason: str
    interrupted: bool
    run: Run | None


def pick_device(name: str) -> torch.device:
    """``auto`` is the GPU where there is one, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        raise ConfigError(f"device {name!r} cannot be used here; choose auto or cpu.") from problem
    return device


def build(
    dataset: Dataset, recipe: Recipe, *, seed: int = 0, device: torch.device | str = "cpu"
) -> tuple[Model, Propagation | None]:
    """The model as it starts, and the graph that it propagates over: the training pairs and nothing else."""
    refuse_too_large(recipe.name, recipe.model, dataset.n_users, dataset.n_items, len(dataset.train))
    if recipe.entry.at_once:
        return recipe.entry.build(dataset.n_users, dataset.n_items, recipe.model), None
    model = recipe.entry.build(dataset.n_users, dataset.n_items, recipe.model, seed)
    spec = recipe.model.spec()
    if spec is None:
        return model.to(device), None
    return model.to(device), build_propagation(dataset.train.to_scipy(), spec).to(device=device)


def train(
    dataset: Dataset,
    recipe: Recipe,
    *,
    seed: int = 0,
    device: str = "auto",
    validate: Validate | None = None,
    observer: Observer | None = None,
    run: Run | None = None,
) -> Trained:
    """Train to the end, or to Ctrl-C; with ``run``, go on from its last checkpoint if it has one.

    A model that is solved at once keeps nothing of an interrupted try, and is then solved anew. ``validate`` is left
    out of account where the dataset has no validation pair.
    """
    place = pick_device(device)
    mark_peak()
    began = time.perf_counter()
    model, propagation = build(dataset, recipe, seed=seed, device=place)
    watcher = _watcher(observer, run, place)
    validate = validate if len(dataset.validation) else None
    if isinstance(model, AtOnceModel):
        with nullcontext() if run is None else sole_use(run.path):
            reason = atonce.solve(
                model, dataset.train, recipe.train.metric, seed=seed, validate=validate, observer=watcher, run=run
            )
        return _solved(model, dataset, recipe, reason, run, time.perf_counter() - began)
    if propagation is not None and propagation.warning:
        watcher.note(propagation.warning)
    with asked_to_stop() as interrupted, nullcontext() if run is None else sole_use(run.path):
        trainer = Trainer(
            model,
            propagation,
            dataset.train,
            recipe.train,
            seed=seed,
            device=place,
            validate=validate,
            observer=watcher,
            keeper=run,
            interrupted=interrupted,
        )
        _continue(trainer, run, watcher)
        reason = trainer.fit()
    if run is not None and run.pictured:
        note = draw_curves(run.metrics(), recipe.train.metric, run.path / "curves.png")
        if note:
            watcher.note(note)
    return _outcome(trainer, recipe, reason, run, time.perf_counter() - began)


def load(run: Run, dataset: Dataset, *, device: str = "cpu") -> tuple[Model, Propagation | None, Ranking]:
    """The best epoch of a run: the model, its graph, and what it ranks with."""
    run.refuse_changes(dataset)
    recipe = run.recipe
    model, propagation = build(dataset, recipe, seed=run.seed, device=pick_device(device))
    fill_model(model, run.best().part("model"), str(run.path / "best.safetensors"))
    if isinstance(model, AtOnceModel):
        return model, None, model.ranking(dataset.train)
    return model, propagation, ranked_embeddings(model, propagation, recipe.train)


def _watcher(observer: Observer | None, run: Run | None, device: torch.device) -> Observer:
    watchers = [observer or Observer()]
    if run is not None:
        watchers.append(LogFile(run.path / "log.txt"))
    watcher = Several(*watchers)
    if run is not None:
        now = environment(str(device))
        changed = [f"{key} {old} is now {now[key]}" for key, old in run.about["environment"].items() if now[key] != old]
        if changed:
            watcher.note(f"{'; '.join(changed)}: results may differ in their last bits.")
    return watcher


def _continue(trainer: Trainer, run: Run | None, watcher: Observer) -> None:
    saved = run.resume() if run is not None else None
    if saved is not None and run is not None:
        trainer.restore(saved, str(run.path / "last.safetensors"))
        if trainer.finished:
            watcher.note(f"{run.path} was finished before; there is nothing to go on with.")
        else:
            watcher.note(f"going on from epoch {trainer.epoch}, batch {trainer.done}, of {run.path}.")


def _outcome(trainer: Trainer, recipe: Recipe, reason: str, run: Run | None, seconds: float) -> Trained:
    """The best weights where there are any; an interrupted run may have none yet, and gives its last."""
    best_epoch = trainer.stopping.best_epoch or trainer.completed_epochs
    if trainer.best:
        fill_model(trainer.model, trainer.best, "the best epoch")
    return Trained(
        model=trainer.model,
        propagation=trainer.propagation,
        ranking=trainer.embeddings(),
        recipe=recipe,
        epochs=trainer.completed_epochs,
        best_epoch=best_epoch,
        seconds=run.seconds if run is not None else seconds,
        reason=reason,
        interrupted=not trainer.finished,
        run=run,
    )


def _solved(
    model: AtOnceModel, dataset: Dataset, recipe: Recipe, reason: str, run: Run | None, seconds: float
) -> Trained:
    return Trained(
        model=model,
        propagation=None,
        ranking=model.ranking(dataset.train),
        recipe=recipe,
        epochs=1,
        best_epoch=1,
        seconds=run.seconds if run is not None else seconds,
        reason=reason,
        interrupted=False,
        run=run,
    )


class LogFile(PlainLines):
    """The run folder's log: every epoch and note, each with its time."""

    def __init__(self, path: Path, clock: Callable[[], str] = lambda: time.strftime("%Y-%m-%d %H:%M:%S")) -> None:
        super().__init__(every_epoch=True)
        self.path, self.clock = path, clock

    def _print(self, text: str) -> None:
        append_line(self.path, f"{self.clock()}  {text}")
