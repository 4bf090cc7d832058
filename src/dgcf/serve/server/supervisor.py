"""The supervisor: binds the socket, starts the workers, starts again those that die, and passes on signals.

Workers are fresh processes, not forks, so they share no threads or locks with it. It loads no model.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import time
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import Any

from dgcf.errors import DgcfError
from dgcf.serve.events.address import parse
from dgcf.serve.server.binding import DataFolder, bind, require_model, require_packages, url_of
from dgcf.serve.server.board import Board
from dgcf.serve.server.handover import StartError, error_of_data, settings_as_data
from dgcf.serve.server.log import Log
from dgcf.serve.server.process import WorkerProcess
from dgcf.serve.settings import Settings
from dgcf.version import __version__

SAMPLE_SECONDS = 1.0
FIRST_PAUSE, PAUSE_IF_READY, PAUSE_IF_NOT = 0.1, 1.0, 30.0
"""Pauses before a worker is started again: the first, and the longest ones if it was ready or could not even start."""
STEADY_SECONDS = 30.0
"""A worker that was ready and has run so long is started again at once."""
SPARE_SECONDS = 5.0
"""Seconds beyond ``stop_seconds`` after which a worker is killed."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class Supervisor:
    """Runs the workers of ``settings``."""

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self.settings = settings
        self._socket = sock
        self._board = Board.create(settings.workers)
        self._log = Log(2, worker=None)
        self._rate_key = secrets.token_hex(16)
        self._selector = selectors.DefaultSelector()
        self._workers: list[WorkerProcess | None] = [None] * settings.workers
        self._due: list[float] = [0.0] * settings.workers
        self._failures = [0] * settings.workers
        self._requested: set[int] = set()
        self._next_sample = 0.0
        self._terminal = _has_terminal()

    def run(self, ready: Callable[[], None]) -> None:
        """Start the workers, call ``ready`` when all answer, and return when a signal has stopped the service."""
        wake, write = socket.socketpair()
        for end in (wake, write):
            end.setblocking(False)
        before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, self._note_signal) for number in SIGNALS}
        self._selector.register(wake, selectors.EVENT_READ)
        try:
            self._start_first()
            if not self._stopping:
                ready()
            while not self._stopping:
                self._step(wake)
        finally:
            self._end_workers(wake)
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for end in (wake, write):
                end.close()
            self._selector.close()
            self._board.close()
            self._log.flush()

    # -- signals ------------------------------------------------------------------------------------------------------

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._requested.add(number)

    @property
    def _stopping(self) -> bool:
        return bool(self._requested & {signal.SIGTERM, signal.SIGINT})

    def _handle_hangup(self) -> None:
        """Reload the model; if the terminal was closed, stop."""
        self._requested.discard(signal.SIGHUP)
        if self._terminal and not _has_terminal():
            self._requested.add(signal.SIGTERM)
            return
        for worker in self._workers:
            if worker is not None and worker.ready:
                worker.channel.send({"do": "reload"})
                return

    # -- workers ------------------------------------------------------------------------------------------------------

    def _start_first(self) -> None:
        """Start the workers for the first time, unless a signal stops it; raise what keeps one from starting."""
        self._launch(0, fresh=True)
        self._await_ready(1)
        if self._stopping:
            return
        for number in range(1, self.settings.workers):
            self._launch(number, fresh=False)
        self._await_ready(self.settings.workers)

    def _await_ready(self, count: int) -> None:
        while sum(worker is not None and worker.ready for worker in self._workers) < count:
            for key, _ in self._selector.select(SAMPLE_SECONDS):
                if isinstance(key.data, WorkerProcess) and not self._hear(key.data):
                    self._forget(key.data)
                    raise self._reason(key.data)
            if self._stopping:
                return

    def _reason(self, worker: WorkerProcess) -> DgcfError:
        if worker.failed is not None:
            return error_of_data(worker.failed)
        how = worker.end_in_words()
        return StartError(f"a worker {how} while it was starting; its log lines above may say why.")

    def _launch(self, number: int, *, fresh: bool) -> None:
        worker = WorkerProcess(number, self._socket.fileno(), self._board.descriptor)
        self._workers[number] = worker
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        settings = settings_as_data(self.settings)
        worker.channel.send({"settings": settings, "worker": number, "fresh": fresh, "rate_key": self._rate_key})

    def _step(self, wake: socket.socket) -> None:
        """Wait for a signal, a worker or the next second, and do what is due."""
        for key, _ in self._selector.select(self._pause()):
            if key.fileobj is wake:
                wake.recv(4096)
            elif not self._hear(key.data):
                self._replace(key.data)
        if signal.SIGHUP in self._requested:
            self._handle_hangup()
        now = time.monotonic()
        if now >= self._next_sample:
            self._board.sample()
            self._next_sample = max(self._next_sample + SAMPLE_SECONDS, now)
        for number, worker in enumerate(self._workers):
            if worker is None and now >= self._due[number]:
                self._launch(number, fresh=False)

    def _pause(self) -> float:
        """Return the seconds until something is due."""
        due = [at for at, worker in zip(self._due, self._workers, strict=True) if worker is None]
        return max(0.0, min([self._next_sample, *due]) - time.monotonic())

    def _hear(self, worker: WorkerProcess) -> bool:
        """Take what a worker says; return False if it has ended."""
        for message in worker.channel.receive():
            worker.ready = worker.ready or "ready" in message
            worker.failed = message.get("failed", worker.failed)
        return not worker.channel.ended

    def _forget(self, worker: WorkerProcess) -> None:
        self._selector.unregister(worker.channel)
        worker.finish()
        self._board.set_absent(worker.number)
        self._workers[worker.number] = None

    def _replace(self, worker: WorkerProcess) -> None:
        """Start a worker that has ended again, at once or, if it ends again and again, later."""
        self._forget(worker)
        number = worker.number
        steady = worker.ready and time.monotonic() - worker.since > STEADY_SECONDS
        self._failures[number] = 0 if steady else self._failures[number] + 1
        longest = PAUSE_IF_READY if worker.ready else PAUSE_IF_NOT
        pause = 0.0 if steady else min(FIRST_PAUSE * 2.0 ** min(self._failures[number] - 1, 20), longest)
        self._due[number] = time.monotonic() + pause
        self._board.count_restart()
        self._log.write(
            "worker ended",
            "error",
            slot=number,
            how=worker.end_in_words(),
            reason=worker.failed and worker.failed["message"],
            restart_in=round(pause, 1),
        )

    def _end_workers(self, wake: socket.socket) -> None:
        """Let the workers finish what they are answering; kill those that take too long, or all at a second signal."""
        self._socket.close()
        running = [worker for worker in self._workers if worker is not None]
        for worker in running:
            worker.channel.send({"do": "stop"})
        self._requested.clear()
        until = time.monotonic() + self.settings.limits.stop_seconds + SPARE_SECONDS
        while running and time.monotonic() < until and not self._stopping:
            for key, _ in self._selector.select(0.2):
                if key.fileobj is wake:
                    wake.recv(4096)
                elif not self._hear(key.data):
                    self._forget(key.data)
                    running.remove(key.data)
        for worker in running:
            worker.kill()
            self._forget(worker)


def serve(settings: Settings, announce: Callable[[dict[str, Any]], None], warn: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` is called with the address when the service is ready."""
    require_packages()
    for arm in settings.arms:
        require_model(settings.model_of(arm))
    with closing(bind(settings.host, settings.port)) as sock, closing(DataFolder(settings.data)) as folder:
        if folder.shared:
            warn(
                f"another service uses {settings.data}: both store their events there, and both serve the model that "
                "was published last, which is now this one; give --data another folder to keep them apart."
            )
        about = {
            "url": url_of(settings.host, sock),
            "host": settings.host,
            "port": sock.getsockname()[1],
            "model": str(settings.model),
            "data": str(settings.data),
            "events": str(settings.events_file) if settings.events is None else parse(settings.events).label,
            "workers": settings.workers,
            "pid": os.getpid(),
            "dgcf": __version__,
        }
        Supervisor(settings, sock).run(lambda: announce(about))


def _has_terminal() -> bool:
    """Return whether this process has a terminal that can close."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
