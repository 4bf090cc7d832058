"""The HTTP server of a worker: accept connections, and stop without cutting answers."""

from __future__ import annotations

import asyncio
import logging
import socket
from email.utils import formatdate

from starlette.types import ASGIApp
from uvicorn.config import Config

from dgcf.serve.server.accepting import Acceptor
from dgcf.serve.server.board import Board
from dgcf.serve.server.guard import BrokenAnswerError, Guard
from dgcf.serve.server.protocol import Connections, Protocol

SWEEP_SECONDS = 0.5


class Listener:
    """Serves ``app``, which is ``guard`` or wraps it, on a socket that is bound."""

    def __init__(self, guard: Guard, board: Board, number: int = 0, app: ASGIApp | None = None) -> None:
        """``number``: the slot of the worker on the board."""
        self.guard = guard
        self._board, self._number = board, number
        self.connections = Connections(guard.limits, guard.refused, guard.slot)
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
        self._acceptor: Acceptor | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def listen(self, sock: socket.socket) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.create_task(self._sweep())
        self._acceptor = Acceptor(
            sock,
            lambda: Protocol(self._config, self.connections, {}, loop),
            self._board,
            self._number,
            self.guard.log,
        )

    async def stop(self, seconds: float) -> None:
        """Accept no more connections, finish the answers under way, at most for ``seconds``, and close."""
        if self._acceptor is None or self._sweeping is None:
            return
        self._acceptor.stop()
        await asyncio.sleep(0)  # so that what was accepted just now is among the connections
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
