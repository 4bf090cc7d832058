"""A guard around an application of a few lines, and single requests to it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgcf.serve.server.board import Board
from dgcf.serve.server.guard import Guard
from dgcf.serve.server.log import Log
from dgcf.serve.server.rate import RateLimit
from dgcf.serve.settings import Limits, Settings
from tests.serve.service import ADMIN, READ, WRITE

LIMITS = Limits(body_bytes=1000, body_seconds=0.2, answer_seconds=0.2)
ALL_TOKENS = {"read": (READ,), "write": (WRITE,), "admin": (ADMIN,)}


@dataclass
class Application:
    """Answers with the body that it gets; ``act`` does something else instead."""

    seen: list[tuple[str, bytes]] = field(default_factory=list)
    act: Callable[[Any, Any, Any], Any] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.act is not None:
            await self.act(scope, receive, send)
            return
        message = await receive()
        self.seen.append((scope["path"], message["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": message["body"]})


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        document: dict[str, Any] = json.loads(self.body)
        assert document["status"] == self.status
        assert document["type"].startswith("/problems/")
        assert document["instance"] == self.headers["x-request-id"]
        return document


class Bench:
    """A guard around ``app``, whose log is read back."""

    def __init__(self, **settings: Any) -> None:
        rate = settings.get("rate")
        self.settings = Settings(Path("model"), Path("data"), **{"limits": LIMITS, **settings})
        self.board = Board.create(1)
        self.app = Application()
        self._reader, self._writer = os.pipe()
        self.log = Log(self._writer)
        limit = None if rate is None else RateLimit(rate, self.board.rates, b"key")
        self.guard = Guard(self.app, self.settings, self.board.slot(0), self.log, limit)

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str] | None = None,
        parts: Sequence[bytes | float] = (),
        client: str = "192.0.2.7",
        token: str | None = None,
    ) -> Reply:
        """Send a request; ``parts`` of the body are bytes, or seconds to wait before the next."""
        return asyncio.run(self._ask(method, path, headers or {}, parts, client, token))

    async def _ask(self, method: str, path: str, headers: Any, parts: Any, client: str, token: str | None) -> Reply:
        given = {"host": "127.0.0.1:8000", **headers}
        given |= {} if token is None else {"authorization": f"Bearer {token}"}
        if parts and "content-length" not in given:
            given["transfer-encoding"] = "chunked"
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"secret=query",
            "client": (client, 5000),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        rest = iter(parts)
        messages: list[Any] = []

        async def receive() -> Any:
            for part in rest:
                if isinstance(part, float):
                    await asyncio.sleep(part)
                else:
                    return {"type": "http.request", "body": part, "more_body": True}
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await self.guard(scope, receive, send)
        start, *bodies = messages
        names = [name for name, _ in start["headers"]]
        assert len(names) == len(set(names)), names
        named = {name.decode(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], named, b"".join(body["body"] for body in bodies))

    def lines(self) -> list[dict[str, Any]]:
        self.log.flush()
        return [json.loads(line) for line in os.read(self._reader, 1 << 20).splitlines()]

    def close(self) -> None:
        self.log.flush()
        os.close(self._writer)
        os.close(self._reader)
        self.board.close()
