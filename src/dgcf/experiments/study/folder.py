"""A study folder that several processes share: each trial is begun once, and a killed process loses none.

``study.json``     the dataset, model, settings, search space and seed: written once
``journal.jsonl``  every trial as it is begun, reported and ended: the only source of truth about trials
``trials/7``       the run folder of trial 7 while it is in progress, and the claim of the process that trains it
``trials.jsonl``   all finished trials; ``best.toml`` the best settings, as ``dgcf train --config`` takes them

A process holds the folder's lock while it reads or appends to the journal, so its count of trials is still true when it
begins one. A trial has a number once its settings are in the journal, so a kill while they are drawn shifts nothing.
A trial in progress that no living process claims is resumed by the next one that is free, with its number, its settings
and its last checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgcf.errors import ArtifactError, ConfigError, DataError
from dgcf.experiments.space import Spaces, contains
from dgcf.experiments.study.description import ABOUT, FORMAT, changes, read_about, write_about
from dgcf.experiments.study.journal import JOURNAL, MOST_BYTES, Ending, Journal
from dgcf.experiments.study.sampler import Sampler, quiet
from dgcf.experiments.study.trials import Trial, TrialSummary
from dgcf.experiments.study.version_0_1 import DATABASE, read_database
from dgcf.files import atomic_file, folder_lock, try_claim
from dgcf.stored import InvalidFileError, read_member, seal

TABLE, BEST, TRIALS = "trials.jsonl", "best.toml", "trials"


@dataclass
class Claim:
    """A trial that this process alone trains."""

    study: Study
    trial: Trial

    @property
    def folder(self) -> Path:
        return self.study.folder_of(self.trial.number)

    def report(self, epoch: int, value: float) -> bool:
        """Record the metric at an epoch; return whether the trial is worse than the median and should be pruned.

        A resumed trial passes some epochs again, to the same bit; they are recorded once.
        """
        with self.study.locked():
            if epoch not in self.trial.reported:
                self.study.record(
                    {"event": "reported", "trial": self.trial.number, "epoch": epoch, "value": float(value)}
                )
            return self.study.sampler.is_worse(self.trial.key)

    @property
    def is_worse(self) -> bool:
        """Whether the trial should have been pruned when its process died."""
        with self.study.locked():
            return bool(self.trial.reported) and self.study.sampler.is_worse(self.trial.key)

    def complete(self, value: float, epoch: int, epochs: int, seconds: float) -> None:
        """Record that the trial was trained to its end."""
        self._end("complete", seconds, value=float(value), epoch=epoch, epochs=epochs)

    def prune(self, seconds: float) -> None:
        """Record that the trial was stopped early, with its last reported value."""
        self._end("pruned", seconds, value=self.trial.reported[max(self.trial.reported)])

    def fail(self, reason: str, seconds: float) -> None:
        """Record that the settings cannot be trained: the trial counts as worse than all others."""
        self._end("failed", seconds, reason=reason)

    def _end(self, state: Ending, seconds: float, **fields: Any) -> None:
        last = self.trial.last_epoch
        event = {"event": "ended", "trial": self.trial.number, "state": state, "value": None, "epoch": last}
        event |= {"epochs": last or 0, "seconds": seconds, "reason": None, **fields}
        with self.study.locked():
            self.study.record(event)
        shutil.rmtree(self.folder, ignore_errors=True)


class Study:
    """An open study folder; ``about`` describes the study, and the folder of another one is refused."""

    def __init__(self, path: Path, about: Mapping[str, Any], spaces: Spaces, start: Mapping[str, Any]) -> None:
        self.path, self.spaces = path, spaces
        self.about = {"format": FORMAT, **about}
        self.trials: dict[int, Trial] = {}
        self._refuse_taken()
        path.mkdir(parents=True, exist_ok=True)
        with self._explain_errors(), folder_lock(path):
            self._sha256 = self._check_description()
        self._journal, self._named = Journal(path / JOURNAL), False
        start = {name: start[name] for name, space in spaces.items() if contains(space, start[name])}
        self.sampler = Sampler(spaces, start, seed=int(self.about["seed"]), warm_up=int(self.about["warm_up"]))
        with self.locked():
            ended = sum(trial.ending is not None for trial in self.trials.values())
            self._refuse_lost(self.trials, ended)

    # -- description --------------------------------------------------------------------------------------------------

    def _refuse_taken(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file, expected a folder for the study; choose another --out.")
        if self.path.is_dir() and not (self.path / ABOUT).exists() and any(self.path.glob("[!.]*")):
            raise ConfigError(f"{self.path} holds other files and no study; choose another --out.")

    def _check_description(self) -> str:
        """Write the description, or compare it with the one in the folder; return its checksum."""
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
        """Replace the database of version 0.1 by a journal; a kill before ``study.json`` is written repeats it."""
        old = self.path / DATABASE
        with quiet():
            events = read_database(old, self.spaces) if os.path.lexists(old) else []
        begun = [event["trial"] for event in events if event["event"] == "begun"]
        self._refuse_lost(begun, sum(event["event"] == "ended" for event in events))
        Journal.create(self.path / JOURNAL, str(seal(about)["sha256"]), events)
        return write_about(self.path / ABOUT, about)

    def _refuse_other(self, before: Mapping[str, Any]) -> None:
        differences = list(changes(before, json.loads(json.dumps(self.about))))
        if differences:
            more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
            raise ConfigError(
                f"{self.path} is another study: {'; '.join(differences[:3])}{more}; "
                "use the same options, or choose another --out."
            )

    def _refuse_lost(self, begun: Collection[int], ended: int) -> None:
        """Refuse a journal, or the database before it, that has lost trials which the folder shows."""
        table, folder = self.path / TABLE, self.path / TRIALS
        finished = read_member(table, MOST_BYTES).count(b"\n") if os.path.lexists(table) else 0
        folders = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
        if finished > ended or any(number not in begun for number in folders):
            raise InvalidFileError(
                f"its journal has {len(begun)} trials, {ended} of them finished, but {TABLE} has {finished} finished "
                f"ones and {TRIALS} has {len(folders)} in progress"
            )

    # -- journal ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
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
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, with every event that any process has recorded so far."""
        with self._explain_errors(), folder_lock(self.path), quiet():
            for event in self._journal.news():
                self._apply(event)
            if not self._named:
                raise InvalidFileError(f"{JOURNAL} is empty")
            yield

    def record(self, event: Mapping[str, Any]) -> None:
        """Append an event to the journal; only inside ``locked``."""
        self._journal.append(event)
        self._apply(event)

    def _apply(self, event: Mapping[str, Any]) -> None:
        """Apply an event of the journal to the trials; one that cannot follow the events before it is refused."""
        kind, number = event["event"], event.get("trial", -1)
        trial = self.trials.get(number)
        if kind == "study":
            if self._named or event["study"] != self._sha256:
                raise InvalidFileError(f"{JOURNAL} is that of another study")
            self._named = True
        elif not self._named:
            raise InvalidFileError(f"{JOURNAL} does not name its study")
        elif kind == "begun" and number > max(self.trials, default=-1):
            self._refuse_outside(event["settings"])
            self.trials[number] = Trial(number, event["settings"], self.sampler.add(event["settings"]))
        elif trial is None or trial.ending is not None:
            raise InvalidFileError(f"{JOURNAL} has trial {number} {kind}, which is not in progress then")
        elif kind == "reported" and event["epoch"] is not None and event["value"] is not None:
            trial.reported[event["epoch"]] = event["value"]
            self.sampler.report(trial.key, event["epoch"], event["value"])
        elif kind == "ended" and (event["value"] is None) == (event["state"] == "failed"):
            trial.ending = event
            self.sampler.end(trial.key, event["value"] or 0.0, pruned=event["state"] == "pruned")
        else:
            raise InvalidFileError(f"{JOURNAL} has trial {number} {kind} without its value")

    def _refuse_outside(self, settings: Mapping[str, Any]) -> None:
        if settings.keys() != self.spaces.keys() or not all(
            contains(self.spaces[name], settings[name]) for name in settings
        ):
            raise InvalidFileError(f"{JOURNAL} has a trial with the settings {dict(settings)}, outside of the search")

    # -- trials -------------------------------------------------------------------------------------------------------

    def folder_of(self, number: int) -> Path:
        return self.path / TRIALS / str(number)

    @contextlib.contextmanager
    def claim(self, wanted: int | None) -> Iterator[Claim | None]:
        """Hold a trial to train: one that a dead process left, or a new one while fewer than ``wanted`` are begun.

        The first trial has the settings that the study starts from. None if there is no trial to train.
        """
        with contextlib.ExitStack() as held:
            with self.locked():
                trial = self._next(wanted, held)
            yield None if trial is None else Claim(self, trial)

    def _next(self, wanted: int | None, held: contextlib.ExitStack) -> Trial | None:
        for trial in self.trials.values():
            if trial.ending is not None:
                self._delete_folder(trial.number)
            elif held.enter_context(try_claim(self._claim_file(trial.number))):
                return trial
        if wanted is not None and len(self.trials) >= wanted:
            return None
        number = max(self.trials, default=-1) + 1
        key, settings = self.sampler.draw(len(self.trials))
        self._journal.append({"event": "begun", "trial": number, "settings": settings})
        self.trials[number] = Trial(number, settings, key)
        claimed = held.enter_context(try_claim(self._claim_file(number)))
        assert claimed, "a number is given once"
        return self.trials[number]

    def _claim_file(self, number: int) -> Path:
        return self.folder_of(number) / "claim"

    def _delete_folder(self, number: int) -> None:
        """Delete the folder of a finished trial if its process was killed before it did so."""
        if self.folder_of(number).exists():
            with try_claim(self._claim_file(number)) as claimed:
                if claimed:
                    shutil.rmtree(self.folder_of(number), ignore_errors=True)

    def summaries(self) -> list[TrialSummary]:
        """Return every trial that is in progress or finished, by number."""
        with self.locked():
            return [trial.summary() for trial in self.trials.values()]

    def importance(self) -> dict[str, float]:
        """Return the importance of each setting; empty while few trials are complete."""
        with self.locked():
            return self.sampler.importance()

    def write_table(self, trials: list[TrialSummary]) -> None:
        with atomic_file(self.path / TABLE) as beside:
            lines = [json.dumps(asdict(trial), ensure_ascii=False) + "\n" for trial in trials if trial.finished]
            beside.write_text("".join(lines), encoding="utf-8")
