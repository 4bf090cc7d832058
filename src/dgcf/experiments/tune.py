"""Hyper-parameter search on the validation split: trials in a study folder, by one process or several.

Every trial is an ordinary training with the same seed, of which only the settings differ; its value is the validation
metric of its best epoch. The test split is taken out of the dataset before the first trial.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dgcf.config import Space
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DgcfError
from dgcf.evaluate.validation import validator
from dgcf.experiments.best import write_best
from dgcf.experiments.picture import draw_importance
from dgcf.experiments.space import Spaces, as_numbers_of, corners, space_of, written
from dgcf.experiments.study import Claim, Row, Study
from dgcf.random import key_of
from dgcf.train import DivergedError, EpochReport, Observer, Recipe, Run, pick_device, resolve, train

PAUSE = 0.2  # seconds between two looks at what other processes do


class Watcher:
    """Hears how the search goes and does nothing; subclasses override what they care for."""

    def note(self, text: str) -> None:
        """Something that the person should know, in one sentence."""

    def began(self, done: int, wanted: int | None) -> None:
        """The search begins, or goes on after ``done`` trials of ``wanted``."""

    def epoch_ended(self, trial: int, report: EpochReport) -> None:
        """A trial of this process finished an epoch."""

    def trial_ended(self, row: Row, best: Row | None) -> None:
        """A trial of any process was finished."""


@dataclass(frozen=True)
class Search:
    """What is searched: a model and its settings on a dataset, all resolved and checked. Test pairs are left out."""

    dataset: Dataset
    fingerprint: str
    source: str
    recipe: Recipe
    fixed: Mapping[str, Any]
    spaces: Spaces
    metric: str
    seed: int
    path: Path

    def recipe_of(self, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with other values of what is searched."""
        return _recipe(self.recipe.name, self.dataset, self.recipe.preset, {**self.fixed, **settings}, self.metric)

    def about(self) -> dict[str, Any]:
        """What makes it this study and no other."""
        return {
            "model": self.recipe.name,
            "preset": self.recipe.preset,
            "metric": self.metric,
            "seed": self.seed,
            "warm_up": self.recipe.train.min_epochs,
            "dataset": {"name": self.dataset.name, "source": self.source, "fingerprint": self.fingerprint},
            "space": written(self.spaces),
            "settings": self.recipe.settings(),
        }

    def open(self) -> Study:
        return Study(self.path, self.about(), self.spaces, self.recipe.settings())


@dataclass(frozen=True)
class Limit:
    """When to stop: after so many finished trials in all, or with the last one begun before ``until`` (Unix time)."""

    trials: int | None = None
    until: float | None = None

    @property
    def time_is_up(self) -> bool:
        return self.until is not None and time.time() >= self.until


@dataclass(frozen=True)
class Tuned:
    """The outcome: all trials of the study, the best one, and what mattered."""

    search: Search
    rows: Sequence[Row]
    best: Row
    importance: Mapping[str, float]
    config: Path
    seconds: float

    def recipe(self) -> Recipe:
        """The best recipe, to train with another seed or on all that there is."""
        return self.search.recipe_of(self.best.settings)

    def to_dict(self) -> dict[str, Any]:
        count = [row.state for row in self.rows].count
        return {
            "model": self.search.recipe.name,
            "dataset": self.search.dataset.name,
            "fingerprint": self.search.fingerprint,
            "metric": self.search.metric,
            "seed": self.search.seed,
            "trials": len(self.rows),
            "pruned": count("pruned"),
            "failed": count("failed"),
            "best": {
                "trial": self.best.trial,
                "value": self.best.value,
                "epoch": self.best.epoch,
                "settings": {**self.search.fixed, **self.best.settings},
            },
            "importance": dict(self.importance),
            "out": str(self.search.path),
            "config": str(self.config),
            "seconds": self.seconds,
        }


# -- what is searched -------------------------------------------------------------------------------------------------


