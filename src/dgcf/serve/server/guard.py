"""The guard around the application: ids, access, limits, headers, the access log and the counters of each request.

It is pure ASGI and does its work before the application sees a request, so the application needs none of it.
"""

from __future__ import annotations

import asyncio
import os
from itertools import count
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dgcf.serve.http.paths import encoded_path
from dgcf.serve.server.board import METHOD_INDEX, OTHER_METHOD, ROUTE_INDEX, Field, Slot
from dgcf.serve.server.headers import SECURITY, Hosts, Origins, client_identity, sane_request_id
from dgcf.serve.server.log import Log
from dgcf.serve.server.rate import RateLimit
from dgcf.serve.server.refusal import PROBLEM, Headers, Refusal
from dgcf.serve.server.routes import UNMATCHED, choose, methods_of, routes_of
from dgcf.serve.server.tokens import Access
from dgcf.serve.settings import Settings

CLIENT_GONE = 499
"""Status in log and counters for a client that closed the connection before the answer."""
ADMIN_PATIENCE = 10
"""Admin routes load models and export all events: they have so many times as long to answer."""
CLOSE = (b"connection", b"close")
_RETRY_ANSWER = 5
_RANKS = (None, "read", "write", "admin")


class ClientGoneError(Exception):
    """The client closed the connection."""


class BrokenAnswerError(Exception):
    """An answer that has begun cannot be finished: the connection is closed."""


class Guard:
    """Wraps ``app``; ``slot`` has the counters of this worker."""

    def __init__(self, app: ASGIApp, settings: Settings, slot: Slot, log: Log, rate: RateLimit | None = None) -> None:
        self.app, self.slot, self.log, self.rate = app, slot, log, rate
        self.limits = settings.limits
        self.access = Access(settings.tokens)
        self.origins = Origins(settings.origins)
        self.hosts = Hosts(settings.host, settings.origins)
        self._prefix, self._numbers = os.urandom(6).hex(), count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await Exchange(self, scope, receive, send).run()
        else:
            await self.app(scope, receive, send)

    def request_id(self, given: bytes | None = None) -> str:
        """Return the id of the client if it is sane, or a new one."""
        return sane_request_id(given) or f"{self._prefix}-{next(self._numbers):x}"

    def refused(self, refusal: Refusal) -> bytes:
        """Log and count a refusal of the protocol; return the answer, which closes the connection."""
        request_id = self.request_id()
        self.slot.count(ROUTE_INDEX[UNMATCHED], OTHER_METHOD, refusal.status, 0.0)
        self.log.write("request", id=request_id, method=None, route=UNMATCHED, status=refusal.status, ms=0.0)
        return refusal.message(request_id, [*SECURITY, (b"x-request-id", request_id.encode())])


