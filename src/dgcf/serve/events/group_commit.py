"""Group commit: one thread writes all that waits in one transaction, so that many requests share one flush to disk."""

from __future__ import annotations

import copy
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar, TypeVar

from dgcf.errors import DgcfError
from dgcf.serve.errors import NotReadyError, StoreFullError
from dgcf.serve.events import exposures, statements
from dgcf.serve.events.connection import Connection
from dgcf.serve.events.records import Event

T = TypeVar("T")
JOBS, EVENTS = 512, 8_192
"""Largest number of jobs, and of their events, in one transaction."""
EXPIRED_AT_ONCE = 500
PURGED_AFTER = 86_400.0
"""Seconds after which the marks of users that lost events are deleted."""


@dataclass(frozen=True)
class Job:
    """Work for one transaction: ``events`` to insert, or else ``call``; ``erase``: which leaves no trace."""

    events: Sequence[Event] = ()
    call: Callable[[Connection], Any] | None = None
    erase: bool = False
    future: Future[Any] = field(default_factory=Future)


class GroupCommit(ABC):
    """The only connection of this process that writes; its thread ends with ``close``."""

    errors: ClassVar[tuple[type[Exception], ...]]
    """The errors of the database."""

    def __init__(self, retention_seconds: float | None) -> None:
        self._retention = retention_seconds
        self._pause = 30.0 if retention_seconds is None else min(30.0, max(0.05, retention_seconds / 10))
        self._due = time.monotonic()
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dgcf-events", daemon=True)
        self._thread.start()

    def insert(self, events: Sequence[Event]) -> Future[list[bool]]:
        """Return the future of which events are new."""
        return self._put(Job(events=tuple(events)))

    def call(self, function: Callable[[Connection], T], *, erase: bool = False) -> Future[T]:
        """Return the future of the result of ``function``, which runs in a transaction."""
        return self._put(Job(call=function, erase=erase))

    def close(self) -> None:
        """Write what waits, then end the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _put(self, job: Job) -> Future[Any]:
        with self._lock:
            if self._closed:
                job.future.set_exception(NotReadyError("the event store is closed; try again."))
            else:
                self._queue.put(job)
        return job.future

    # -- what a database does -----------------------------------------------------------------------------------------

    @abstractmethod
    def _transaction(self, function: Callable[[Any], T]) -> T:
        """Return the result of ``function`` of the connection once it is committed and durable."""

    @abstractmethod
    def _insert(self, con: Any, batches: Sequence[Sequence[Event]]) -> list[list[bool]]:
        """Store the events of all batches; return for each whether it is new (False: its key is known)."""

    @abstractmethod
    def _explain(self, problem: Exception) -> Exception:
        """Return the error of a request that an error of the database makes fail."""

    @abstractmethod
    def _end(self) -> None:
        """Close the connection."""

    @abstractmethod
    def _clean(self, *, erase: bool) -> None:
        """Do what is due between transactions; ``erase``: something was deleted of which no trace is to be left."""

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        open_ = True
        while open_:
            jobs, open_ = self._take()
            if jobs:
                self._commit(jobs)
            if time.monotonic() >= self._due and open_:
                self._expire()
        self._end()

    def _take(self) -> tuple[list[Job], bool]:
        """Wait for a job and return all that wait, and whether the writer is to go on."""
        jobs: list[Job] = []
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

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Run the jobs in one transaction; if one fails by itself, run each in its own."""
        try:
            results = self._write(jobs)
        except Exception as problem:
            self._fail(jobs, problem)
        else:
            if any(job.erase for job in jobs):
                self._clean(erase=True)
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

    def _write(self, jobs: Sequence[Job]) -> list[Any]:
        """Run the jobs in one transaction, and return their results."""
        return self._transaction(lambda con: self._results(con, jobs))

    def _results(self, con: Any, jobs: Sequence[Job]) -> list[Any]:
        """Run the jobs in order, consecutive inserts together; return their results."""
        results: list[Any] = []
        for is_call, group in groupby(jobs, key=lambda job: job.call is not None):
            if is_call:
                results += [job.call(con) for job in group if job.call is not None]
            else:
                results += self._insert(con, [job.events for job in group])
        return results

    def _fail(self, jobs: Sequence[Job], problem: Exception) -> None:
        """Report to all jobs that the store cannot write; after another error run each job by itself."""
        error = self._explain(problem) if isinstance(problem, self.errors) else problem
        for job in jobs:
            if len(jobs) == 1 or isinstance(error, StoreFullError):
                job.future.set_exception(copy.copy(error))
            else:
                self._commit([job])

    def _expire(self) -> None:
        """Delete some events beyond the retention; if more are left, go on after the jobs that wait."""
        more = False
        with suppress(*self.errors, DgcfError):  # a full disk, or another process: later
            more = self._delete_old(statements.now()) == EXPIRED_AT_ONCE
        self._due = time.monotonic() + (0 if more else self._pause)
        if not more:
            self._clean(erase=False)

    def _delete_old(self, now: int) -> int:
        """Delete what is due at a time; return the number of events or exposures, at most ``EXPIRED_AT_ONCE``."""
        kept = self._retention

        def delete(con: Connection) -> int:
            statements.purge(con, now - round(PURGED_AFTER * 1e6))
            if kept is None:
                return 0
            before = now - round(kept * 1e6)
            return max(statements.expire(con, before, EXPIRED_AT_ONCE), exposures.expire(con, before, EXPIRED_AT_ONCE))

        return self._transaction(delete)
