"""A listener on loopback in a thread, and clients that send it bytes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dgcf.serve.server.board import Board
from dgcf.serve.server.guard import Guard
from dgcf.serve.server.listener import Listener
from dgcf.serve.server.log import Log
from dgcf.serve.settings import Limits, Settings

LIMITS = Limits(
    body_bytes=100_000,
    header_bytes=2_000,
    url_bytes=1_000,
    header_seconds=0.5,
    body_seconds=0.5,
    idle_seconds=0.6,
    answer_seconds=5.0,
    stop_seconds=3.0,
    connections=20,
)
GET = b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Running:
    """A listener on loopback in a thread; the application answers after ``delay`` seconds with ``size`` bytes."""

    def __init__(self, limits: Limits) -> None:
        self.delay, self.size, self.answered = 0.0, 2, 0
        self.board = Board.create(1)
        self._null = os.open(os.devnull, os.O_WRONLY)
        settings = Settings(Path("model"), Path("data"), limits=limits)
        self._log = Log(self._null)
        self._guard = Guard(self._app, settings, self.board.slot(0), self._log)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))
        self._thread.start()
        assert self._started.wait(10)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.sleep(self.delay)
        length = str(self.size).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": b"x" * self.size})
        self.answered += 1

    async def _run(self) -> None:
        self.listener = Listener(self._guard, self.board)
        await self.listener.listen(self.socket)
        self._started.set()
        await self._stop.wait()
        await self.listener.stop(3.0)

    @property
    def open(self) -> int:
        return len(self.listener.connections.connections)

    def begin_stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    def close(self) -> None:
        if self._thread.is_alive():
            self.begin_stop()
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._loop.close()
        self.board.close()
        self._log.flush()
        os.close(self._null)


class Peer:
    """A client that sends bytes and reads answers."""

    def __init__(self, running: Running) -> None:
        self.socket = socket.create_connection(running.address, timeout=10)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def drip(self, data: bytes, size: int, pause: float) -> None:
        """Send data in pieces."""
        for start in range(0, len(data), size):
            self.send(data[start : start + size])
            time.sleep(pause)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, self._file.read(int(headers.get("content-length", "0")))

    def problem(self, status: int) -> dict[str, Any]:
        """Read a problem document after which the connection ends."""
        given, headers, body = self.answer()
        assert (given, headers["content-type"]) == (status, "application/problem+json")
        assert headers["connection"] == "close"
        document: dict[str, Any] = json.loads(body)
        assert document["status"] == status
        assert document["instance"] == headers["x-request-id"]
        assert self.at_end()
        return document

    def rest(self) -> bytes:
        return self._file.read()

    def at_end(self) -> bool:
        return self._file.read(1) == b""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()
        self.socket.close()


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
