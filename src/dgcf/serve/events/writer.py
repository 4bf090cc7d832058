"""Group commit: one thread writes all that waits in one transaction, so that many requests share one flush to disk."""

from __future__ import annotations

import contextlib
import copy
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from dgcf.errors import DgcfError
from dgcf.serve.errors import NotReadyError, StoreFullError
from dgcf.serve.events import exposures, statements
from dgcf.serve.events.database import BUSY_SECONDS, CHECKED_BYTES, as_request_error, connect, identity
from dgcf.serve.events.records import Event

T = TypeVar("T")
JOBS, EVENTS = 512, 8_192
"""Largest number of jobs, and of their events, in one transaction."""
_POLL = 0.008
"""Seconds that SQLite waits for another process before it is called again."""
EXPIRED_AT_ONCE = 500
_ERASE_AGAIN = 1.0
"""Seconds after which erasing is tried again."""
COMPACTED_EVERY = 86_400.0
"""Seconds between two times at which a file is written anew because rows were deleted."""
PURGED_AFTER = 86_400.0
"""Seconds after which the marks of users that lost events are deleted."""


@dataclass(frozen=True)
class _Job:
    """Work for one transaction: ``events`` to insert, or else ``call``. ``erase``: leave no trace in the log."""

    events: Sequence[Event] = ()
    call: Callable[[sqlite3.Connection], Any] | None = None
    erase: bool = False
    future: Future[Any] = field(default_factory=Future)


class Writer:
    """The only connection of this process that writes; its thread ends with ``close``."""

    def __init__(self, path: Path, retention_seconds: float | None) -> None:
        self._path, self._identity = path, identity(path)
        self._retention = retention_seconds
        self._pause = 30.0 if retention_seconds is None else min(30.0, max(0.05, retention_seconds / 10))
        self._due = time.monotonic()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = self._erase = False
        self._compact_due = self._due + COMPACTED_EVERY / 24
        self._con: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="dgcf-events", daemon=True)
        self._thread.start()

    def insert(self, events: Sequence[Event]) -> Future[list[bool]]:
        """Return the future of which events are new."""
        return self._put(_Job(events=tuple(events)))

    def call(self, function: Callable[[sqlite3.Connection], T], *, erase: bool = False) -> Future[T]:
        """Return the future of the result of ``function``, which runs in a transaction."""
        return self._put(_Job(call=function, erase=erase))

    def close(self) -> None:
        """Write what waits, then end the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _put(self, job: _Job) -> Future[Any]:
        with self._lock:
            if self._closed:
                job.future.set_exception(NotReadyError("the event store is closed; try again."))
            else:
                self._queue.put(job)
        return job.future

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        open_ = True
        while open_:
            jobs, open_ = self._take()
            if jobs:
                self._commit(jobs)
            if time.monotonic() >= self._due and open_:
                self._expire()
        if self._con is not None:
            with contextlib.suppress(sqlite3.Error):
                self._con.close()

    def _take(self) -> tuple[list[_Job], bool]:
        """Wait for a job and return all that wait, and whether the writer is to go on."""
        jobs: list[_Job] = []
        events = 0
        wait: float | None = max(0.0, self._due - time.monotonic())
        while len(jobs) < JOBS and events < EVENTS:
            try:
                job = self._queue.get(timeout=wait) if wait else self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            if job.future.set_running_or_notify_cancel():
                jobs.append(job)
                events += len(job.events)
            wait = None
        return jobs, True

    def _commit(self, jobs: Sequence[_Job]) -> None:
        """Run the jobs in one transaction; if one fails by itself, run each in its own."""
        try:
            results = self._transaction(lambda con: _results(con, jobs))
        except Exception as problem:
            self._fail(jobs, problem)
        else:
            if any(job.erase for job in jobs):
                self._erase = True
                self._clean()
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

    def _fail(self, jobs: Sequence[_Job], problem: Exception) -> None:
        """Report an error of the disk to all jobs; after another error run each job by itself."""
        error = as_request_error(problem, self._path.name) if isinstance(problem, sqlite3.Error) else problem
        for job in jobs:
            if len(jobs) == 1 or isinstance(error, StoreFullError):
                job.future.set_exception(copy.copy(error))
            else:
                self._commit([job])

    def _transaction(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of ``function`` once it is committed; after an error the connection is opened anew."""
        try:
            if identity(self._path) != self._identity:  # SQLite would go on to write to the deleted file
                name = self._path.name
                raise StoreFullError(f"{name} was moved or deleted while it was in use; restart the service.")
            if self._con is None:
                self._con = connect(self._path, timeout=_POLL)
            _begin(self._con)
            result = function(self._con)
            self._con.execute("COMMIT")
        except BaseException:
            con, self._con = self._con, None
            if con is not None:
                with contextlib.suppress(sqlite3.Error):
                    con.close()  # rolls back
            raise
        return result

    def _clean(self) -> None:
        """Leave nothing of what was deleted in a small file and its log; in a large file once a day.

        Readers, other writers or a full disk may put this off.
        """
        if self._con is None:
            return
        with contextlib.suppress(sqlite3.Error, OSError):
            self._con.execute("PRAGMA busy_timeout = 200")
            now = time.monotonic()
            if now >= self._compact_due or (self._erase and self._path.stat().st_size <= CHECKED_BYTES):
                self._compact_due = now + COMPACTED_EVERY
                statements.compact(self._con)
            if self._erase:
                self._erase = bool(self._con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            self._con.execute(f"PRAGMA busy_timeout = {round(_POLL * 1000)}")
        if self._erase:
            self._due = min(self._due, time.monotonic() + _ERASE_AGAIN)

    def _expire(self) -> None:
        """Delete some events beyond the retention; if more are left, go on after the jobs that wait."""
        more = False
        now, kept = statements.now(), self._retention

        def delete(con: sqlite3.Connection) -> int:
            statements.purge(con, now - round(PURGED_AFTER * 1e6))
            if kept is None:
                return 0
            before = now - round(kept * 1e6)
            return max(statements.expire(con, before, EXPIRED_AT_ONCE), exposures.expire(con, before, EXPIRED_AT_ONCE))

        with contextlib.suppress(sqlite3.Error, DgcfError):  # a full disk, or another process: later
            more = self._transaction(delete) == EXPIRED_AT_ONCE
        self._due = time.monotonic() + (0 if more else self._pause)
        if not more:
            self._clean()


def _begin(con: sqlite3.Connection) -> None:
    """Begin to write; wait for another process by the first, short pauses of SQLite, since its later ones are long."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            con.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise


def _results(con: sqlite3.Connection, jobs: Sequence[_Job]) -> list[Any]:
    """Run the jobs in order, consecutive inserts together; return their results."""
    results: list[Any] = []
    for is_call, group in groupby(jobs, key=lambda job: job.call is not None):
        if is_call:
            results += [job.call(con) for job in group if job.call is not None]
        else:
            results += statements.insert(con, [job.events for job in group])
    return results
