"""The refresh in a worker: takes the lease when one is due or demanded, runs the process, and publishes its model.

There is no leader. Every worker of every service that shares the store looks whether a refresh is due; the one that
takes the lease carries it out and renews the lease meanwhile. If it dies, the lease runs out, and another one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dgcf.errors import DgcfError
from dgcf.memory import available_memory
from dgcf.serve.engine.publishing import Publishing
from dgcf.serve.errors import ModelRefusedError, RequestError
from dgcf.serve.events.export import write_liked
from dgcf.serve.events.records import ModelRow, NewModel
from dgcf.serve.events.store import EventStore
from dgcf.serve.refresh.child import carry_out
from dgcf.serve.refresh.process import without_torch
from dgcf.serve.refresh.schedule import Present
from dgcf.serve.server.log import Log
from dgcf.serve.settings import Settings

LEAST_MEMORY = 512 * 2**20
"""What a process may use at least, if half of the free memory is less."""
LOOK_SECONDS = 5.0
"""The longest pause between two looks whether a refresh is due."""
_FOLDER = "refresh-"
_STOPPED = "the service was stopped; the served model stays."

Outcome = dict[str, Any]


class RunningError(RequestError):
    """A refresh runs already, or cannot run here."""

    kind, status, title = "conflict", 409, "The refresh cannot begin"


class Refresher:
    """Carries out refreshes in a worker; all methods are for one event loop."""

    def __init__(self, settings: Settings, store: EventStore, publishing: Publishing, log: Log) -> None:
        self.settings, self.store = settings, store
        self._publishing, self._log = publishing, log
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._watching: asyncio.Future[None] | None = None
        self._running: asyncio.Future[None] | None = None
        self._step = "export"
        self._stepped = asyncio.Event()

    def start(self) -> None:
        """Begin to look whether a refresh is due, if there is a schedule."""
        if self.settings.refresh.every is not None:
            self._watching = asyncio.ensure_future(self._watch(self.settings.refresh.every))

    async def close(self) -> None:
        """End the process of a refresh; it is recorded as failed, and begun again later."""
        for task in (self._watching, self._running):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def demand(self) -> int:
        """Begin a refresh now, and return its id; raise ``RunningError`` if one runs, or none can run here."""
        if (reason := without_torch()) is not None:
            raise RunningError(reason)
        number = await self._begin("admin")
        if number is None:
            raise RunningError("a refresh is running; repeat the request when GET /v1/admin/refresh says idle.")
        return number

    async def _watch(self, every: float) -> None:
        pause = min(LOOK_SECONDS, every / 4)
        while True:
            await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
            try:
                present = await asyncio.to_thread(Present.read, self.store)
                due = present.due(every)
                if due is not None and due <= time.time():
                    await self._begin("schedule", present.newest.id if present.newest else 0)
            except (RequestError, sqlite3.Error) as problem:
                self._log.write("refresh not begun", "error", error=str(problem))

    async def _begin(self, cause: str, newest: int | None = None) -> int | None:
        """Take the lease and begin; return the id of the refresh, or None if another one has it."""
        if self._running is not None and not self._running.done():
            return None
        holder = f"{self._holder}:{secrets.token_hex(4)}"
        lease = self.settings.refresh.lease
        number = await asyncio.wrap_future(self.store.begin_refresh(holder, cause, lease, newest=newest))
        if number is not None:
            self._log.write("refresh begun", refresh=number, cause=cause)
            self._running = asyncio.ensure_future(self._run(number, holder))
        return number

    # One refresh

    async def _run(self, number: int, holder: str) -> None:
        """Carry out a refresh while its lease is renewed; if the lease is lost, the refresh ends without a trace."""
        started = time.monotonic()
        work = asyncio.ensure_future(self._outcome(number, holder))
        renewal = asyncio.ensure_future(self._renew(number, holder))
        try:
            await asyncio.wait([work, renewal], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait([work])
            with contextlib.suppress(RequestError):
                await asyncio.wrap_future(self.store.end_refresh(number, holder, "failed", _STOPPED))
            raise
        finally:
            renewal.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait([work])
            self._log.write("refresh lost its lease", "error", refresh=number)
        elif (problem := work.exception()) is not None:
            self._log.exception("refresh failed", problem, refresh=number)
        else:
            seconds = round(time.monotonic() - started, 3)
            self._log.write("refresh ended", refresh=number, seconds=seconds, **work.result())

    async def _renew(self, number: int, holder: str) -> None:
        """Renew the lease and record steps; return once the lease is lost."""
        lease = self.settings.refresh.lease
        held = True
        while held:
            self._stepped.clear()
            with contextlib.suppress(RequestError):  # a full disk: the lease may run out, and then nothing is published
                held = await asyncio.wrap_future(self.store.renew_refresh(number, holder, self._step, lease))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stepped.wait(), lease / 4)

    def _note(self, step: str) -> None:
        self._step = step
        self._stepped.set()

    async def _outcome(self, number: int, holder: str) -> Outcome:
        """Carry out a refresh, record what came of it, and return that."""
        with self._work_folder() as folder:
            model, learned = None, 0
            try:
                outcome, model, learned = await self._learn(folder)
            except DgcfError as problem:
                outcome = {"result": "failed", "detail": str(problem)}
            except (OSError, ValueError) as problem:
                self._log.exception("refresh failed", problem, refresh=number)
                outcome = {"result": "failed", "detail": f"the refresh failed ({problem}); the served model stays."}
            new = None if model is None else await self._new_model(folder, outcome, model, learned)
            end = self.store.end_refresh(number, holder, outcome["result"], outcome["detail"], new)
            version = await asyncio.wrap_future(end)
        await asyncio.to_thread(self._publishing.clean)
        return {"result": outcome["result"], "detail": outcome["detail"], "version": version or None}

    async def _learn(self, folder: Path) -> tuple[Outcome, ModelRow | None, int]:
        """Return the outcome, the model that was updated if there is a new one, and the position of its last event."""
        self._note("export")
        base = await asyncio.to_thread(self.store.current_model)
        if base is None:
            raise ModelRefusedError("no model is published yet; wait until the service is ready.")
        events, since = folder / "events.parquet", base.learned or 0
        learned, count = await asyncio.to_thread(write_liked, self.store, events, since)
        if not count:
            return {"result": "unchanged", "detail": "no event since the model was trained."}, None, learned
        if (reason := without_torch()) is not None:
            return {"result": "refused", "detail": f"{reason} The served model stays."}, None, learned
        how = self.settings.refresh
        orders = {
            "base": str(await asyncio.to_thread(self._publishing.fetch, base.sha256)),
            "events": str(events),
            "out": str(folder / "update.dgcf"),
            "forgotten": sorted(await asyncio.to_thread(self.store.forgotten)),
            "margin": how.margin,
        }
        self._note("start")
        memory = how.memory or max(LEAST_MEMORY, (available_memory() or 0) // 2)
        outcome = await carry_out(orders, folder, memory=memory, timeout=how.timeout, note=self._note)
        return outcome, base if outcome["result"] == "published" else None, learned

    async def _new_model(self, folder: Path, outcome: Outcome, base: ModelRow, learned: int) -> NewModel:
        """Put the new model among the copies, and return what is to be published."""
        self._note("publish")
        await asyncio.to_thread(self._publishing.take, folder / "update.dgcf", outcome["sha256"])
        card = json.dumps(outcome["card"], ensure_ascii=False)
        return NewModel(outcome["sha256"], base.path, "refresh", card, learned, base.arm, after=base.version)

    @contextlib.contextmanager
    def _work_folder(self) -> Iterator[Path]:
        """Yield a folder for the files of a refresh; those of earlier ones, which were killed, are deleted."""
        for left in self.settings.data.glob(f"{_FOLDER}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=self.settings.data, ignore_cleanup_errors=True) as name:
            yield Path(name)