class Exchange:
    """A request and its answer."""

    __slots__ = (
        *("begun", "client", "given", "guard", "headers", "id", "limit", "rank", "receive"),
        *("seconds", "route", "scope", "sender", "size", "started", "status", "unread"),
    )

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self.started = perf_counter()
        self.guard, self.scope, self.receive, self.sender = guard, scope, receive, send
        given: dict[bytes, bytes] = dict(scope["headers"])
        self.given = given
        self.id = guard.request_id(given.get(b"x-request-id"))
        self.client = scope["client"][0] if scope.get("client") else ""
        self.unread = given.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in given
        self.headers: Headers = [*SECURITY, (b"x-request-id", self.id.encode())]
        self.headers += guard.origins.headers(given.get(b"origin"))
        self.route, self.rank, self.status, self.size, self.begun = UNMATCHED, 0, 0, 0, False
        self.limit: asyncio.Timeout | None = None
        self.seconds = guard.limits.answer_seconds

    async def run(self) -> None:
        """Answer the request, then count and log it."""
        guard = self.guard
        guard.slot.add(Field.IN_FLIGHT)
        try:
            await self._run()
        finally:
            guard.slot.add(Field.IN_FLIGHT, -1)
            seconds = perf_counter() - self.started
            method = self.scope["method"]
            guard.slot.count(
                ROUTE_INDEX[self.route], METHOD_INDEX.get(method, OTHER_METHOD), self.status or CLIENT_GONE, seconds
            )
            self._log(method, seconds)

    def _log(self, method: str, seconds: float) -> None:
        more: dict[str, Any] = {}
        if self.status in (401, 403, 421, 429):
            more["client"] = self.client
        if self.rank:
            more["scope"] = _RANKS[self.rank]
        status = self.status or CLIENT_GONE
        fields = {"id": self.id, "method": method, "route": self.route, "status": status}
        self.guard.log.write("request", **fields, ms=round(seconds * 1000, 3), bytes=self.size, **more)

    async def _run(self) -> None:
        try:
            if not self._admit():
                await self._answer_preflight()
                return
            receive = await self._with_body() if self.unread else self.receive
            async with asyncio.timeout(self.seconds) as self.limit:
                await self.guard.app(self.scope, receive, self._send)
        except Refusal as refusal:
            await self._refuse(refusal)
        except ClientGoneError:
            return
        except TimeoutError as problem:
            await self._time_out(problem)
        except asyncio.CancelledError:  # the server stops, and has waited long enough
            await self._refuse(Refusal(503, "the service is stopping; repeat the request in a moment.", retry_after=1))
        except Exception as problem:
            self.guard.log.exception("request failed", problem, id=self.id, route=self.route)
            await self._refuse(Refusal(500, "the service failed; its log has the cause under the request id."))

    # -- before the application ---------------------------------------------------------------------------------------

    def _admit(self) -> bool:
        """Refuse what may not pass; return False for a preflight of CORS."""
        guard, given, scope = self.guard, self.given, self.scope
        method = scope["method"]
        scope.setdefault("state", {})["request_id"] = self.id
        routes = routes_of(encoded_path(scope))
        self.rank, digest = guard.access.identify(given.get(b"authorization"))
        if routes:
            self.route = routes[0].template
        if method == "OPTIONS" and routes and b"origin" in given:
            allowed = guard.origins.preflight(given, methods_of(routes))
            if allowed is not None:
                self.headers += allowed
                return False
        try:
            route, needed = choose(routes, method)
        except Refusal:
            self._take(digest)
            raise
        self.route = scope["state"]["route"] = route.template
        if needed is not None:
            self._take(digest)
            guard.access.require(needed, self.rank, given=b"authorization" in given)
            if guard.access.is_open(needed):
                guard.hosts.check(given.get(b"host"))
            guard.origins.check(method, given)
            if needed == "admin":
                self.seconds *= ADMIN_PATIENCE
        self._check_length()
        return True

    def _take(self, digest: bytes) -> None:
        """Take a request from the rate of a token, or of the client if its token is unknown."""
        if self.guard.rate is not None:
            self.guard.rate.check(digest if self.rank else client_identity(self.client))

    def _check_length(self) -> None:
        length = self.given.get(b"content-length", b"0")
        if int(length) > self.guard.limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body has more than {self.guard.limits.body_bytes:,} bytes; send less at once.")

    async def _with_body(self) -> Receive:
        """Read the body, and return a function that gives it to the application."""
        limits = self.guard.limits
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                more = True
                while more:
                    message = await self.receive()
                    if message["type"] != "http.request":
                        raise ClientGoneError
                    body += message.get("body", b"")
                    if len(body) > limits.body_bytes:
                        raise self._too_large()
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Refusal(408, f"the body took more than {limits.body_seconds:g} s; send it faster.") from None
        self.unread = False
        return _giving(bytes(body), self.receive)

    # -- the answer ---------------------------------------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        """Send a message of the application, with the headers of the guard."""
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            headers = [*message.get("headers", ()), *self.headers]
            if self._is_last():
                headers.append(CLOSE)
            await self.sender({**message, "headers": headers})
            return
        self.size += len(message.get("body", b""))
        if message.get("more_body") and self.limit is not None:  # a stream has the time for each part
            self.limit.reschedule(asyncio.get_running_loop().time() + self.seconds)
        await self.sender(message)

    def _is_last(self) -> bool:
        """Return whether the connection is closed after this answer; older versions of uvicorn do not say so."""
        cycle = self.scope["state"].get("cycle")
        return cycle is not None and not cycle.keep_alive

    async def _answer_preflight(self) -> None:
        self.status = 204
        await self.sender({"type": "http.response.start", "status": 204, "headers": self.headers})
        await self.sender({"type": "http.response.body", "body": b""})

    async def _refuse(self, refusal: Refusal) -> None:
        """Answer with a problem document; if an answer has begun, close the connection instead."""
        if self.begun:
            self.status = refusal.status
            raise BrokenAnswerError
        body = refusal.body(self.id)
        headers: Headers = [
            (b"content-type", PROBLEM),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *refusal.headers,
            *self.headers,
        ]
        if self.unread or self._is_last():
            headers.append(CLOSE)
        self.status, self.size, self.begun = refusal.status, len(body), True
        await self.sender({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.sender({"type": "http.response.body", "body": body})

    async def _time_out(self, problem: TimeoutError) -> None:
        if self.limit is None or not self.limit.expired():  # raised by the application
            self.guard.log.exception("request failed", problem, id=self.id, route=self.route)
            await self._refuse(Refusal(500, "the service failed; its log has the cause under the request id."))
            return
        detail = f"the answer took more than {self.seconds:g} s; repeat the request later."
        await self._refuse(Refusal(503, detail, retry_after=_RETRY_ANSWER))


def _giving(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives a whole body, then what comes after it."""
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give
