"""The errors of dgcf: each says what came, what was expected and what to do, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class DgcfError(Exception):
    """Anything that the person at the keyboard can mend; the command line prints it without a traceback."""


class DataError(DgcfError):
    """The data is not what was promised: a file, a column, an id, a checksum."""


class ConfigError(DgcfError):
    """An option or a setting is unknown or out of range."""


class NotFittedError(DgcfError):
    """A model was asked for something that only a trained one knows."""


class ArtifactError(DgcfError):
    """A saved run or model is damaged, of another kind, or from another version."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known word, or nothing where none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""