def search_for(
    dataset: Dataset,
    model: str = "dgcf",
    *,
    preset: str = "paper",
    settings: Mapping[str, Any] | None = None,
    search: Mapping[str, Space] | None = None,
    metric: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    source: str = "",
) -> Search:
    """Resolve and check everything before any work; ``settings`` are fixed, ``search`` are other or further spaces."""
    key_of(seed, "tune")  # refuses what cannot be a seed
    if not len(dataset.validation):
        raise ConfigError(f"{dataset.name} has no validation split to tune on; split it by `dgcf data prepare`.")
    fixed = dict(settings or {})
    recipe = _recipe(model, dataset, preset, fixed, metric)
    test_free = replace(dataset, test=Pairs.empty(dataset.n_users, dataset.n_items))
    wanted = metric or recipe.train.metric
    validator(test_free, wanted)  # refuses what is no metric
    found = Search(
        dataset=test_free,
        fingerprint=dataset.fingerprint,
        source=source or dataset.name,
        recipe=recipe,
        fixed=fixed,
        spaces=_spaces(recipe, fixed, search or {}),
        metric=wanted,
        seed=seed,
        path=Path(out) if out else Path("tune") / f"{dataset.name.replace('/', '-')}-{model}",
    )
    _refuse_bad_spaces(found, search or {})
    return found


def _recipe(model: str, dataset: Dataset, preset: str, settings: Mapping[str, Any], metric: str | None) -> Recipe:
    """A recipe whose best epoch is picked by ``metric``; a model that is solved at once has no epoch to pick."""
    recipe = resolve(model, dataset=dataset.name, preset=preset, settings=settings)
    if metric is None or recipe.entry.at_once:
        return recipe
    return resolve(model, dataset=dataset.name, preset=preset, settings={**settings, "metric": metric})


def _spaces(recipe: Recipe, fixed: Mapping[str, Any], search: Mapping[str, Space]) -> Spaces:
    settings = recipe.settings()
    for name in search:
        if name in fixed:
            raise ConfigError(f"{name} is both fixed (--set) and searched (--search); leave one of them out.")
    spaces = {**space_of(recipe), **search}
    found = {name: as_numbers_of(space, settings.get(name)) for name, space in spaces.items() if name not in fixed}
    if not found:
        own = f"; it has {', '.join(settings)}" if settings else ""
        raise ConfigError(
            f"model {recipe.name} has nothing left to search{own}; train it as it is, or name a space with "
            "--search key=low:high."
        )
    return found


def _refuse_bad_spaces(found: Search, search: Mapping[str, Space]) -> None:
    for name in search:
        if name == "metric":
            raise ConfigError("metric is what trials are compared by, so it cannot be searched; name it with --metric.")
        for value in corners(found.spaces[name]):
            try:
                found.recipe_of({name: value})
            except ConfigError as problem:
                raise ConfigError(f"--search {name}: {problem}") from None


# -- the search -------------------------------------------------------------------------------------------------------


def tune(
    search: Search,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    jobs: int = 1,
    device: str = "auto",
    watcher: Watcher | None = None,
) -> Tuned:
    """Run trials until ``trials`` are finished in all, or ``minutes`` have gone by; then give the best.

    Started again it goes on where it was, and started twice, or with ``jobs``, the processes share the trials. Ctrl-C
    raises KeyboardInterrupt and leaves the trial in progress to be gone on with.
    """
    began = time.perf_counter()
    heard = watcher or Watcher()
    limit = Limit(
        trials if trials is not None or minutes is not None else 30,
        None if minutes is None else time.time() + 60 * minutes,
    )
    study = _opened(search)
    with _helpers(search, limit, jobs, device, heard):
        _work(study, search, limit, device, heard)
    return _outcome(study, search, time.perf_counter() - began, heard)


def _opened(search: Search) -> Study:
    try:
        import optuna  # noqa: F401
    except ImportError as problem:
        raise ConfigError("tuning needs Optuna, which is not installed; pip install 'dgcf[tune]'.") from problem
    return search.open()


def _work(study: Study, search: Search, limit: Limit, device: str, watcher: Watcher) -> None:
    """Claim and train trials; when all are begun, wait for those of other processes, and take over if one dies."""
    validate = validator(search.dataset, search.metric)
    news = _News(study, limit, watcher)
    while not limit.time_is_up:
        claim = study.claim(limit.trials)
        if claim is not None:
            with claim:
                _train(claim, search, validate, device, watcher)
        elif not any(not row.finished for row in study.rows()):
            break
        else:
            time.sleep(PAUSE)
        news.tell()
    news.tell()


class _News:
    """Passes on what was finished since the last time, by this process or another."""

    def __init__(self, study: Study, limit: Limit, watcher: Watcher) -> None:
        self.study, self.watcher = study, watcher
        self.told = {row.trial for row in study.rows() if row.finished}
        watcher.began(len(self.told), limit.trials)

    def tell(self) -> None:
        rows = self.study.rows()
        for row in rows:
            if row.finished and row.trial not in self.told:
                self.told.add(row.trial)
                self.watcher.trial_ended(row, best_of(rows))


