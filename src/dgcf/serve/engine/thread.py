"""The model thread: one thread that answers all requests, those of lists together."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dgcf.serve.engine.asks import Ask
from dgcf.serve.errors import NotReadyError

T = TypeVar("T")
MOST_TOGETHER = 32
"""Lists that are ranked by one product."""

RankAll = Callable[[Sequence[Ask]], Sequence[dict[str, Any] | Exception]]


@dataclass(frozen=True)
class _Job:
    """An ``Ask``, or a function to call; the result goes to ``future`` of ``loop``."""

    work: Ask | Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class ModelThread:
    """Takes all lists that wait, and has them ranked together; other calls run one by one."""

    def __init__(self, rank: RankAll) -> None:
        self._rank = rank
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.closed = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    async def rank(self, ask: Ask) -> dict[str, Any]:
        """Return the answer to a list."""
        answer: dict[str, Any] = await self._put(ask)
        return answer

    async def call(self, function: Callable[[], T]) -> T:
        """Return what a function returns in the model thread."""
        result: T = await self._put(function)
        return result

    def close(self) -> None:
        """Let what waits be answered, and end the thread."""
        self.closed = True
        self._jobs.put(None)
        self._thread.join()

    def _put(self, work: Ask | Callable[[], Any]) -> asyncio.Future[Any]:
        if self.closed:
            raise NotReadyError("the service is stopping; repeat the request in a moment.")
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), loop)
        self._jobs.put(job)
        return job.future

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs = [first]
            ended = False
            while len(jobs) < MOST_TOGETHER and not self._jobs.empty():
                job = self._jobs.get()
                if job is None:
                    ended = True
                    break
                jobs.append(job)
            self._answer(jobs)
            if ended:
                return

    def _answer(self, jobs: Sequence[_Job]) -> None:
        asks = [job for job in jobs if isinstance(job.work, Ask)]
        if asks:
            _deliver(
                asks, _each(lambda: self._rank([job.work for job in asks if isinstance(job.work, Ask)]), len(asks))
            )
        for job in jobs:
            if not isinstance(job.work, Ask):
                function = job.work
                _deliver([job], _each(lambda: [function()], 1))  # noqa: B023


def _each(work: Callable[[], Sequence[Any]], count: int) -> Sequence[Any]:
    """Return the results, or the error for each."""
    try:
        return work()
    except Exception as problem:
        return [problem] * count


def _deliver(jobs: Sequence[_Job], results: Sequence[Any]) -> None:
    """Set the results in the loops of the jobs, all at once in each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for job, result in zip(jobs, results, strict=True):
        by_loop.setdefault(job.loop, []).append((job.future, result))
    for loop, pairs in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set, pairs)


def _set(pairs: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in pairs:
        if future.done():  # the request was cancelled
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
