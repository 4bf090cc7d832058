"""The journal of a study: every trial as it is begun, reported and ended, one line each.

It is the only source of truth about trials. A line is appended in one write, under the folder's lock, and is on the
disk before anything depends on it. Its check covers all lines before it. A last line without its line break was being
written when its process was killed and counts as not written; any other damage is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

from dgcf.experiments.jobs import append_line
from dgcf.files import atomic_file
from dgcf.stored import Chain, InvalidFileError, NonNegativeInt, chain_line, open_member, read_chain

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.jsonl"
MOST_BYTES = 2**28
"""The largest journal that is read: about two million lines."""
Ending = Literal["complete", "pruned", "failed"]


class Event(TypedDict):
    """A line: ``study`` first, with the checksum of ``study.json``; then what became of the trials."""

    event: Literal["study", "begun", "reported", "ended"]
    study: NotRequired[str]
    trial: NotRequired[NonNegativeInt]
    settings: NotRequired[dict[str, bool | int | float | str | None]]
    epoch: NotRequired[NonNegativeInt | None]
    value: NotRequired[float | None]
    state: NotRequired[Ending]
    epochs: NotRequired[NonNegativeInt]
    seconds: NotRequired[float]
    reason: NotRequired[str | None]


FIELDS = {
    "study": ("study",),
    "begun": ("trial", "settings"),
    "reported": ("trial", "epoch", "value"),
    "ended": ("trial", "state", "value", "epoch", "epochs", "seconds", "reason"),
}


class Journal:
    """The file, read and appended to; whoever does either holds the lock of its folder."""

    def __init__(self, path: Path) -> None:
        self.path, self._read = path, Chain([])

    @classmethod
    def create(cls, path: Path, study: str, events: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write the journal of a study, named by the checksum of its description, in one step."""
        check, text = "", ""
        for event in ({"event": "study", "study": study}, *events):
            line, check = chain_line(event, check)
            text += line
        with atomic_file(path) as beside:
            beside.write_text(text, encoding="utf-8")

    def news(self) -> list[dict[str, Any]]:
        """Return the events that were appended since the last call, by any process."""
        with open_member(self.path) as file:
            if file.seek(0, os.SEEK_END) < self._read.end:
                raise InvalidFileError(f"{self.path.name} was cut short while it was in use")
            file.seek(self._read.end)
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InvalidFileError(f"{self.path.name} is larger than {MOST_BYTES:,} bytes")
        chain = read_chain(data, Event, after=self._read)
        if chain.problem is not None:
            raise InvalidFileError(f"{chain.problem} in {self.path.name}")
        for number, event in enumerate(chain.records, self._read.lines + 1):
            if lacking := [name for name in FIELDS[event["event"]] if name not in event]:
                raise InvalidFileError(f"line {number} of {self.path.name} has no {lacking[0]}")
        self._read = chain
        return chain.records

    def append(self, event: Mapping[str, Any]) -> None:
        """Add an event behind the last whole line; when this returns, it is on the disk."""
        line, check = chain_line(event, self._read.check)
        with open_member(self.path, "ab") as file:
            append_line(file, self._read.end, line.encode())
        self._read = Chain([], check, self._read.end + len(line.encode()), lines=self._read.lines + 1)


# -- studies of version 0.1 -------------------------------------------------------------------------------------------


def imported(database: Path, settings: Iterable[str]) -> list[dict[str, Any]]:
    """Return the events of a study that version 0.1 kept in Optuna's SQLite database."""
    import sqlite3

    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with open_member(database) as file:
            if not file.read(1):
                return []
        storage = optuna.storages.RDBStorage(
            "sqlite://", engine_kwargs={"creator": lambda: sqlite3.connect(database, check_same_thread=False)}
        )
        studies = storage.get_all_studies()
        trials = [trial for study in studies for trial in storage.get_all_trials(study._study_id, deepcopy=False)]
    except (optuna.exceptions.OptunaError, SQLAlchemyError, sqlite3.Error, ValueError, RuntimeError) as problem:
        reason = str(problem.__cause__ or problem).splitlines()[0]
        raise InvalidFileError(f"{database.name} is damaged ({reason})") from problem
    names = set(settings)
    # A trial without all of its settings was never trained: its process was killed while they were drawn.
    return [event for trial in trials if trial.params.keys() == names for event in _events(trial)]


def _events(trial: optuna.trial.FrozenTrial) -> Iterable[dict[str, Any]]:
    state = trial.state.name
    if state not in ("RUNNING", "COMPLETE", "PRUNED"):
        return
    yield {"event": "begun", "trial": trial.number, "settings": dict(trial.params)}
    reported = trial.intermediate_values
    for epoch, value in sorted(reported.items()):
        yield {"event": "reported", "trial": trial.number, "epoch": epoch, "value": value}
    if state != "RUNNING":
        about = trial.user_attrs
        ending = "failed" if "failed" in about else cast(Ending, state.lower())
        yield {
            "event": "ended",
            "trial": trial.number,
            "state": ending,
            "value": None if ending == "failed" else trial.value,
            "epoch": about.get("epoch", max(reported, default=None)),
            "epochs": about.get("epochs", max(reported, default=0)),
            "seconds": about.get("seconds", 0.0),
            "reason": about.get("failed"),
        }
