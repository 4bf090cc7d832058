"""A worker: the process that answers requests. ``python -m dgcf.serve.server.worker`` is run by the supervisor.

Its settings, tokens among them, come over the channel to the supervisor. When the supervisor ends, it ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from dgcf.errors import DgcfError
from dgcf.serve.engine import Engine
from dgcf.serve.events.records import Event
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.split import engine_of
from dgcf.serve.http.app import create_app
from dgcf.serve.refresh.refresher import Refresher
from dgcf.serve.server.board import Board, BoardTally, Field, Slot, State
from dgcf.serve.server.commits import SharedCommits
from dgcf.serve.server.guard import Guard
from dgcf.serve.server.handover import Channel, error_as_data, settings_of_data
from dgcf.serve.server.listener import Listener, silence_uvicorn
from dgcf.serve.server.log import Log, use_for_libraries
from dgcf.serve.server.metrics import Metrics
from dgcf.serve.server.rate import RateLimit
from dgcf.serve.server.telemetry import with_traces
from dgcf.serve.settings import Settings

PAGE_BYTES = resource.getpagesize()
SWITCH_SECONDS = 0.001
"""Seconds after which a thread hands Python's lock on, so that answers wait little while a model is loaded."""
SPARE_FILES = 256
"""File descriptors beside those of connections."""
TRACES_SECONDS = 3.0
"""How long the last traces may take to be sent."""


class CountingStore(EventStore):
    """An event store that counts new and known events in the slot of the worker."""

    slot: Slot

    def submit(self, events: Sequence[Event]) -> Future[list[bool]]:
        future = super().submit(events)
        future.add_done_callback(self._count)
        return future

    def _count(self, future: Future[list[bool]]) -> None:
        """Count what was stored; only the thread that writes calls this."""
        if not future.cancelled() and future.exception() is None:
            new = sum(future.result())
            self.slot.add(Field.EVENTS_STORED, new)
            self.slot.add(Field.EVENTS_DUPLICATE, len(future.result()) - new)


