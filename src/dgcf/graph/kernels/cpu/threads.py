"""A few long jobs at once on the CPU: for work that meets less often than torch's threads do, after every operation."""

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
    """How many threads torch may use here, those that ``undivided`` sets aside included."""
    return _available.get(torch.get_num_threads())


@contextmanager
def undivided() -> Iterator[None]:
    """Let this thread's operations run in it alone: dividing a small one costs more than it saves."""
    threads = available()
    kept = _available.set(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _available.reset(kept)


class Begun:
    """Jobs that other threads may have begun; ``join`` does what is left of them here, and waits for the rest.

    The jobs share torch's threads: with as many jobs as threads, no operation is divided any further. A thread that
    is late (on a busy machine, it may not be woken for a while) finds its job done by another one.
    """

    def __init__(self, jobs: Sequence[Job], helpers: int) -> None:
        self._left = iter(jobs)  # whoever asks next gets the next one
        self._share = max(1, available() // max(1, len(jobs)))
        self._helpers = [_pool(os.getpid()).submit(self._work) for _ in range(helpers)]

    def join(self) -> None:
        """Help, wait until all is done, and raise what a job has raised."""
        before = torch.get_num_threads()
        try:
            self._work()
        finally:
            wait(self._helpers)
            torch.set_num_threads(before)
        for helper in self._helpers:
            helper.result()

    def _work(self) -> None:
        torch.set_num_threads(self._share)  # which holds for the thread that says it
        with torch.no_grad():  # which does, too: the jobs are parts of one differentiable operation
            for job in self._left:
                job()


def together(jobs: Sequence[Job]) -> None:
    """Run all jobs, as many at a time as there are threads, and wait for them.

    Waking a thread costs about 40 µs, dividing one operation as much: so jobs want to be longer than that.
    """
    Begun(jobs, min(len(jobs), available()) - 1).join()


def ahead(jobs: Sequence[Job]) -> Begun:
    """Let the other threads begin with jobs whose results are needed later: ``join`` them then."""
    return Begun(jobs, min(len(jobs), available() - 1))


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of one process: a forked one has its parent's pool, but none of the threads."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="dgcf")
