"""Standard streams that may be closed, full or without a reader; the work continues."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any, TextIO

READER_GONE = (errno.EPIPE, errno.ECONNRESET)


class ResultNotWrittenError(OSError):
    """The result could not be written to stdout."""


class DescriptorWriter(io.FileIO):
    """A file descriptor that drops what is written after its reader has closed.

    With ``forgiving``, every failure is treated so: a remark on stderr that cannot be written must not stop the work.
    """

    def __init__(self, descriptor: int, *, forgiving: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.forgiving, self.lost, self.terminal = forgiving, False, self.isatty()

    def write(self, data: Any) -> int:
        if not self.lost:
            try:
                return super().write(data)
            except OSError as problem:
                self.lost = True
                vanished = problem.errno == errno.EIO and self.terminal
                if not (self.forgiving or vanished or problem.errno in READER_GONE):
                    raise ResultNotWrittenError(problem.errno, problem.strerror) from None
        return len(data)


def secure_streams() -> None:
    """Replace stdout and stderr by streams that outlive their readers; a closed one becomes the null device."""
    _open_closed()
    sys.stdout = _stream(1, sys.stdout, forgiving=False)
    sys.stderr = _stream(2, sys.stderr, forgiving=True)


def _open_closed() -> None:
    """Open the null device for each closed descriptor of 0 to 2; otherwise a file opened later would get its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # opens the lowest free number, which is this one


def _stream(descriptor: int, old: TextIO | None, *, forgiving: bool) -> TextIO:
    if old is not None:
        with contextlib.suppress(OSError, ValueError):
            old.flush()
    # Ids are any text: a letter that the terminal cannot show must not be an error.
    return io.TextIOWrapper(
        io.BufferedWriter(DescriptorWriter(descriptor, forgiving=forgiving)),
        encoding=getattr(old, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=forgiving or os.isatty(descriptor),
    )
