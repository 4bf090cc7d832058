"""A study folder that several processes share: each trial is begun once, and a killed process loses none.

``study.json``    what is searched, on what, from which seed: written once
``study.db``      every trial, as Optuna keeps it, in SQLite
``trials/7``      the run folder of trial 7 while it is in progress, held by the process that trains it
``trials.jsonl``  all finished trials; ``best.toml`` the best settings, as ``dgcf train --config`` takes them

Whoever reads or changes the database holds the folder's lock for that moment, so what is counted is still true when a
trial is begun. The kernel lets go of a lock when its process dies: a trial in progress that nobody holds is taken over
by the next process that has time, with its number, its settings and its last checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.errors import ArtifactError, ConfigError, DataError
from dgcf.experiments.space import Spaces, contains, distribution
from dgcf.files import locked, sole_use, whole_file
from dgcf.random import bits
from dgcf.train import resolve
from dgcf.train.run import OTHER_ORDER

if TYPE_CHECKING:
    import optuna

FORMAT = 1
NAME = "dgcf"
ABOUT, DATABASE, TABLE, BEST = "study.json", "study.db", "trials.jsonl", "best.toml"
STARTUP_TRIALS = 10  # drawn at random before the estimator knows enough
COMPLETE_BEFORE_PRUNING = 5
PATIENT_SECONDS = 60  # for a database that another program reads


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


@dataclass
class Claim:
    """A trial that this process holds: nobody else trains it until the claim is closed."""

    study: Study
    trial: optuna.Trial
    hold: contextlib.ExitStack
    reported: set[int] = field(default_factory=set)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *problem: object) -> None:
        self.hold.close()

    @property
    def number(self) -> int:
        return int(self.trial.number)

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.trial.params)

    @property
    def folder(self) -> Path:
        return self.study.folder_of(self.number)

    def report(self, step: int, value: float) -> bool:
        """Note the metric at an epoch; whether the trial is worse than the median and may as well stop.

        A trial that goes on from a checkpoint passes some epochs again, to the same bit: they are noted once.
        """
        with self.study.at_the_database():
            if step not in self.reported:
                self.trial.report(value, step)
                self.reported.add(step)
            return bool(self.trial.should_prune())

    def complete(self, value: float, epoch: int, epochs: int, seconds: float) -> None:
        """The trial was trained to its end."""
        self._tell(value, "COMPLETE", {"epoch": epoch, "epochs": epochs, "seconds": seconds})

    def prune(self, seconds: float) -> None:
        """The trial was stopped half-way; the last value that was reported counts."""
        self._tell(None, "PRUNED", {"epochs": max(self.reported), "seconds": seconds})

    def fail(self, reason: str, seconds: float) -> None:
        """The settings cannot be trained: finished, and worse than all others (no metric is below 0)."""
        self._tell(0.0, "COMPLETE", {"epochs": max(self.reported, default=0), "seconds": seconds, "failed": reason})

    def _tell(self, value: float | None, state: str, attributes: Mapping[str, Any]) -> None:
        from optuna.trial import TrialState

        with self.study.at_the_database():
            for name, attribute in attributes.items():
                self.trial.set_user_attr(name, attribute)
            self.study.optuna.tell(self.trial, value, state=TrialState[state])
        shutil.rmtree(self.folder, ignore_errors=True)


class Study:
    """The folder, open. ``about`` is what the study is of; a folder of another study is refused."""

    def __init__(self, path: Path, about: Mapping[str, Any], spaces: Spaces, start: Mapping[str, Any]) -> None:
        self.path, self.spaces = path, spaces
        self.about = {"format": FORMAT, **about}
        self.start = {name: start[name] for name, space in spaces.items() if contains(space, start[name])}
        self._refuse_taken()
        path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            self._settle()
        with self.at_the_database():
            self._open()

    # -- what it is of ------------------------------------------------------------------------------------------------

    def _refuse_taken(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file, expected a folder for the study; choose another --out.")
        if self.path.is_dir() and not (self.path / ABOUT).exists() and any(self.path.glob("[!.]*")):
            raise ConfigError(f"{self.path} is taken by something that is no study; choose another --out.")

    def _settle(self) -> None:
        """Write down what the study is of, or compare it with what was written."""
        if not (self.path / ABOUT).exists():
            with whole_file(self.path / ABOUT) as beside:
                beside.write_text(json.dumps(self.about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            return
        try:
            before = json.loads((self.path / ABOUT).read_text(encoding="utf-8"))
            changes = list(_changes(before, json.loads(json.dumps(self.about))))
        except (ValueError, AttributeError, KeyError, TypeError) as problem:
            raise ArtifactError(f"{self.path / ABOUT} is damaged ({problem}); choose another --out.") from problem
        if changes:
            more = f"; and {len(changes) - 3} more" if len(changes) > 3 else ""
            raise ConfigError(
                f"{self.path} is the study of something else: {'; '.join(changes[:3])}{more}; "
                "use what it began with, or choose another --out."
            )

    # -- the database -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def at_the_database(self) -> Iterator[None]:
        """Alone with the database for a moment, without Optuna's own remarks, and with one sentence if it fails."""
        import optuna
        from sqlalchemy.exc import SQLAlchemyError

        loud = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            with locked(self.path), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except (optuna.exceptions.StorageInternalError, SQLAlchemyError, sqlite3.Error) as problem:
            reason = str(problem.__cause__ or problem).splitlines()[0]
            raise DataError(
                f"cannot use {self.path / DATABASE}: {reason}; mend the folder, then start the same command again."
            ) from problem
        finally:
            optuna.logging.set_verbosity(loud)

    def _open(self) -> None:
        import optuna

        # A path in a URL would have to be escaped three times over; so SQLAlchemy is handed the connection itself.
        self._storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": self._connect})
        warm_up = int(self.about["warm_up"])
        pruner = optuna.pruners.MedianPruner(n_startup_trials=COMPLETE_BEFORE_PRUNING, n_warmup_steps=warm_up)
        self.optuna = optuna.create_study(
            storage=self._storage, study_name=NAME, direction="maximize", pruner=pruner, load_if_exists=True
        )
        self._id = self._storage.get_study_id_from_name(NAME)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path / DATABASE, timeout=PATIENT_SECONDS, check_same_thread=False)

    # -- trials -------------------------------------------------------------------------------------------------------

    def folder_of(self, number: int) -> Path:
        return self.path / "trials" / str(number)

    def claim(self, wanted: int | None) -> Claim | None:
        """A trial to train: one that a dead process left behind, or a new one while fewer than ``wanted`` are begun.

        The first one is the recipe that the study starts from.
        """
        from optuna.trial import TrialState

        with self.at_the_database():
            begun = waiting = 0
            for trial in self.optuna.get_trials(deepcopy=False):
                if trial.state == TrialState.RUNNING:
                    hold = self._hold(trial.number)
                    if hold is not None and trial.params.keys() == self.spaces.keys():
                        return self._taken_over(trial.number, hold, set(trial.intermediate_values))
                    if hold is not None:  # its process died while its settings were drawn
                        self.optuna.tell(trial.number, state=TrialState.FAIL)
                        hold.close()
                        continue
                elif trial.state.is_finished():
                    self._sweep(trial.number)
                waiting += trial.state == TrialState.WAITING
                begun += trial.state in (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
            if wanted is not None and begun >= wanted:
                return None
            if begun + waiting == 0:
                self.optuna.enqueue_trial(self.start)
            return self._begun(begun)

    def _taken_over(self, number: int, hold: contextlib.ExitStack, reported: set[int]) -> Claim:
        import optuna

        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        return Claim(self, optuna.Trial(self.optuna, trial_id), hold, reported)

    def _begun(self, begun: int) -> Claim:
        import optuna

        # By seed and place, whatever this process drew before: a study that was killed goes on as it would have.
        seed = int(bits(int(self.about["seed"]), "tune", 1, begun)[0] >> 32)
        self.optuna.sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTUP_TRIALS, multivariate=True, constant_liar=True, seed=seed
        )
        trial = self.optuna.ask({name: distribution(space) for name, space in self.spaces.items()})
        hold = self._hold(trial.number)
        assert hold is not None, "a number is given once"
        return Claim(self, trial, hold)

    def _hold(self, number: int) -> contextlib.ExitStack | None:
        """The trial for this process alone; None where another one holds it."""
        folder = self.folder_of(number) / "held"  # of its own: whoever makes the run folder locks the one above it
        folder.mkdir(parents=True, exist_ok=True)
        hold = contextlib.ExitStack()
        try:
            hold.enter_context(sole_use(folder))
        except DataError:
            return None
        return hold

    def _sweep(self, number: int) -> None:
        """Remove what a process left that was killed just after its trial."""
        if self.folder_of(number).exists() and (hold := self._hold(number)):
            shutil.rmtree(self.folder_of(number), ignore_errors=True)
            hold.close()

    # -- read ---------------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Every trial that is in progress or finished, by number."""
        from optuna.trial import TrialState

        states = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
        with self.at_the_database():
            return [_row(trial) for trial in self.optuna.get_trials(deepcopy=False, states=states)]

    def importance(self) -> dict[str, float]:
        """The share of each setting in what sets the best trials apart (PED-ANOVA); empty while few are complete."""
        import optuna

        with self.at_the_database():
            complete = self.optuna.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
            if len(complete) < COMPLETE_BEFORE_PRUNING:
                return {}
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # fANOVA would need scikit-learn
            found = optuna.importance.get_param_importances(self.optuna, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def write_table(self, rows: list[Row]) -> None:
        with whole_file(self.path / TABLE) as beside:
            lines = [json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows if row.finished]
            beside.write_text("".join(lines), encoding="utf-8")


def _row(trial: optuna.trial.FrozenTrial) -> Row:
    attributes = trial.user_attrs
    reason = attributes.get("failed")
    state = "failed" if reason else {"RUNNING": "running", "PRUNED": "pruned"}.get(trial.state.name, "complete")
    reported = trial.intermediate_values
    return Row(
        trial=trial.number,
        state=state,
        value=None if reason or state == "running" else trial.value,
        epoch=attributes.get("epoch", max(reported, default=None)),
        epochs=attributes.get("epochs", max(reported, default=0)),
        seconds=attributes.get("seconds", 0.0),
        settings=dict(trial.params),
        reason=reason,
    )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two descriptions, each in a few words; where the same data came from is no difference."""
    if before["dataset"]["fingerprint"] != now["dataset"]["fingerprint"]:
        told = [f"{about['dataset']['name']} ({about['dataset']['fingerprint'][:12]})" for about in (before, now)]
        yield f"dataset {told[0]} is now {told[1]}"
    elif before["dataset"].get("order") != now["dataset"].get("order"):
        yield OTHER_ORDER
    old, new = _flat(before), _flat(now)
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield f"{key} {old.get(key, 'not given')} is now {new.get(key, 'not given')}"


def _flat(about: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in about.items() if key not in ("dataset", "space", "settings")}
    # A setting that came with a later version than the study had its default there.
    defaults = resolve(about["model"], preset="plain").settings()
    space = {f"space of {key}": value for key, value in about["space"].items()}
    return {**plain, **space, **defaults, **about["settings"]}
