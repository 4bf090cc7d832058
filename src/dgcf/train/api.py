"""The functions that train: from a dataset and a recipe to a trained model, in memory or in a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import torch

from dgcf.data.dataset import Dataset
from dgcf.errors import ArtifactError
from dgcf.files import exclusive_lock
from dgcf.graph import Propagation, build_propagation
from dgcf.models.base import GraphModel, Model, SolvedModel
from dgcf.ranking.rankings import Embeddings, Ranking
from dgcf.train.blend import Blender, Blending, BlendInterrupted
from dgcf.train.engines import groups, pick_device
from dgcf.train.interrupt import stop_requested
from dgcf.train.loop import TrainingLoop
from dgcf.train.peak_memory import mark_peak
from dgcf.train.recipe import Recipe
from dgcf.train.run.checkpoint import Checkpoint, fill_model
from dgcf.train.run.folder import Run
from dgcf.train.run.observer import Observer, run_observer
from dgcf.train.run.plots import plot_run
from dgcf.train.shards import ALONE, Mode, World, sharding_of
from dgcf.train.solve import solve
from dgcf.train.trainer import Trainer, Validate, ranked_embeddings


@dataclass(frozen=True)
class Trained:
    """The result of a training: the model of the best epoch, its ranking, and how training went."""

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
    blending: Blending | None = None

    @property
    def validation(self) -> Mapping[str, float]:
        """The validation metrics of the composed ranking; empty if the ranking is the model's alone."""
        return {} if self.blending is None else self.blending.validation


@dataclass(frozen=True)
class SeedJob:
    """One of several trainings that differ in their seeds alone: its observer and its run folder.

    ``start``: the state to continue from without a run folder.
    """

    seed: int
    observer: Observer | None = None
    run: Run | None = None
    start: Checkpoint | None = None


@dataclass(frozen=True)
class Prepared:
    """What a training of this dataset and recipe on this device need not compute again.

    ``model`` (its weights are replaced) and ``propagation``, as ``build`` returns them; ``blender``: item weights.
    """

    model: Model
    propagation: Propagation | None
    blender: Blender | None = None


def build(
    dataset: Dataset, recipe: Recipe, *, seed: int = 0, device: torch.device | str = "cpu"
) -> tuple[Model, Propagation | None]:
    """Return the untrained model and its propagation, which is built from the training pairs alone."""
    recipe.model.require_memory(recipe.name, dataset.n_users, dataset.n_items, len(dataset.train))
    model, spec = recipe.entry.build(dataset.n_users, dataset.n_items, recipe.model, seed), recipe.model.spec()
    if isinstance(model, SolvedModel):
        return model, None
    if spec is None:
        return model.to(device), None
    return model.to(device), build_propagation(dataset.train, spec).to(device=device)


def load(run: Run, dataset: Dataset, *, device: str = "cpu") -> tuple[Model, Propagation | None, Ranking]:
    """Return the model of the best epoch of a run, its propagation and its ranking."""
    dataset = run.dataset_of(dataset)
    run.refuse_changes(dataset)
    recipe = run.recipe
    model, propagation = build(dataset, recipe, seed=run.seed, device=pick_device(device))
    fill_model(model, run.best().part("model"), str(run.path / "best.safetensors"))
    if isinstance(model, SolvedModel):
        ranking = model.ranking(dataset.train)
    else:
        ranking = ranked_embeddings(model, propagation, recipe.train)
    if not recipe.blend.parts or not isinstance(ranking, Embeddings):
        return model, propagation, ranking
    if (blending := run.blending(dataset.n_items)) is None:
        raise ArtifactError(
            f"{run.path} was stopped before its item weights were chosen; continue it with `dgcf train --resume "
            f"{run.path}`."
        )
    return model, propagation, blending.compose(ranking, dataset.train)


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
    """Train to the end or to Ctrl-C; with ``run``, resume from its last checkpoint if there is one.

    A solved model saves nothing when interrupted and is solved again. ``validate`` is ignored if the dataset has no
    validation pairs.
    """
    return train_together(dataset, recipe, [SeedJob(seed, observer, run)], device=device, validate=validate)[0]


def train_many(
    dataset: Dataset, recipe: Recipe, jobs: Sequence[SeedJob], *, device: str = "auto", validate: Validate | None = None
) -> list[Trained]:
    """Train with several seeds; each has the results that it would have alone. Ctrl-C returns those that had begun.

    On a GPU they train side by side: the graph is read once for all of them, and small steps fill the device. On a CPU,
    and for solved models, they train one after the other.
    """
    results: list[Trained] = []
    for group in groups(jobs, recipe, device):
        results += train_together(dataset, recipe, group, device=device, validate=validate)
        if results[-1].interrupted:
            break
    return results


