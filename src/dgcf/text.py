"""Text for a terminal: control characters are replaced by their escapes."""

from __future__ import annotations

import re
from collections.abc import Callable

Notify = Callable[[str], None]
"""Receives a one-line note on what is being done, for the user."""

# C0 except the line feed, DEL and C1; writing direction marks; line separators; lone surrogates.
_CONTROLS = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_CONTROLS}]")
_IN_LINE = re.compile(f"[{_CONTROLS}\n]")


def printable(text: str) -> str:
    r"""Escape control characters, so that names from data cannot control a terminal: ESC becomes ``\x1b``."""
    return _IN_TEXT.sub(_escaped, text)


def printable_line(text: str) -> str:
    r"""Escape control characters and line feeds: the result is one line."""
    return _IN_LINE.sub(_escaped, text)


def printable_json(text: str) -> str:
    """Escape the control characters that ``json.dumps`` keeps; the JSON value stays the same."""
    return _IN_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def counted(count: int, noun: str) -> str:
    """Return ``1 user``, or ``2 users``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