class Worker:
    """One worker; ``orders`` is the first message of the supervisor."""

    def __init__(self, channel: Channel, board: Board, sock: socket.socket, orders: dict[str, Any]) -> None:
        self.settings: Settings = settings_of_data(orders["settings"])
        self.number: int = orders["worker"]
        self.fresh: bool = orders["fresh"]
        self._key = bytes.fromhex(orders["rate_key"])
        self._channel, self._board, self._socket = channel, board, sock
        self.slot = board.slot(self.number)
        self.log = Log(2, worker=self.number)
        self._stop = asyncio.Event()
        self._models: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Serve until the supervisor stops it; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_reader(self._channel.fileno(), self._hear)
        for message in self._channel.pending():
            self._obey(message)
        try:
            with await asyncio.to_thread(self._open_store) as store:
                return await self._serve(store)
        except DgcfError as problem:
            self._channel.send({"failed": error_as_data(problem)})
        except Exception as problem:
            self.log.exception("worker failed", problem)
            text = f"a worker failed ({type(problem).__name__}: {problem}); this is a bug in dgcf, please report it."
            self._channel.send({"failed": {"type": "", "message": text}})
        return 1

    def _open_store(self) -> CountingStore:
        commits = SharedCommits(self._board, self.slot)
        store = CountingStore.open(self.settings.events_at, retention_seconds=self.settings.retention, commits=commits)
        store.slot = self.slot
        return store

    async def _serve(self, store: EventStore) -> int:
        app, engine = self._application(store)
        guard = Guard(app, self.settings, self.slot, self.log, self._rate_limit())
        traced, end_traces = with_traces(guard, self.log)
        listener = Listener(guard, self._board, self.number, traced)
        app.openapi()
        gc.collect()
        gc.freeze()  # of the modules, not of the model, which a reload replaces: a full collection takes 1 ms, not 40
        try:
            if self.fresh:  # so that /healthz and /readyz answer while the model is loaded
                await listener.listen(self._socket)
            await self._start(engine)
            if not self.fresh:
                await listener.listen(self._socket)
            self._refresher.start()
            await self._until_stopped(engine)
        finally:
            engine.ready = False
            await self._refresher.close()
            self.slot.set(Field.STATE, State.STOPPING)
            await listener.stop(self.settings.limits.stop_seconds)
            await engine.close()
            ending = threading.Thread(target=end_traces, daemon=True)
            ending.start()
            ending.join(TRACES_SECONDS)
        return 0

    def _application(self, store: EventStore) -> tuple[FastAPI, Engine]:
        """Return the application with its engine, and set what else the worker uses of it."""
        tally = BoardTally(self._board, self.slot, self.settings.arms)
        self._engine = engine = engine_of(self.settings, store, tally)
        metrics = Metrics(
            self._board,
            store.size,
            store.count,
            lambda: (engine.model_version, engine.model_loaded),
            self.settings.more,
            store,
        )
        self._refresher = Refresher(self.settings, store, engine.publishing, self.log)
        app = create_app(
            engine,
            store,
            self.settings,
            operations=metrics.operations,
            metrics=metrics.prometheus,
            tally=tally,
            refresher=self._refresher,
        )
        return app, engine

    async def _start(self, engine: Engine) -> None:
        """Load the model, unless the service is stopped meanwhile."""
        starting = asyncio.ensure_future(engine.start(fresh=self.fresh))
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if starting.done():
            starting.result()
        else:
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError, DgcfError):
                await starting

    async def _until_stopped(self, engine: Engine) -> None:
        if not self._stop.is_set():
            self._note(engine)
            self.slot.set(Field.STATE, State.READY)
            self._channel.send({"ready": True})
            self.log.write("worker is ready", model=engine.model_version)
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1.0)
            self._note(engine)

    def _rate_limit(self) -> RateLimit | None:
        rate = self.settings.rate
        return None if rate is None else RateLimit(rate, self._board.rates, self._key)

    def _note(self, engine: Engine) -> None:
        """Write what the worker uses to its slot."""
        slot = self.slot
        versions = [engine.of(arm).model_version for arm in self.settings.arms]
        if versions != self._models:
            self._models = versions
            gc.collect()  # the model before it is in cycles
        slot.set(Field.MODEL, engine.model_version)
        slot.set(Field.MEMORY, resident_bytes())
        slot.set(Field.CPU, round(time.process_time() * 1e6))
        slot.set(Field.FILES, open_files())

    # -- orders -------------------------------------------------------------------------------------------------------

    def _obey(self, message: dict[str, Any]) -> None:
        if message["do"] == "stop":
            self._stop.set()
        elif message["do"] == "reload":
            task = asyncio.get_running_loop().create_task(self._reload())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _hear(self) -> None:
        for message in self._channel.receive():
            self._obey(message)
        if self._channel.ended:  # the supervisor has ended
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._stop.set()

    async def _reload(self) -> None:
        try:
            model = await self._engine.reload()
        except DgcfError as problem:
            self.log.write("model refused", "error", error=str(problem))
        except Exception as problem:
            self.log.exception("model refused", problem)
        else:
            self.log.write("model reloaded", model=model.get("version", self._engine.model_version))


def resident_bytes() -> int:
    """Return the resident memory of this process; its largest one where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def open_files() -> int:
    """Return the number of open file descriptors, 0 if the system does not say."""
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:
        return 0


def allow_files(wanted: int) -> None:
    """Raise the limit of open files to what the connections need, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def main(listening: int, channel_end: int, shared: int) -> int:
    """Run a worker on three descriptors: the socket that is bound, the channel, and the board."""
    os.umask(0o077)  # events are personal data: no other user of the machine may read them
    for number in (signal.SIGINT, signal.SIGHUP):  # for the supervisor; a terminal sends them to all
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_SECONDS)
    channel = Channel(socket.socket(fileno=channel_end))
    orders = channel.first()
    if orders is None:
        return 1
    board = Board(shared, orders["settings"]["workers"])
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        worker = Worker(channel, board, socket.socket(fileno=listening), orders)
        worker.slot.reset(os.getpid())
        use_for_libraries(worker.log)
        silence_uvicorn()
        allow_files(worker.settings.limits.connections + SPARE_FILES)
        code = runner.run(worker.run())
    worker.log.flush()
    return code


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