class _Pruned(Exception):  # noqa: N818 (not an error)
    """Leaves the training loop when the median says so."""


class _Reporter(Observer):
    """Reports every evaluation of a trial, and stops it when it is worse than the median."""

    def __init__(self, claim: Claim, metric: str, watcher: Watcher) -> None:
        self.claim, self.metric, self.watcher = claim, metric, watcher

    def epoch_ended(self, report: EpochReport) -> None:
        self.watcher.epoch_ended(self.claim.number, report)
        if self.metric in report.validation and self.claim.report(report.epoch, report.validation[self.metric]):
            raise _Pruned


def _train(claim: Claim, search: Search, validate: Any, device: str, watcher: Watcher) -> None:
    """Train one trial, from its checkpoint if it has one, and tell the study what came of it."""
    began = time.perf_counter()
    reporter = _Reporter(claim, search.metric, watcher)
    try:
        recipe = search.recipe_of(claim.settings)
        run = _run_of(claim, search, recipe, device)
        trained = train(
            search.dataset, recipe, seed=search.seed, device=device, validate=validate, observer=reporter, run=run
        )
    except _Pruned:
        claim.prune(run.seconds)
        return
    except (DivergedError, ConfigError, torch.cuda.OutOfMemoryError) as problem:
        claim.fail(str(problem), time.perf_counter() - began)
        return
    if trained.interrupted:
        raise KeyboardInterrupt
    evaluated = [line for line in run.metrics() if search.metric in line]
    best = max(evaluated, key=lambda line: float(line[search.metric]))
    claim.complete(best[search.metric], best["epoch"], trained.epochs, run.seconds)


def _run_of(claim: Claim, search: Search, recipe: Recipe, device: str) -> Run:
    folder = claim.folder / "run"
    if (folder / "run.json").exists():
        return Run.open(folder)
    return Run.create(folder, search.dataset, recipe, seed=search.seed, device=str(pick_device(device)))


# -- more processes ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _helpers(search: Search, limit: Limit, jobs: int, device: str, watcher: Watcher) -> Iterator[None]:
    """``jobs - 1`` further processes that work on the study meanwhile; the processor's threads are shared out."""
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, expected a whole number from 1 on.")
    threads = torch.get_num_threads()
    share = max(1, threads // jobs)
    spawn = multiprocessing.get_context("spawn")
    helpers = [spawn.Process(target=_help, args=(search, limit, device, share)) for _ in range(jobs - 1)]
    for helper in helpers:
        helper.start()
    torch.set_num_threads(share)
    try:
        yield
    except BaseException:
        for helper in helpers:
            helper.terminate()  # which training takes for Ctrl-C: it saves and stops
        raise
    finally:
        torch.set_num_threads(threads)
        for helper in helpers:
            helper.join()
    if lost := sum(helper.exitcode != 0 for helper in helpers):
        watcher.note(f"{lost} of {jobs} processes ended before the others; the rest did their trials.")


def _help(search: Search, limit: Limit, device: str, threads: int) -> None:
    torch.set_num_threads(threads)
    try:
        _work(search.open(), search, limit, device, _Orphanage())
    except KeyboardInterrupt:
        sys.exit(130)
    except DgcfError as problem:
        print(f"error: {problem}", file=sys.stderr, flush=True)
        sys.exit(1)


class _Orphanage(Watcher):
    """Stops a helper whose parent was killed: nobody waits for it any more. Its trial can be gone on with."""

    def epoch_ended(self, trial: int, report: EpochReport) -> None:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            raise KeyboardInterrupt


# -- the outcome ------------------------------------------------------------------------------------------------------


def best_of(rows: Sequence[Row]) -> Row | None:
    """The finished trial of the highest value; of equal ones the first."""
    return max((row for row in rows if row.usable), key=lambda row: (row.value, -row.trial), default=None)


def _outcome(study: Study, search: Search, seconds: float, watcher: Watcher) -> Tuned:
    rows = [row for row in study.rows() if row.finished]
    best = best_of(rows)
    if best is None:
        reason = next((row.reason for row in rows if row.reason), "there was no time for any")
        raise ConfigError(f"none of {len(rows)} trials was trained to its end: {reason}")
    study.write_table(rows)
    importance = study.importance()
    if importance and (note := draw_importance(importance, search.metric, study.path / "importance.png")):
        watcher.note(note)
    config = write_best(study.path, search.recipe_of(best.settings), search.about(), best, len(rows))
    return Tuned(search, rows, best, importance, config, seconds)
