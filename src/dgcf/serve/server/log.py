"""Logs: one JSON object a line on stderr, without bodies, tokens, ids or the values of queries.

Lines are written by a thread, so that a reader that has stopped cannot stop the service; lines beyond ``PENDING`` are
dropped and counted.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import traceback
from datetime import UTC, datetime
from typing import Any

PENDING = 10_000
EVERY = 0.2
WRITE = 4096  # a pipe takes so many bytes at once, so that the lines of two workers do not mix
TRACEBACK = 3000


class Log:
    """Lines of JSON for a file descriptor."""

    def __init__(self, target: int = 2, **always: Any) -> None:
        """``always``: fields of every line, such as the number of the worker."""
        self._target, self._always = target, always
        self._lines: list[bytes] = []
        self._dropped = 0
        self._wake, self._lock, self._writing = threading.Event(), threading.Lock(), threading.Lock()
        threading.Thread(target=self._run, daemon=True, name="log").start()

    def write(self, event: str, level: str = "info", /, **fields: Any) -> None:
        """Add a line; an error is written at once."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "level": level, "event": event, **self._always, **fields}, default=str)
        with self._lock:
            if len(self._lines) >= PENDING:
                self._dropped += 1
            else:
                self._lines.append(line.encode("ascii") + b"\n")
        if level == "error":
            self._wake.set()

    def exception(self, event: str, problem: BaseException, /, **fields: Any) -> None:
        """Add a line with a traceback."""
        text = "".join(traceback.format_exception(problem))
        self.write(event, "error", error=type(problem).__name__, traceback=text[-TRACEBACK:], **fields)

    def flush(self) -> None:
        """Write the lines that are pending."""
        with self._writing:
            with self._lock:
                lines, self._lines = self._lines, []
                dropped, self._dropped = self._dropped, 0
            if dropped:
                lines.append(json.dumps({"level": "warning", "event": "log lines dropped", "lines": dropped}).encode())
                lines[-1] += b"\n"
            block = b""
            for line in lines:
                if block and len(block) + len(line) > WRITE:
                    self._put(block)
                    block = b""
                block += line
            self._put(block)

    def _put(self, block: bytes) -> None:
        while block:
            try:
                block = block[os.write(self._target, block) :]
            except OSError:
                return  # nobody reads

    def _run(self) -> None:
        while True:
            self._wake.wait(EVERY)
            self._wake.clear()
            self.flush()


class Handler(logging.Handler):
    """Passes on what libraries log, uvicorn above all."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        problem = record.exc_info[1] if record.exc_info else None
        if problem is not None:
            self._log.exception(record.getMessage().strip(), problem, logger=record.name)
        else:
            self._log.write(record.getMessage(), level, logger=record.name)


def use_for_libraries(log: Log) -> None:
    """Write what libraries log and warn of as lines of JSON."""
    root = logging.getLogger()
    root.handlers = [Handler(log)]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
