"""The errors of dgcf: each says what came, what was expected and what to do, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class DgcfError(Exception):
    """Anything that the person at the keyboard can mend; the command line prints it without a traceback.

    ``kind`` names the class of the problem for programs, and ``exit_code`` is what the command line ends with: 1 where
    the work failed, 2 where the call was wrong.
    """

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    @property
    def hint(self) -> str | None:
        """What to do about it, where the sentence says so."""
        return hint_of(str(self))


class DataError(DgcfError):
    """The data is not what was promised: a file, a column, an id, a checksum."""

    kind = "data"


class ConfigError(DgcfError):
    """An option or a setting is unknown or out of range."""

    kind, exit_code = "config", 2


class NotEnoughMemoryError(ConfigError):
    """What was asked for needs more memory than there is."""

    kind, exit_code = "memory", 1


class NotFittedError(DgcfError):
    """A model was asked for something that only a trained one knows."""

    kind = "not-fitted"


class ArtifactError(DgcfError):
    """A saved run or model is damaged, of another kind, or from another version."""

    kind = "artifact"


class StoppedError(DgcfError):
    """The work was interrupted by a signal; the message says how to resume it."""

    kind, exit_code = "interrupted", 130


def hint_of(message: str) -> str | None:
    """Return what a message advises: the part after its last ``"; "``, else its last sentence; None if it has one."""
    return next((message.rpartition(mark)[2] for mark in ("; ", ". ") if mark in message), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known word, or nothing where none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""
