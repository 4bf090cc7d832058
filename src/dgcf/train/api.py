"""From a dataset and a recipe to a trained model, in memory or in a run folder; the room's front door."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from dgcf.data.dataset import Dataset
from dgcf.files import exclusive_lock
from dgcf.graph import Propagation, build_propagation
from dgcf.models.base import GraphModel, Model, SolvedModel
from dgcf.ranking.rankings import Ranking
from dgcf.train.engines import groups, pick_device
from dgcf.train.interrupt import asked_to_stop
from dgcf.train.loop import SideBySide
from dgcf.train.peak_memory import mark_peak
from dgcf.train.recipe import Recipe
from dgcf.train.run.checkpoint import fill_model
from dgcf.train.run.folder import Run, environment
from dgcf.train.run.observer import Observer, PlainLines, Several
from dgcf.train.run.plots import draw_curves
from dgcf.train.run.records import append_text
from dgcf.train.solve import solve
from dgcf.train.trainer import Trainer, Validate, ranked_embeddings

CURVES = "curves.png"


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


def build(
    dataset: Dataset, recipe: Recipe, *, seed: int = 0, device: torch.device | str = "cpu"
) -> tuple[Model, Propagation | None]:
    """The model as it starts, and the graph that it propagates over: the training pairs and nothing else."""
    recipe.model.require_memory(recipe.name, dataset.n_users, dataset.n_items, len(dataset.train))
    model, spec = recipe.entry.build(dataset.n_users, dataset.n_items, recipe.model, seed), recipe.model.spec()
    if isinstance(model, SolvedModel):
        return model, None
    if spec is None:
        return model.to(device), None
    return model.to(device), build_propagation(dataset.train, spec).to(device=device)


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
    each = SeedJob(seed, observer, run)
    return _train_together(dataset, recipe, [each], device=pick_device(device), validate=validate)[0]


@dataclass(frozen=True)
class SeedJob:
    """One of several trainings that are alike but for their seeds: who watches it, and where it is kept."""

    seed: int
    observer: Observer | None = None
    run: Run | None = None


def train_many(
    dataset: Dataset,
    recipe: Recipe,
    trainings: Sequence[SeedJob],
    *,
    device: str = "auto",
    validate: Validate | None = None,
) -> list[Trained]:
    """Train with several seeds, each with the results that it would have alone; after Ctrl-C, those that had begun.

    On a GPU they train side by side: the graph is read once for all of them, and small steps fill the device. On a
    CPU, and where the model is solved at once, one after the other.
    """
    place = pick_device(device)
    results: list[Trained] = []
    for together in groups(trainings, recipe, device):
        results += _train_together(dataset, recipe, together, device=place, validate=validate)
        if results[-1].interrupted:
            break
    return results


def _train_together(
    dataset: Dataset,
    recipe: Recipe,
    trainings: Sequence[SeedJob],
    *,
    device: torch.device,
    validate: Validate | None,
) -> list[Trained]:
    mark_peak()
    began = time.perf_counter()
    model, propagation = build(dataset, recipe, seed=trainings[0].seed, device=device)
    watchers = [_watcher(each.observer, each.run, device) for each in trainings]
    validate = validate if len(dataset.validation) else None
    with ExitStack() as held:
        for each in trainings:
            if each.run is not None:
                held.enter_context(exclusive_lock(each.run.path))
        if isinstance(model, SolvedModel):
            (each,) = trainings
            reason = solve(
                model,
                dataset.train,
                recipe.train.metric,
                seed=each.seed,
                validate=validate,
                observer=watchers[0],
                run=each.run,
            )
            return [_solved(model, dataset, recipe, reason, each.run, time.perf_counter() - began)]
        if propagation is not None and propagation.warning:
            for watcher in watchers:
                watcher.note(propagation.warning)
        interrupted = held.enter_context(asked_to_stop())
        trainers = []
        for number, (each, watcher) in enumerate(zip(trainings, watchers, strict=True)):
            if number:
                model = recipe.entry.build(dataset.n_users, dataset.n_items, recipe.model, each.seed)
                assert isinstance(model, GraphModel)
            trainer = Trainer(
                model,
                propagation,
                dataset.train,
                recipe.train,
                seed=each.seed,
                device=device,
                validate=validate,
                observer=watcher,
                keeper=each.run,
                interrupted=interrupted,
            )
            _continue(trainer, each.run, watcher)
            trainers.append(trainer)
        reasons = _fit(trainers)
    results = []
    for each, trainer, watcher, reason in zip(trainings, trainers, watchers, reasons, strict=True):
        if each.run is not None and each.run.pictured and (note := picture(each.run)):
            watcher.note(note)
        results.append(_outcome(trainer, recipe, reason, each.run, time.perf_counter() - began))
    return results


def picture(run: Run) -> str | None:
    """Draw the curves of a run that was trained in epochs; a note says why there are none."""
    return draw_curves(run.metrics(), run.recipe.train.metric, run.path / CURVES)


def _fit(trainers: Sequence[Trainer]) -> list[str]:
    """Those that are at the same place go on together; after an interruption of some, the others do not begin."""
    places = [(trainer.epoch, trainer.done) for trainer in trainers]
    reasons: dict[int, str] = {}
    for place in sorted(set(places)):
        here = [number for number, its in enumerate(places) if its == place]
        reasons |= dict(zip(here, SideBySide([trainers[number] for number in here]).fit(), strict=True))
    return [reasons[number] for number in range(len(trainers))]


def load(run: Run, dataset: Dataset, *, device: str = "cpu") -> tuple[Model, Propagation | None, Ranking]:
    """The best epoch of a run: the model, its graph, and what it ranks with."""
    run.refuse_changes(dataset)
    recipe = run.recipe
    model, propagation = build(dataset, recipe, seed=run.seed, device=pick_device(device))
    fill_model(model, run.best().part("model"), str(run.path / "best.safetensors"))
    if isinstance(model, SolvedModel):
        return model, None, model.ranking(dataset.train)
    return model, propagation, ranked_embeddings(model, propagation, recipe.train)


def _watcher(observer: Observer | None, run: Run | None, device: torch.device) -> Observer:
    watchers = [observer or Observer()]
    if run is not None:
        watchers.append(LogFile(run.path / "log.txt"))
    watcher = Several(*watchers)
    if run is not None:
        now = environment(str(device))
        changed = [
            f"{key} {old} is now {now.get(key)}" for key, old in run.about["environment"].items() if now.get(key) != old
        ]
        if changed:
            watcher.note(f"{'; '.join(changed)}: results may differ in their last bits.")
    return watcher


def _continue(trainer: Trainer, run: Run | None, watcher: Observer) -> None:
    saved = run.resume() if run is not None else None
    if saved is not None and run is not None:
        trainer.restore(saved, str(run.path / "last.safetensors"))
        if run.repaired:
            watcher.note(f"{run.path / 'best.safetensors'} was damaged or missing; written again from the last state.")
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
    model: SolvedModel, dataset: Dataset, recipe: Recipe, reason: str, run: Run | None, seconds: float
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
        append_text(self.path, f"{self.clock()}  {text}\n")
