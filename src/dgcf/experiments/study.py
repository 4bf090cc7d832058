"""A study folder that several processes share: each trial is begun once, and a killed process loses none.

``study.json``     what is searched, on what, from which seed: written once
``journal.jsonl``  every trial as it is begun, reported and ended: the only source of truth about trials
``trials/7``       the run folder of trial 7 while it is in progress, held by the process that trains it
``trials.jsonl``   all finished trials; ``best.toml`` the best settings, as ``dgcf train --config`` takes them

Whoever reads or appends to the journal holds the folder's lock for that moment, so what is counted is still true when
a trial is begun. A trial has a number once its settings are in the journal, so that a kill while they are drawn costs
none. The kernel releases the locks of a dead process: a trial in progress that no process holds is taken over by the
next one that has time, with its number, its settings and its last checkpoint. Optuna draws settings and prunes from a
study in memory that is built from the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dgcf.errors import ArtifactError, ConfigError, DataError
from dgcf.experiments.description import ABOUT, FORMAT, changes, read_about, write_about
from dgcf.experiments.journal import JOURNAL, MOST_BYTES, Ending, Journal, imported
from dgcf.experiments.space import Spaces, contains, distribution
from dgcf.files import atomic_file, folder_lock, try_claim
from dgcf.random import bits
from dgcf.stored import InvalidFileError, read_member, seal

TABLE, BEST, TRIALS = "trials.jsonl", "best.toml", "trials"
DATABASE = "study.db"  # of version 0.1
STARTUP_TRIALS = 10  # drawn at random before the estimator knows enough
COMPLETE_BEFORE_PRUNING = 5


@dataclass(frozen=True)
class Row:
    """A trial as a person reads it. ``reason`` says why a failed one could not be trained."""

    trial: int
    state: str
    value: float | None
    epoch: int | None
    epochs: int
    seconds: float
    settings: Mapping[str, Any]
    reason: str | None = None

    @property
    def finished(self) -> bool:
        return self.state != "running"

    @property
    def usable(self) -> bool:
        return self.state == "complete"

    def describe(self, metric: str) -> str:
        """Return the finished trial as a line of text."""
        value = "failed" if self.value is None else f"{metric} {self.value:.4f}"
        pruned = " (pruned)" if self.state == "pruned" else ""
        reason = f": {self.reason}" if self.reason else ""
        epochs = f"{self.epochs} epochs, " if self.epochs > 1 else ""
        settings = format_settings(self.settings)
        return f"trial {self.trial}: {value}{pruned}, {epochs}{self.seconds:.1f} s, {settings}{reason}"


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return ``name=value`` for each setting, numbers with three digits."""
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in settings.items()
    )


@dataclass
class Trial:
    """A trial as the journal has it; ``key`` is Optuna's name for it in memory."""

    number: int
    settings: dict[str, Any]
    key: int
    reported: dict[int, float] = field(default_factory=dict)
    ending: Mapping[str, Any] | None = None

    def row(self) -> Row:
        last = max(self.reported, default=None)
        if self.ending is None:
            return Row(self.number, "running", None, last, last or 0, 0.0, dict(self.settings))
        told = {name: value for name, value in self.ending.items() if name != "event"}
        return Row(**told, settings=dict(self.settings))


@dataclass
class Claim:
    """A trial that this process alone trains."""

    study: Study
    trial: Trial

    @property
    def number(self) -> int:
        return self.trial.number

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.trial.settings)

    @property
    def folder(self) -> Path:
        return self.study.folder_of(self.number)

    def report(self, step: int, value: float) -> bool:
        """Note the metric at an epoch; whether the trial is worse than the median and may as well stop.

        A trial that goes on from a checkpoint passes some epochs again, to the same bit: they are noted once.
        """
        with self.study.alone():
            if step not in self.trial.reported:
                self.study.note({"event": "reported", "trial": self.number, "epoch": step, "value": float(value)})
            return self.study.is_worse(self.trial)

    @property
    def is_worse(self) -> bool:
        """Whether it was to be pruned when its process died."""
        with self.study.alone():
            return bool(self.trial.reported) and self.study.is_worse(self.trial)

    def complete(self, value: float, epoch: int, epochs: int, seconds: float) -> None:
        """The trial was trained to its end."""
        self._end("complete", seconds, value=float(value), epoch=epoch, epochs=epochs)

    def prune(self, seconds: float) -> None:
        """The trial was stopped half-way; the last value that was reported counts."""
        self._end("pruned", seconds, value=self.trial.reported[max(self.trial.reported)])

    def fail(self, reason: str, seconds: float) -> None:
        """The settings cannot be trained: finished, and worse than all others (no metric is below 0)."""
        self._end("failed", seconds, reason=reason)

    def _end(self, state: Ending, seconds: float, **told: Any) -> None:
        last = max(self.trial.reported, default=None)
        event = {"event": "ended", "trial": self.number, "state": state, "value": None, "epoch": last}
        event |= {"epochs": last or 0, "seconds": seconds, "reason": None, **told}
        with self.study.alone():
            self.study.note(event)
        shutil.rmtree(self.folder, ignore_errors=True)


