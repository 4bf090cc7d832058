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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dgcf.errors import ConfigError, DgcfError
from dgcf.evaluate.validation import validator
from dgcf.experiments.best import write_best
from dgcf.experiments.picture import draw_importance
from dgcf.experiments.search import Search
from dgcf.experiments.study import Claim, Row, Study
from dgcf.train import DivergedError, EpochReport, Observer, Recipe, Run, Validate, pick_device, train

PAUSE = 0.5  # seconds between two looks at what other processes do


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
class Limit:
    """When to stop: after so many finished trials in all, or with the last one begun before ``until`` (Unix time)."""

    trials: int | None = None
    until: float | None = None

    @property
    def time_is_up(self) -> bool:
        return self.until is not None and time.time() >= self.until


@dataclass(frozen=True)
class Means:
    """What a process trains with, which does not change what a trial gives: its device, and seconds between saves."""

    device: str
    save_every: float


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


# -- the search -------------------------------------------------------------------------------------------------------


def tune(
    search: Search,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    jobs: int = 1,
    device: str = "auto",
    save_every: float = 10.0,
    watcher: Watcher | None = None,
) -> Tuned:
    """Run trials until ``trials`` are finished in all, or ``minutes`` have gone by; then give the best.

    Started again it goes on where it was, and started twice, or with ``jobs``, the processes share the trials. Ctrl-C
    raises KeyboardInterrupt and leaves the trial in progress to be gone on with; so does a kill, less what was trained
    in the last ``save_every`` seconds.
    """
    began = time.perf_counter()
    heard = watcher or Watcher()
    limit = Limit(
        trials if trials is not None or minutes is not None else 30,
        None if minutes is None else time.time() + 60 * minutes,
    )
    means = Means(str(pick_device(device)), save_every)
    study = _opened(search)
    with _helpers(search, limit, jobs, means, heard):
        _work(study, search, limit, means, heard)
    return _outcome(study, search, time.perf_counter() - began, heard)


def _opened(search: Search) -> Study:
    try:
        import optuna  # noqa: F401
    except ImportError as problem:
        raise ConfigError("tuning needs Optuna, which is not installed; pip install 'dgcf[tune]'.") from problem
    return search.open()


def _work(study: Study, search: Search, limit: Limit, means: Means, watcher: Watcher) -> None:
    """Claim and train trials; when all are begun, wait for those of other processes, and take over if one dies."""
    validate = validator(search.dataset, search.metric)
    news = _News(study, limit, watcher)
    while not limit.time_is_up:
        claim = study.claim(limit.trials)
        if claim is not None:
            with claim:
                _train(claim, search, validate, means, watcher)
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


def _train(claim: Claim, search: Search, validate: Validate, means: Means, watcher: Watcher) -> None:
    """Train one trial, from its checkpoint if it has one, and tell the study what came of it."""
    began = time.perf_counter()
    reporter = _Reporter(claim, search.metric, watcher)
    try:
        recipe = search.recipe_of(claim.settings)
        run = _run_of(claim, search, recipe, means)
        if claim.is_worse:
            raise _Pruned
        trained = train(
            search.dataset, recipe, seed=search.seed, device=means.device, validate=validate, observer=reporter, run=run
        )
    except _Pruned:
        claim.prune(run.seconds)
        return
    except (DivergedError, ConfigError, torch.cuda.OutOfMemoryError) as problem:
        if isinstance(problem, ConfigError) and best_of(claim.study.rows()) is None:
            raise  # not these settings, but whatever a model or a machine lacks: no trial would do better
        claim.fail(str(problem), time.perf_counter() - began)
        return
    if trained.interrupted:
        raise KeyboardInterrupt
    evaluated = [line for line in run.metrics() if search.metric in line]
    best = max(evaluated, key=lambda line: float(line[search.metric]))
    claim.complete(best[search.metric], best["epoch"], trained.epochs, run.seconds)


def _run_of(claim: Claim, search: Search, recipe: Recipe, means: Means) -> Run:
    folder = claim.folder / "run"
    if (folder / "run.json").exists():
        run = Run.open(folder)
    else:
        run = Run.create(folder, search.dataset, recipe, seed=search.seed, device=means.device)
    run.autosave, run.pictured = means.save_every, False
    return run


# -- more processes ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _helpers(search: Search, limit: Limit, jobs: int, means: Means, watcher: Watcher) -> Iterator[None]:
    """``jobs - 1`` further processes that work on the study meanwhile; the processor's threads are shared out."""
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, expected a whole number from 1 on.")
    threads = torch.get_num_threads()
    share = max(1, threads // jobs)
    spawn = multiprocessing.get_context("spawn")
    helpers = [spawn.Process(target=_help, args=(search, limit, means, share)) for _ in range(jobs - 1)]
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


def _help(search: Search, limit: Limit, means: Means, threads: int) -> None:
    torch.set_num_threads(threads)
    try:
        _work(search.open(), search, limit, means, _Orphanage())
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
        reason = next((row.reason for row in rows if row.reason), "there was no time for any; give it more --minutes.")
        raise ConfigError(f"none of {len(rows)} trials was trained to its end: {reason}")
    study.write_table(rows)
    importance = study.importance()
    if importance and (note := draw_importance(importance, search.metric, study.path / "importance.png")):
        watcher.note(note)
    config = write_best(study.path, search.recipe_of(best.settings), search.about(), best, len(rows))
    return Tuned(search, rows, best, importance, config, seconds)
