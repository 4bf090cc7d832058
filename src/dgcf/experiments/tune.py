"""Hyper-parameter search on the validation split: trials in a study folder, run by one process or several.

Every trial is a training with the same seed and other settings; its value is the validation metric of its best epoch.
The test split is removed from the dataset before the first trial.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.experiments.jobs import TRAINING_FAILED, open_run, train_seeds, work, worker_processes
from dgcf.experiments.plots import draw_importance
from dgcf.experiments.progress import Progress
from dgcf.experiments.search import Search
from dgcf.experiments.settings_file import write_best
from dgcf.experiments.study.folder import Claim, Study
from dgcf.experiments.study.trials import TrialSummary, best_of
from dgcf.train import EpochReport, Observer, Recipe, SeedJob, pick_device

MEANINGFUL = 20
"""Complete trials from which importances say which settings matter: the best tenth is then two trials or more."""


@dataclass(frozen=True)
class Resources:
    """What a process may use; nothing of it changes the result of a trial.

    No trial begins after ``trials`` of the study are finished, or after ``until`` (Unix time). ``save_every`` is the
    time in seconds between two saves.
    """

    trials: int | None
    until: float | None
    device: str
    save_every: float

    @property
    def time_is_up(self) -> bool:
        return self.until is not None and time.time() >= self.until


@dataclass(frozen=True)
class Tuned:
    """The result: all finished trials of the study, the best one, and the importance of each setting."""

    search: Search
    trials: Sequence[TrialSummary]
    best: TrialSummary
    importance: Mapping[str, float]
    config: Path
    seconds: float

    def recipe(self) -> Recipe:
        """Return the best recipe, to train with another seed or on all data."""
        return self.search.recipe_of(self.best.settings)

    @property
    def importance_note(self) -> str | None:
        """A caution if too few trials were trained to their ends to say which settings matter."""
        complete = sum(trial.complete for trial in self.trials)
        if complete >= MEANINGFUL or not self.search.spaces:
            return None
        rest = f"run {MEANINGFUL} or more to know which settings matter."
        if not self.importance:
            return f"{complete} complete trials are too few for an importance of settings; {rest}"
        return f"the importances are rough, from {complete} complete trials; {rest}"

    def to_dict(self) -> dict[str, Any]:
        """Return the answer of ``dgcf tune --json``."""
        count = [trial.state for trial in self.trials].count
        return {
            "model": self.search.recipe.name,
            "dataset": self.search.dataset.name,
            "fingerprint": self.search.fingerprint,
            "metric": self.search.metric,
            "seed": self.search.seed,
            "trials": len(self.trials),
            "pruned": count("pruned"),
            "failed": count("failed"),
            "best": {
                "trial": self.best.trial,
                "value": self.best.value,
                "epoch": self.best.epoch,
                "settings": {**self.search.fixed, **self.search.effective(self.best.settings)},
            },
            "importance": dict(self.importance),
            "importance_note": self.importance_note,
            "out": str(self.search.path),
            "config": str(self.config),
            "seconds": self.seconds,
        }


def tune(
    search: Search,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    jobs: int = 1,
    device: str = "auto",
    save_every: float = 10.0,
    progress: Progress | None = None,
) -> Tuned:
    """Run trials until ``trials`` are finished in all, or ``minutes`` have passed; return the best.

    A second call resumes the study. Several processes, or ``jobs`` > 1, share its trials. Ctrl-C raises
    KeyboardInterrupt; the trial in progress can be resumed. A kill loses at most the last ``save_every`` seconds of it.
    """
    began = time.perf_counter()
    progress = progress or Progress()
    until = None if minutes is None else time.time() + 60 * minutes
    trials = 30 if trials is None and minutes is None else trials
    resources = Resources(trials, until, str(pick_device(device)), save_every)
    study = search.open()
    try:
        with worker_processes(jobs, _work, (search, resources), progress):
            work(_Trials(study, search, resources, progress))
        return _result(study, search, time.perf_counter() - began, progress)
    finally:
        progress.ended()


def _work(search: Search, resources: Resources, progress: Progress) -> None:
    """Run trials in a worker process."""
    work(_Trials(search.open(), search, resources, progress))


class _Trials:
    """The queue of a study's trials, and the reports of those that any process finished."""

    def __init__(self, study: Study, search: Search, resources: Resources, progress: Progress) -> None:
        self.study, self.search, self.resources, self.progress = study, search, resources, progress
        self.validate = validator(search.dataset, search.metric)
        self.reported = {trial.trial for trial in study.summaries() if trial.finished}
        progress.started(len(self.reported), resources.trials)

    def claim(self) -> AbstractContextManager[Claim | None]:
        return contextlib.nullcontext() if self.resources.time_is_up else self.study.claim(self.resources.trials)

    def run(self, job: Claim) -> None:
        self._train(job)
        self._report()

    def waiting(self) -> bool:
        trials = self._report()
        return not self.resources.time_is_up and any(not trial.finished for trial in trials)

    def _report(self) -> list[TrialSummary]:
        trials = self.study.summaries()
        best = best_of(trials)
        text = "" if best is None else f"best {best.value:.4f} in trial {best.trial}"
        for trial in trials:
            if trial.finished and trial.trial not in self.reported:
                self.reported.add(trial.trial)
                self.progress.job_ended(trial.describe(self.search.metric), text)
        return trials

    def _train(self, claim: Claim) -> None:
        """Train a trial, from its checkpoint if it has one, and record its result in the study."""
        began, metric, device = time.perf_counter(), self.search.metric, self.resources.device
        try:
            recipe = self.search.recipe_of(claim.trial.settings)
            run = open_run(claim.folder / "run", self.search.dataset, recipe, seed=self.search.seed, device=device)
            run.autosave, run.pictured = self.resources.save_every, False
            if claim.is_worse:
                raise _Pruned
            seed = SeedJob(self.search.seed, _Reporter(claim, metric, self.progress), run)
            ((_, trained),) = train_seeds(self.search.dataset, recipe, [seed], device=device, validate=self.validate)
        except _Pruned:
            claim.prune(run.seconds)
            return
        except (*TRAINING_FAILED, ConfigError) as problem:
            if isinstance(problem, ConfigError) and best_of(self.study.summaries()) is None:
                raise  # the model or the machine lacks something, whatever the settings: no trial would do better
            claim.fail(str(problem), time.perf_counter() - began)
            return
        evaluated = [line for line in run.metrics() if metric in line]
        best = max(evaluated, key=lambda line: float(line[metric]))
        value = trained.validation.get(metric, best[metric])
        claim.complete(value, best["epoch"], trained.epochs, run.seconds)


