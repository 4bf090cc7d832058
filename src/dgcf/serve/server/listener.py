"""The HTTP server of a worker: accept connections, and stop without cutting answers."""

from __future__ import annotations

import asyncio
import logging
import socket
from email.utils import formatdate

from starlette.types import ASGIApp
from uvicorn.config import Config

from dgcf.serve.server.guard import BrokenAnswerError, Guard
from dgcf.serve.server.protocol import Connections, Protocol

SWEEP_SECONDS = 0.5
BACKLOG = 2048


class Listener:
    """Serves ``app``, which is ``guard`` or wraps it, on a socket that is bound."""

    def __init__(self, guard: Guard, app: ASGIApp | None = None) -> None:
        self.guard = guard
        self.connections = Connections(guard.limits, guard.refused)
        self._config = Config(
            app or guard,
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._config.load()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def listen(self, sock: socket.socket) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._socket = sock
        self._sweeping = loop.create_task(self._sweep())
        self._server = await loop.create_server(
            lambda: Protocol(self._config, self.connections, {}, loop), sock=sock, backlog=BACKLOG
        )

    async def stop(self, seconds: float) -> None:
        """Accept no more connections, finish the answers under way, at most for ``seconds``, and close."""
        if self._server is None or self._socket is None or self._sweeping is None:
            return
        self._server.close()
        self._socket.close()
        self.connections.stop()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.connections.connections and loop.time() < until:
            await asyncio.sleep(0.02)
            self.connections.sweep(loop.time())
        for task in list(self.connections.tasks):
            task.cancel()
        if self.connections.tasks:
            await asyncio.wait(list(self.connections.tasks), timeout=1.0)
        for connection in list(self.connections.connections):
            connection.transport.abort()
        self._sweeping.cancel()

    async def _sweep(self) -> None:
        """Close the connections whose time is up, and renew the header Date."""
        loop = asyncio.get_running_loop()
        while True:
            self.connections.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            self.connections.sweep(loop.time())
            await asyncio.sleep(SWEEP_SECONDS)


def silence_uvicorn() -> None:
    """Let uvicorn not log answers that the guard has broken off, which are in the log already."""

    def keep(record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], BrokenAnswerError)

    logging.getLogger("uvicorn.error").addFilter(keep)