def train_together(
    dataset: Dataset,
    recipe: Recipe,
    jobs: Sequence[SeedJob],
    *,
    device: str = "auto",
    validate: Validate | None = None,
    prepared: Prepared | None = None,
    world: World = ALONE,
    mode: Mode = "columns",
) -> list[Trained]:
    """Train the jobs of one group, as ``groups`` returns it, side by side.

    ``prepared``: for jobs that all have a state to continue from. ``world``: the processes that share the work by
    ``mode``. Each calls this with the same arguments, but only the first one has a run, and composes the ranking.
    """
    mark_peak()
    started, place = time.perf_counter(), pick_device(device)
    prepared = prepared or Prepared(*build(dataset, recipe, seed=jobs[0].seed, device=place))
    model, blender = prepared.model, prepared.blender
    observers = [run_observer(job.observer, job.run, place) for job in jobs]
    validate = validate if len(dataset.validation) else None
    with ExitStack() as stack:
        for job in jobs:
            if job.run is not None:
                stack.enter_context(exclusive_lock(job.run.path))
        if isinstance(model, SolvedModel):
            solved = _solved(model, dataset, recipe, jobs[0], observers[0], validate, place)
            return _compose([solved], dataset, blender or _blender(dataset, recipe, validate, place), observers)
        interrupted = stack.enter_context(stop_requested())
        sharding = sharding_of(world, mode, model, prepared.propagation)
        trainer_of = partial(Trainer, device=place, validate=validate, interrupted=interrupted, sharding=sharding)
        trainers = _trainers(dataset, recipe, jobs, observers, prepared, trainer_of)
        del prepared  # a process that holds some rows of the graph needs the whole no longer
        trained = [_trained(*ended, dataset, recipe, started) for ended in zip(trainers, _fit(trainers), strict=True)]
        if world.first:
            blender = blender or _blender(dataset, recipe, validate, place, interrupted)
        return _compose(trained, dataset, blender, observers)


def _trainers(
    dataset: Dataset,
    recipe: Recipe,
    jobs: Sequence[SeedJob],
    observers: Sequence[Observer],
    prepared: Prepared,
    trainer_of: Callable[..., Trainer],
) -> list[Trainer]:
    """Return the trainers of the jobs, each at the state where its run stopped."""
    assert isinstance(prepared.model, GraphModel)
    models = [prepared.model, *(_graph_model(dataset, recipe, job.seed) for job in jobs[1:])]
    trainers = [
        trainer_of(model, prepared.propagation, dataset.train, recipe.train, seed=job.seed, observer=shown, run=job.run)
        for model, job, shown in zip(models, jobs, observers, strict=True)
    ]
    for trainer, job in zip(trainers, jobs, strict=True):
        _resume(trainer, job.start)
    return trainers


def _blender(
    dataset: Dataset,
    recipe: Recipe,
    validate: Validate | None,
    device: torch.device,
    interrupted: Callable[[], bool] = lambda: False,
) -> Blender | None:
    """Return what composes the rankings of a dataset; None if nothing is to be added to the model's own."""
    if not recipe.blend.parts:
        return None
    forecast = is_forecast(dataset)
    return Blender(recipe.blend, dataset.train, recipe.train.metric, validate, device, interrupted, forecast)


def is_forecast(dataset: Dataset) -> bool:
    """Return whether all validation pairs are known to be later than the training pairs."""
    before, after = dataset.train.time, dataset.validation.time
    return before is not None and after is not None and len(after) > 0 and bool(after.min() >= before.max())


def _compose(
    trained: Sequence[Trained], dataset: Dataset, blender: Blender | None, observers: Sequence[Observer]
) -> list[Trained]:
    """Add item weights to the scores of finished trainings; a run that was composed before keeps its weights."""
    if blender is None:
        return list(trained)
    results = list[Trained]()
    for one, observer in zip(trained, observers, strict=True):
        if one.interrupted:
            results.append(one)
            continue
        assert isinstance(one.ranking, Embeddings)
        try:
            blending = _saved_blending(one.run, dataset)
            if blending is None:
                observer.note("choosing the item weights to add to the scores.")
                blending = blender.fit(one.ranking)
                if one.run is not None:
                    one.run.save_blending(blending)
        except BlendInterrupted:
            results.append(replace(one, interrupted=True))
            continue
        observer.note(f"item weights added to the scores: {blending.text}.")
        ranking, seconds = blending.compose(one.ranking, dataset.train), one.seconds + blending.seconds
        results.append(replace(one, ranking=ranking, seconds=seconds, blending=blending))
    return results