class Study:
    """The folder, open. ``about`` is what the study is of; a folder of another study is refused."""

    def __init__(self, path: Path, about: Mapping[str, Any], spaces: Spaces, start: Mapping[str, Any]) -> None:
        self.path, self.spaces = path, spaces
        self.about = {"format": FORMAT, **about}
        self.start = {name: start[name] for name, space in spaces.items() if contains(space, start[name])}
        self.trials: dict[int, Trial] = {}
        self._refuse_taken()
        path.mkdir(parents=True, exist_ok=True)
        with self._explained(), folder_lock(path):
            self._sha256 = self._settle()
        self._journal = Journal(path / JOURNAL)
        self._remember()
        with self.alone():
            ended = sum(trial.ending is not None for trial in self.trials.values())
            self._refuse_lost(self.trials, ended)

    # -- what it is of ------------------------------------------------------------------------------------------------

    def _refuse_taken(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file, expected a folder for the study; choose another --out.")
        if self.path.is_dir() and not (self.path / ABOUT).exists() and any(self.path.glob("[!.]*")):
            raise ConfigError(f"{self.path} is taken by something that is no study; choose another --out.")

    def _settle(self) -> str:
        """Write down what the study is of, or compare it with what was written; the checksum of that."""
        about, journal = self.path / ABOUT, self.path / JOURNAL
        if not os.path.lexists(about):
            write_about(about, self.about)
        before, sha256 = read_about(about)
        self._refuse_other({**before, "format": FORMAT} if sha256 is None else before)
        if sha256 is None:
            return self._convert({**before, "format": FORMAT})
        if not os.path.lexists(journal):
            self._refuse_lost((), 0)
            Journal.create(journal, sha256)
        return sha256

    def _convert(self, about: Mapping[str, Any]) -> str:
        """Replace the database of version 0.1 by a journal; until ``study.json`` says so, it is done again."""
        old = self.path / DATABASE
        with _quiet():
            events = imported(old, self.spaces) if os.path.lexists(old) else []
        begun = [event["trial"] for event in events if event["event"] == "begun"]
        self._refuse_lost(begun, sum(event["event"] == "ended" for event in events))
        Journal.create(self.path / JOURNAL, str(seal(about)["sha256"]), events)
        return write_about(self.path / ABOUT, about)

    def _refuse_other(self, before: Mapping[str, Any]) -> None:
        found = list(changes(before, json.loads(json.dumps(self.about))))
        if found:
            more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
            raise ConfigError(
                f"{self.path} is the study of something else: {'; '.join(found[:3])}{more}; "
                "use what it began with, or choose another --out."
            )

    def _refuse_lost(self, begun: Collection[int], ended: int) -> None:
        """Stop where the folder shows trials that the journal, or the database before it, has lost."""
        table, folder = self.path / TABLE, self.path / TRIALS
        finished = read_member(table, MOST_BYTES).count(b"\n") if os.path.lexists(table) else 0
        folders = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
        if finished > ended or any(number not in begun for number in folders):
            raise InvalidFileError(
                f"its journal has {len(begun)} trials, {ended} of them finished, but {TABLE} has {finished} finished "
                f"ones and {TRIALS} has {len(folders)} in progress"
            )

    # -- the journal --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except InvalidFileError as problem:
            raise ArtifactError(
                f"the study {self.path} is damaged: {problem}; restore the folder from a copy, or choose another --out."
            ) from problem
        except OSError as problem:
            name = problem.filename or self.path
            raise DataError(
                f"cannot use {name}: {problem.strerror}; repair the folder, then start the same command again."
            ) from problem

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock, with everything that any process noted until now."""
        with self._explained(), folder_lock(self.path), _quiet():
            for event in self._journal.news():
                self._apply(event)
            if not self._named:
                raise InvalidFileError(f"{JOURNAL} is empty")
            yield

    def note(self, event: Mapping[str, Any]) -> None:
        """Add an event to the journal; only inside ``alone``."""
        self._journal.append(event)
        self._apply(event)

    def _remember(self) -> None:
        """Begin Optuna's study in memory."""
        import optuna

        warm_up = int(self.about["warm_up"])
        pruner = optuna.pruners.MedianPruner(n_startup_trials=COMPLETE_BEFORE_PRUNING, n_warmup_steps=warm_up)
        self._named = False
        self._memory = optuna.storages.InMemoryStorage()
        with _quiet():
            self.optuna = optuna.create_study(storage=self._memory, direction="maximize", pruner=pruner)
        self._id = self._memory.get_study_id_from_name(self.optuna.study_name)

    def _apply(self, event: Mapping[str, Any]) -> None:
        """Take an event of the journal into memory; what cannot follow the events before it is refused."""
        from optuna.trial import TrialState

        kind, number = event["event"], event.get("trial", -1)
        trial = self.trials.get(number)
        if kind == "study":
            if self._named or event["study"] != self._sha256:
                raise InvalidFileError(f"{JOURNAL} is that of another study")
            self._named = True
        elif not self._named:
            raise InvalidFileError(f"{JOURNAL} does not name its study")
        elif kind == "begun" and number > max(self.trials, default=-1):
            self.trials[number] = Trial(number, event["settings"], self._running(event["settings"]))
        elif trial is None or trial.ending is not None:
            raise InvalidFileError(f"{JOURNAL} has trial {number} {kind}, which is not in progress then")
        elif kind == "reported" and event["epoch"] is not None and event["value"] is not None:
            trial.reported[event["epoch"]] = event["value"]
            self._memory.set_trial_intermediate_value(trial.key, event["epoch"], event["value"])
        elif kind == "ended" and (event["value"] is None) == (event["state"] == "failed"):
            trial.ending = event
            state = TrialState.PRUNED if event["state"] == "pruned" else TrialState.COMPLETE
            self._memory.set_trial_state_values(trial.key, state, [event["value"] or 0.0])
        else:
            raise InvalidFileError(f"{JOURNAL} has trial {number} {kind} without its value")

    def _running(self, settings: Mapping[str, Any]) -> int:
        from optuna.trial import TrialState, create_trial

        if settings.keys() != self.spaces.keys() or not all(
            contains(self.spaces[name], settings[name]) for name in settings
        ):
            raise InvalidFileError(f"{JOURNAL} has a trial with the settings {dict(settings)}, outside of the search")
        spaces = {name: distribution(space) for name, space in self.spaces.items()}
        template = create_trial(state=TrialState.RUNNING, params=dict(settings), distributions=spaces)
        return int(self._memory.create_new_trial(self._id, template_trial=template))

    def is_worse(self, trial: Trial) -> bool:
        """Whether a trial is below the median of the complete ones at its last report."""
        import optuna

        return bool(optuna.Trial(self.optuna, trial.key).should_prune())

    # -- trials -------------------------------------------------------------------------------------------------------

    def folder_of(self, number: int) -> Path:
        return self.path / TRIALS / str(number)

    @contextlib.contextmanager
    def claim(self, wanted: int | None) -> Iterator[Claim | None]:
        """Hold a trial to train: one that a dead process left, or a new one while fewer than ``wanted`` are begun.

        The first trial is the recipe that the study starts from.
        """
        with contextlib.ExitStack() as held:
            with self.alone():
                trial = self._next(wanted, held)
            yield None if trial is None else Claim(self, trial)

    def _next(self, wanted: int | None, held: contextlib.ExitStack) -> Trial | None:
        for trial in self.trials.values():
            if trial.ending is not None:
                self._delete_left_over(trial.number)
            elif held.enter_context(try_claim(self._claim_file(trial.number))):
                return trial
        if wanted is not None and len(self.trials) >= wanted:
            return None
        trial = self._begin()
        claimed = held.enter_context(try_claim(self._claim_file(trial.number)))
        assert claimed, "a number is given once"
        return trial

    def _begin(self) -> Trial:
        """Draw the settings of a new trial and record them."""
        import optuna

        begun = len(self.trials)
        # By seed and number, not by what this process drew before: a study that was killed resumes as it would have.
        seed = int(bits(int(self.about["seed"]), "tune", 1, begun)[0] >> 32)
        self.optuna.sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTUP_TRIALS, multivariate=True, constant_liar=True, seed=seed
        )
        if begun == 0:
            self.optuna.enqueue_trial(self.start)
        drawn = self.optuna.ask({name: distribution(space) for name, space in self.spaces.items()})
        number, settings = max(self.trials, default=-1) + 1, dict(drawn.params)
        self._journal.append({"event": "begun", "trial": number, "settings": settings})
        key = self._memory.get_trial_id_from_study_id_trial_number(self._id, drawn.number)
        self.trials[number] = Trial(number, settings, key)
        return self.trials[number]

    def _claim_file(self, number: int) -> Path:
        return self.folder_of(number) / "claim"

    def _delete_left_over(self, number: int) -> None:
        """Delete the folder of a finished trial whose process was killed before it did so."""
        if self.folder_of(number).exists():
            with try_claim(self._claim_file(number)) as claimed:
                if claimed:
                    shutil.rmtree(self.folder_of(number), ignore_errors=True)

    # -- read ---------------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Every trial that is in progress or finished, by number."""
        with self.alone():
            return [trial.row() for trial in self.trials.values()]

    def importance(self) -> dict[str, float]:
        """The share of each setting in what sets the best trials apart (PED-ANOVA); empty while few are complete."""
        import optuna

        with self.alone():
            complete = self.optuna.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
            if len(complete) < COMPLETE_BEFORE_PRUNING:
                return {}
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # fANOVA would need scikit-learn
            found = optuna.importance.get_param_importances(self.optuna, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def write_table(self, rows: list[Row]) -> None:
        with atomic_file(self.path / TABLE) as beside:
            lines = [json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows if row.finished]
            beside.write_text("".join(lines), encoding="utf-8")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out Optuna's own remarks."""
    import optuna

    loud = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(loud)
