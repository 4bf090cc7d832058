"""The two clients. They differ in how they send and wait; the calls and what follows from answers are shared."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload
from urllib.parse import urlsplit

import anyio
import httpx

from dgcf.client import calls
from dgcf.client.calls import Call, Reply
from dgcf.client.exchange import Pause, Retries, Send, Steps, exchange
from dgcf.errors import ConfigError
from dgcf.version import __version__

P = ParamSpec("P")
T = TypeVar("T")
ADDRESS = "http://127.0.0.1:8000"
CHUNK = 1 << 16


class Method(Generic[P, T]):
    """A method of both clients: what ``build`` returns is carried out, by ``AsyncClient`` as a coroutine."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self.build

        @functools.wraps(self.build)
        def method(*arguments: P.args, **options: P.kwargs) -> Any:
            return client._carry_out(self.build(*arguments, **options))

        return method


class Methods:
    """The calls that both clients have."""

    recommend = Method(calls.recommend)
    recommend_users = Method(calls.recommend_users)
    recommend_for = Method(calls.recommend_for)
    similar_items = Method(calls.similar_items)
    similar_users = Method(calls.similar_users)
    explain = Method(calls.explain)
    explain_for = Method(calls.explain_for)
    items = Method(calls.items)
    item = Method(calls.item)
    put_item = Method(calls.put_item)
    delete_item = Method(calls.delete_item)
    user = Method(calls.user)
    forget_user = Method(calls.forget_user)
    send_event = Method(calls.send_event)
    send_events = Method(calls.send_events)
    remove_event = Method(calls.remove_event)
    export_events = Method(calls.export_events)
    model = Method(calls.model)
    reload = Method(calls.reload)
    models = Method(calls.models)
    rollback = Method(calls.rollback)
    refresh = Method(calls.refresh)
    refresh_state = Method(calls.refresh_state)
    experiments = Method(calls.experiments)
    health = Method(calls.health)

    def __init__(
        self,
        http: httpx.Client | httpx.AsyncClient,
        address: str,
        token: str | None,
        timeout: float,
        retries: Retries | None,
    ) -> None:
        self.address = _checked(address)
        self.retries = retries or Retries()
        self._build = http.build_request
        self._timeout = timeout
        self._headers = {"accept": "application/json", "user-agent": f"dgcf/{__version__}"}
        if token := (token if token is not None else os.environ.get("DGCF_TOKEN", "")).strip():
            self._headers["authorization"] = f"Bearer {_checked_token(token)}"

    def __repr__(self) -> str:
        token = "with" if "authorization" in self._headers else "without"
        return f"<{type(self).__name__} of {self.address}, {token} token>"

    def _exchange(self, call: Call[T]) -> tuple[httpx.Request, Steps[T]]:
        """Return the request, which is the same in every attempt, and the steps to its result."""
        request_id = uuid.uuid4().hex
        headers = {**self._headers, "x-request-id": request_id}
        if call.body:
            headers["content-type"] = "application/json"
        if call.target is not None:
            headers["accept"] = "application/vnd.apache.parquet"
        request = self._build(
            call.method,
            f"{self.address}{call.path}",
            params=dict(call.query) or None,
            headers=headers,
            content=call.body,
            timeout=self._timeout,
        )
        return request, exchange(call, self.retries, self.address, request_id)


class Client(Methods):
    """A client of ``dgcf serve``.

        with dgcf.Client("http://127.0.0.1:8000", token="…") as client:
            client.recommend("anna", k=5)["recommendations"]

    ``token``: by default the environment variable DGCF_TOKEN. ``timeout``: seconds of each wait for the network.
    Further options are those of ``httpx.Client``, such as ``verify`` and ``proxy``. Threads can share a client.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        retries: Retries | None = None,
        **options: Any,
    ) -> None:
        self._http = httpx.Client(**options)
        super().__init__(self._http, address, token, timeout, retries)

    def _carry_out(self, call: Call[T]) -> T:
        request, steps = self._exchange(call)
        with contextlib.closing(steps):
            step = next(steps)
            while True:
                try:
                    reply = self._do(step, request)
                except httpx.RequestError as problem:
                    step = steps.throw(problem)
                    continue
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    result: T = end.value
                    return result

    def _do(self, step: Send | Pause, request: httpx.Request) -> Reply | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        response = self._http.send(request, stream=True)
        with contextlib.closing(response):
            if step.target is None or response.status_code != 200:
                return _reply(response, response.read())
            with step.target.open("wb") as file:
                for chunk in response.iter_bytes(CHUNK):
                    file.write(chunk)
            return _reply(response, b"")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Methods):
    """``Client`` with coroutines: ``async with dgcf.AsyncClient() as client: await client.recommend("anna")``."""

    def __init__(
        self,
        address: str = ADDRESS,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        retries: Retries | None = None,
        **options: Any,
    ) -> None:
        self._http = httpx.AsyncClient(**options)
        super().__init__(self._http, address, token, timeout, retries)

    async def _carry_out(self, call: Call[T]) -> T:
        request, steps = self._exchange(call)
        with contextlib.closing(steps):
            step = next(steps)
            while True:
                try:
                    reply = await self._do(step, request)
                except httpx.RequestError as problem:
                    step = steps.throw(problem)
                    continue
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    result: T = end.value
                    return result

    async def _do(self, step: Send | Pause, request: httpx.Request) -> Reply | None:
        if isinstance(step, Pause):
            await anyio.sleep(step.seconds)
            return None
        response = await self._http.send(request, stream=True)
        try:
            if step.target is None or response.status_code != 200:
                return _reply(response, await response.aread())
            async with await anyio.open_file(step.target, "wb") as file:
                async for chunk in response.aiter_bytes(CHUNK):
                    await file.write(chunk)
            return _reply(response, b"")
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _reply(response: httpx.Response, body: bytes) -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def _checked(address: str) -> str:
    """Return the address without a slash at its end."""
    if "@" in address:
        raise ConfigError("the address has a user name or password; give the token as token= or in DGCF_TOKEN.")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"the address is {address!r}, expected one like {ADDRESS} (http or https, host, port).")
    return address.rstrip("/")


def _checked_token(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("the token has characters other than printable ASCII without blanks; copy it again.")
    return token
