"""Text for a terminal: characters that a terminal obeys instead of showing are replaced by their escapes."""

from __future__ import annotations

import re
from collections.abc import Callable

Notify = Callable[[str], None]
"""Receives a one-line note on what is being done, for the user."""

# C0 but the line feed, DEL and C1; marks and overrides of the writing direction; line separators; lone surrogates.
_OBEYED = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_OBEYED}]")
_IN_LINE = re.compile(f"[{_OBEYED}\n]")


def printable(text: str) -> str:
    r"""Escape control characters, so that names from data and disks cannot steer a terminal: ESC becomes ``\x1b``."""
    return _IN_TEXT.sub(_escaped, text)


def printable_line(text: str) -> str:
    r"""Escape line feeds too: the result is one line."""
    return _IN_LINE.sub(_escaped, text)


def printable_json(text: str) -> str:
    """Escape the control characters that ``json.dumps`` leaves as they are; the JSON still means the same."""
    return _IN_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
