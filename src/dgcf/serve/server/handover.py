"""What supervisor and worker tell each other: lines of JSON over a pair of sockets, the settings first."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dgcf.errors import ArtifactError, ConfigError, DataError, DgcfError, NotEnoughMemoryError
from dgcf.serve.errors import ModelRefusedError, StoreFullError
from dgcf.serve.settings import Arms, Limits, Refreshing, Settings

CHUNK = 65_536


class StartError(DgcfError):
    """The service could not be started."""

    kind = "serve"


_ERRORS: dict[str, type[DgcfError]] = {
    kind.__name__: kind
    for kind in (ArtifactError, ConfigError, DataError, ModelRefusedError, NotEnoughMemoryError, StoreFullError)
}


class Channel:
    """One end of the pair; it ends with the process that holds the other one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._rest = b""
        self._messages: deque[dict[str, Any]] = deque()
        self.ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; nothing happens if the other process has ended."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.ended = True

    def receive(self) -> Iterator[dict[str, Any]]:
        """Read once, and yield the messages that are complete; ``ended`` is set if there will be no more."""
        self._read()
        while self._messages:
            yield self._messages.popleft()

    def first(self) -> dict[str, Any] | None:
        """Wait for a message and return it; None if the other process has ended."""
        while not self._messages and not self.ended:
            self._read()
        return self._messages.popleft() if self._messages else None

    def pending(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that came with the first one."""
        while self._messages:
            yield self._messages.popleft()

    def _read(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except OSError:
            data = b""
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._messages.extend(json.loads(line) for line in lines)

    def close(self) -> None:
        self._socket.close()


def settings_as_data(settings: Settings) -> dict[str, Any]:
    """Return settings as JSON data."""
    data: dict[str, Any] = json.loads(json.dumps(asdict(settings), default=str))  # paths as text
    return data


def settings_of_data(data: dict[str, Any]) -> Settings:
    """Return settings of JSON data."""
    table = data["items_table"]
    return Settings(
        **{
            **data,
            "model": Path(data["model"]),
            "data": Path(data["data"]),
            "items_table": None if table is None else Path(table),
            "tokens": {scope: tuple(tokens) for scope, tokens in data["tokens"].items()},
            "origins": tuple(data["origins"]),
            "limits": Limits(**data["limits"]),
            "refresh": Refreshing(**data["refresh"]),
            "more": _arms_of_data(data["more"]),
        }
    )


def _arms_of_data(data: dict[str, Any]) -> Arms:
    models = {arm: Path(path) for arm, path in data["models"].items()}
    return Arms(**{**data, "models": models, "shadows": tuple(data["shadows"])})


def error_as_data(problem: DgcfError) -> dict[str, str]:
    """Return an error as JSON data."""
    return {"type": type(problem).__name__, "message": str(problem)}


def error_of_data(data: dict[str, str]) -> DgcfError:
    """Return the error of a worker."""
    return _ERRORS.get(data["type"], StartError)(data["message"])
