"""Parallel jobs on the CPU that synchronise once per job, where torch's threads synchronise after every operation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch

Job = Callable[[], object]


_available: ContextVar[int] = ContextVar("available")


def available() -> int:
    """Return how many threads torch may use, including those that ``undivided`` sets aside."""
    return _available.get(torch.get_num_threads())


@contextmanager
def undivided() -> Iterator[None]:
    """Run the operations of this thread undivided: dividing a small one costs more than it saves."""
    threads = available()
    kept = _available.set(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _available.reset(kept)


class Begun:
    """Jobs that other threads may have begun; ``join`` runs the remaining ones and waits for the rest.

    The jobs share torch's threads: with as many jobs as threads, no operation is divided further. If a thread wakes
    late, as it may on a busy machine, another one does its job.
    """

    def __init__(self, jobs: Sequence[Job], helpers: int) -> None:
        self._left = iter(jobs)  # shared by all threads
        self._share = max(1, available() // max(1, len(jobs)))
        self._helpers = [_pool(os.getpid()).submit(self._work) for _ in range(helpers)]

    def join(self) -> None:
        """Help, wait until all jobs are done, and raise the exception of a job."""
        before = torch.get_num_threads()
        try:
            self._work()
        finally:
            wait(self._helpers)
            torch.set_num_threads(before)
        for helper in self._helpers:
            helper.result()

    def _work(self) -> None:
        torch.set_num_threads(self._share)  # for the current thread only
        with torch.no_grad():  # also per thread: the jobs are parts of one differentiable operation
            for job in self._left:
                job()


def together(jobs: Sequence[Job]) -> None:
    """Run all jobs, as many at a time as there are threads, and wait for them.

    Waking a thread costs about 40 µs, as much as dividing one operation, so jobs should take longer than that.
    """
    Begun(jobs, min(len(jobs), available()) - 1).join()


def ahead(jobs: Sequence[Job]) -> Begun:
    """Start jobs on the other threads; call ``join`` when their results are needed."""
    return Begun(jobs, min(len(jobs), available() - 1))


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads of one process: a forked process inherits the pool, but none of its threads."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="dgcf")
