"""Accept connections on a socket that several workers share, so that each gets its part of them.

Whichever worker wakes first would take all that wait. A worker that has more connections than another one therefore
leaves the socket to the others for a moment.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from dgcf.serve.server.board import Board, Field, State
from dgcf.serve.server.log import Log

AT_ONCE = 64
LEAVE_SECONDS = 0.002
FULL_SECONDS = 0.2
"""How long nothing is accepted when the process or the system has no descriptors left."""
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts the connections of one worker; ``number`` is its slot on the board."""

    def __init__(
        self, sock: socket.socket, protocol: Callable[[], asyncio.Protocol], board: Board, number: int, log: Log
    ) -> None:
        self._socket, self._protocol = sock, protocol
        self._board, self._number, self._log = board, number, log
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[object]] = set()
        self._waiting: asyncio.TimerHandle | None = None
        self._left = False
        sock.setblocking(False)
        self._listen()

    def stop(self) -> None:
        """Accept what waits, and close the socket."""
        self._loop.remove_reader(self._socket)
        if self._waiting is not None:
            self._waiting.cancel()
        for _ in range(AT_ONCE):
            if not self._take():
                break
        self._socket.close()

    def _listen(self) -> None:
        self._waiting = None
        self._loop.add_reader(self._socket, self._accept)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._waiting = self._loop.call_later(seconds, self._listen)

    def _accept(self) -> None:
        for _ in range(1 if self._board.workers > 1 else AT_ONCE):
            if not self._left and self._has_more_than_another():
                self._left = True
                self._pause(LEAVE_SECONDS)
                return
            self._left = False
            if not self._take():
                return

    def _has_more_than_another(self) -> bool:
        if self._board.workers == 1:
            return False
        counts = self._board.values(Field.CONNECTIONS)
        states = self._board.values(Field.STATE)
        own = counts[self._number]
        return any(count < own for count, state in zip(counts, states, strict=True) if state == State.READY)

    def _take(self) -> bool:
        """Accept one connection; return whether there may be more."""
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as problem:
            if problem.errno in _FULL:
                self._log.write("no connection accepted", "error", reason=problem.strerror)
                self._pause(FULL_SECONDS)
            return False
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return True
