"""Exceptions of dgcf. A message is one sentence: what is wrong, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class DgcfError(Exception):
    """Base class of errors that the user can correct; the command line prints them without a traceback.

    ``kind`` is the category of the problem in JSON output. ``exit_code`` is the exit code of the command line: 1 if the
    work failed, 2 if the call was wrong.
    """

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    shown_elsewhere = False
    """Whether the first of several processes shows the error."""

    @property
    def hint(self) -> str | None:
        """The advice in the message, if there is any."""
        return hint_of(str(self))


class DataError(DgcfError):
    """A file, a column, an id or a checksum of the data is wrong."""

    kind = "data"


class DataWarning(UserWarning):
    """Something in the data is probably not meant, such as an id that stands for missing ones."""


class ConfigError(DgcfError):
    """An option or a setting is unknown or out of range."""

    kind, exit_code = "config", 2


class NotEnoughMemoryError(ConfigError):
    """The operation needs more memory than is available."""

    kind, exit_code = "memory", 1


class NotFittedError(DgcfError):
    """The operation needs a trained model."""

    kind = "not-fitted"


class ArtifactError(DgcfError):
    """A saved run or model is damaged, of another type, or from another version."""

    kind = "artifact"


class StoppedError(DgcfError):
    """The work was interrupted by a signal; the message says how to resume it."""

    kind, exit_code = "interrupted", 130


def hint_of(message: str) -> str | None:
    """Return the advice of a message: the part after its last ``"; "``, or its last sentence; None for one sentence."""
    return next((message.rpartition(mark)[2] for mark in ("; ", ". ") if mark in message), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known word, or an empty text if none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""
