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


def together(jobs: Sequence[Job]) -> None:
    """Run all jobs, the first one here and each other one in a thread of its own, and wait for them.

    The jobs share torch's threads between them: with as many jobs as threads, no operation is divided any further.
    Waking a thread costs about 40 µs, dividing one operation as much: so jobs want to be longer than that.
    """
    threads = available()
    share = max(1, threads // len(jobs))
    started = [_pool(os.getpid()).submit(_with_threads, share, job) for job in jobs[1:]]
    before = torch.get_num_threads()
    try:
        _with_threads(share, jobs[0])
    finally:
        wait(started)
        torch.set_num_threads(before)
    for job in started:
        job.result()  # raises what the job has raised


def _with_threads(share: int, job: Job) -> None:
    torch.set_num_threads(share)  # which holds for the thread that says it
    with torch.no_grad():  # which does, too: the jobs are parts of one differentiable operation
        job()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of one process: a forked one has its parent's pool, but none of the threads."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="dgcf")
