"""The journal of a study: every trial as it is begun, reported and ended, one line each.

It is the only source of truth about trials. A line is appended in one write, under the folder's lock, and is on the
disk before anything depends on it. Its check covers all lines before it. A last line without its line break was cut off
by a kill and counts as not written; any other damage is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from dgcf.experiments.jobs import append_line
from dgcf.files import atomic_file
from dgcf.stored import Chain, InvalidFileError, NonNegativeInt, chain_line, open_member, read_chain

JOURNAL = "journal.jsonl"
MOST_BYTES = 2**28
"""The largest journal that is read: about two million lines."""
Ending = Literal["complete", "pruned", "failed"]


class Event(TypedDict):
    """A line: the first is ``study``, with the checksum of ``study.json``; the others are events of trials."""

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
    """The journal of one process, which holds the folder's lock while it reads or appends."""

    def __init__(self, path: Path) -> None:
        self.path, self._read = path, Chain([])

    @classmethod
    def create(cls, path: Path, study: str, events: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write a journal with the checksum ``study`` of the study's description."""
        check, text = "", ""
        for event in ({"event": "study", "study": study}, *events):
            line, check = chain_line(event, check)
            text += line
        with atomic_file(path) as beside:
            beside.write_text(text, encoding="utf-8")

    def news(self) -> list[dict[str, Any]]:
        """Return the events that any process appended since the last call."""
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
        """Append an event after the last whole line; it is on the disk when this returns."""
        line, check = chain_line(event, self._read.check)
        with open_member(self.path, "ab") as file:
            append_line(file, self._read.end, line.encode())
        self._read = Chain([], check, self._read.end + len(line.encode()), lines=self._read.lines + 1)
