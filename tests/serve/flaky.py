"""A server on a loopback socket that follows a script: it answers, refuses, cuts answers short, and says nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. ``cut``: the number of bytes of the body that are sent before the connection is closed."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None

    def bytes(self) -> bytes:
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        headers = {"content-length": str(len(body)), "connection": "close", **self.headers}
        lines = [f"HTTP/1.1 {self.status} Any", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body[: self.cut]


CLOSE = "close"
"""Read the request, then close the connection."""
SILENCE = "silence"
"""Read the request, and say nothing."""


@dataclass(frozen=True)
class Request:
    line: str
    headers: Mapping[str, str]
    body: bytes


class FlakyServer:
    """``script``: what happens to each connection, one after the other; the last step is for all that follow."""

    def __init__(self, script: Sequence[Answer | str]) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self._open: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            step = self.script[min(number, len(self.script) - 1)]
            number += 1
            connection.settimeout(10)
            self.requests.append(_read(connection))
            if isinstance(step, Answer):
                connection.sendall(step.bytes())
            if step == SILENCE:
                self._open.append(connection)
            else:
                connection.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)
        for connection in self._open:
            connection.close()


def _read(connection: socket.socket) -> Request:
    with connection.makefile("rb") as file:
        line = file.readline().decode().strip()
        headers = {}
        while head := file.readline().strip():
            name, _, value = head.decode().partition(":")
            headers[name.lower()] = value.strip()
        return Request(line, headers, file.read(int(headers.get("content-length", 0))))
