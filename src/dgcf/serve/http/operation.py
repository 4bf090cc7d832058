"""One operation of the interface: what it takes, what it answers, and the function that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope

from dgcf.serve.engine.engine import Engine
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.tally import Tally
from dgcf.serve.http.bodies import Body
from dgcf.serve.http.call import Call
from dgcf.serve.http.parameters import Parameter, Query, Segment
from dgcf.serve.refresh.refresher import Refresher
from dgcf.serve.refresh.schedule import Present
from dgcf.serve.settings import Settings


@dataclass(frozen=True)
class Service:
    """What operations work with.

    ``figures``: the answer of the route of operations; ``metrics``: text for Prometheus; ``tally``: counters of arms;
    ``exporting``: held by the one export that is written at a time; ``refresher``: what begins a refresh.
    """

    engine: Engine
    store: EventStore
    settings: Settings
    figures: Callable[[], dict[str, Any]]
    metrics: Callable[[], bytes]
    tally: Tally = field(default_factory=Tally)
    exporting: asyncio.Lock = field(default_factory=asyncio.Lock)
    refresher: Refresher | None = None

    def refresh_state(self) -> dict[str, Any]:
        """Return the state of the one refresh of all workers."""
        return Present.read(self.store).to_dict(self.settings.refresh.every)


Handler = Callable[[Service, Call], Awaitable[Response]]


@dataclass(frozen=True)
class Content:
    """What an answer holds: JSON of one of some models, or bytes of a media type; nothing if both are None."""

    description: str
    model: type[BaseModel] | tuple[type[BaseModel], ...] | None = None
    media_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """A method of a path. ``problems``: statuses of failures beside those that every operation can have.

    ``tagged``: answers have an ETag, and 304 is possible. ``open``: no token is ever needed.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    answers: Mapping[int, Content]
    description: str = ""
    ids: tuple[Segment, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    problems: tuple[int, ...] = ()
    tagged: bool = False
    open: bool = False
    tag: str = "service"


class Endpoint:
    """An operation with its service: reads and checks a request, and returns the answer."""

    def __init__(self, operation: Operation, service: Service) -> None:
        self.operation, self._service = operation, service
        self._handler, self._body = operation.handler, operation.body
        self._query = Query(operation.parameters)
        self._limit = service.settings.limits.body_bytes
        parts = operation.path.split("/")
        by_name = {segment.name: segment for segment in operation.ids}
        self._segments = [(place, by_name[part[1:-1]]) for place, part in enumerate(parts) if part.startswith("{")]

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """Return the answer; errors are raised."""
        ids: dict[str, str] = {}
        if self._segments:
            parts = scope["path"].split("/")
            for place, segment in self._segments:
                ids[segment.name] = segment.read(parts[place])
        query = self._query.read(scope["query_string"])
        body = None if self._body is None else await self._body.read(scope, receive, self._limit)
        return await self._handler(self._service, Call(scope, ids, query, body))
