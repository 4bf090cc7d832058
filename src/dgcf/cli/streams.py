"""The standard streams of a process: they may be closed, full, or lose their reader, and the work goes on."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any, TextIO

READER_GONE = (errno.EPIPE, errno.ECONNRESET)


class ResultNotWrittenError(OSError):
    """Standard output did not take the result."""


class Outlet(io.FileIO):
    """A descriptor to write to; what nobody can read any more is dropped, and so is all after a failure.

    Where ``forgiving``, every failure is one of these: remarks on stderr are no reason to stop.
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
    """Replace stdout and stderr by streams that outlive their readers; a closed one leads nowhere."""
    _open_closed()
    sys.stdout = _stream(1, sys.stdout, forgiving=False)
    sys.stderr = _stream(2, sys.stderr, forgiving=True)


def _open_closed() -> None:
    """Occupy the closed ones of descriptors 0 to 2, or a file opened later would take their place and their text."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def _stream(descriptor: int, old: TextIO | None, *, forgiving: bool) -> TextIO:
    if old is not None:
        with contextlib.suppress(OSError, ValueError):
            old.flush()
    # Ids are any text: a terminal that cannot show a letter is no reason to fail.
    return io.TextIOWrapper(
        io.BufferedWriter(Outlet(descriptor, forgiving=forgiving)),
        encoding=getattr(old, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=forgiving or os.isatty(descriptor),
    )