def _saved_blending(run: Run | None, dataset: Dataset) -> Blending | None:
    """Return the item weights that a run has already; None if it has none, or damaged ones."""
    try:
        return None if run is None else run.blending(dataset.n_items)
    except ArtifactError:
        return None


def _graph_model(dataset: Dataset, recipe: Recipe, seed: int) -> GraphModel:
    model = recipe.entry.build(dataset.n_users, dataset.n_items, recipe.model, seed)
    assert isinstance(model, GraphModel)
    return model


def _resume(trainer: Trainer, start: Checkpoint | None) -> None:
    """Restore the last checkpoint of the trainer's run, if it has one; without a run, ``start``."""
    run, note = trainer.run, trainer.observer.note
    if trainer.propagation is not None and trainer.propagation.warning:
        note(trainer.propagation.warning)
    checkpoint = trainer.world.from_first(lambda: start if run is None else run.resume())
    if checkpoint is None:
        return
    trainer.restore(checkpoint, "the start of the training" if run is None else str(run.path / "last.safetensors"))
    if run is None:
        return
    if run.repaired:
        note(f"{run.path / 'best.safetensors'} was damaged or missing; written again from the last state.")
    if trainer.finished:
        only_start = "update" in run.about and run.recipe.train.epochs == 1
        done = "no epoch is trained" if only_start else f"{run.path} is already finished; nothing is left to train"
        note(f"{done}.")
    elif "update" in run.about and (trainer.epoch, trainer.done) == (2, 0):
        note(f"continuing with the weights of {run.about['update'].get('parent', {}).get('path') or 'a recommender'}.")
    else:
        note(f"resuming {run.path} at epoch {trainer.epoch}, batch {trainer.done}.")


def _fit(trainers: Sequence[Trainer]) -> list[str]:
    """Train those at the same epoch and batch together; return why each stopped.

    If an interruption stops the first ones, the others do not begin.
    """
    progress = [(trainer.epoch, trainer.done) for trainer in trainers]
    reasons: dict[int, str] = {}
    for position in sorted(set(progress)):
        numbers = [number for number, other in enumerate(progress) if other == position]
        reasons |= dict(zip(numbers, TrainingLoop([trainers[number] for number in numbers]).fit(), strict=True))
    return [reasons[number] for number in range(len(trainers))]


def _trained(trainer: Trainer, reason: str, dataset: Dataset, recipe: Recipe, started: float) -> Trained:
    """Return the result with the best weights; an interrupted training may have none yet, and gives its last."""
    run, propagation = trainer.run, trainer.propagation
    if run is not None and run.pictured and "update" not in run.about and (note := plot_run(run)):
        trainer.observer.note(note)
    if trainer.best:
        fill_model(trainer.model, trainer.best, "the best epoch")
    ranking = trainer.embeddings()
    trainer.sharding.give_back(trainer.model)
    if propagation is None and trainer.world.first and (spec := recipe.model.spec()) is not None:
        propagation = build_propagation(dataset.train, spec).to(device=trainer.device)
    return Trained(
        model=trainer.model,
        propagation=propagation,
        ranking=ranking,
        recipe=recipe,
        epochs=trainer.epoch - 1,
        best_epoch=trainer.stopping.best_epoch or trainer.epoch - 1,
        seconds=run.seconds if run is not None else time.perf_counter() - started,
        reason=reason,
        interrupted=not trainer.finished,
        run=run,
    )


def _solved(
    model: SolvedModel,
    dataset: Dataset,
    recipe: Recipe,
    job: SeedJob,
    observer: Observer,
    validate: Validate | None,
    device: torch.device,
) -> Trained:
    """Solve a model, and return it as the result of one epoch."""
    started, run = time.perf_counter(), job.run
    reason = solve(model, dataset.train, recipe.train.metric, job.seed, validate, observer, run, device)
    return Trained(
        model=model,
        propagation=None,
        ranking=model.ranking(dataset.train),
        recipe=recipe,
        epochs=1,
        best_epoch=1,
        seconds=run.seconds if run is not None else time.perf_counter() - started,
        reason=reason,
        interrupted=False,
        run=run,
    )