class _Pruned(Exception):  # noqa: N818 (not an error)
    """Leave the training loop of a trial that is pruned."""


class _Reporter(Observer):
    """Report every evaluation of a trial to its study, and stop it when it is worse than the median."""

    def __init__(self, claim: Claim, metric: str, progress: Progress) -> None:
        self.claim, self.metric, self.progress = claim, metric, progress

    def epoch_ended(self, report: EpochReport) -> None:
        self.progress.epoch_ended(f"trial {self.claim.trial.number}", report)
        if self.metric in report.validation and self.claim.report(report.epoch, report.validation[self.metric]):
            raise _Pruned


def _result(study: Study, search: Search, seconds: float, progress: Progress) -> Tuned:
    """Write the study's table, figure and best settings; return the result."""
    trials = [trial for trial in study.summaries() if trial.finished]
    best = best_of(trials)
    if best is None:
        reasons = (trial.reason for trial in trials if trial.reason)
        reason = next(reasons, "there was no time for any; give it more --minutes.")
        raise ConfigError(f"none of {len(trials)} trials was trained to its end: {reason}")
    study.write_table(trials)
    importance = study.importance()
    if importance and (note := draw_importance(importance, search.metric, study.path / "importance.png")):
        progress.note(note)
    shown = replace(best, settings=search.effective(best.settings))
    config = write_best(study.path, search.recipe_of(best.settings), search.about(), shown, len(trials))
    return Tuned(search, trials, best, importance, config, seconds)
