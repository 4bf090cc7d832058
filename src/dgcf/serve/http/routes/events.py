"""Events: stored before they are acknowledged, removed by key, and exported for an update of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from dgcf.serve.errors import RequestError, UnknownError
from dgcf.serve.events.records import KEY_LENGTH, KINDS, Event
from dgcf.serve.http import answers
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import answer
from dgcf.serve.http.export import DEFAULT_KINDS, MEDIA_TYPE, NEXT, export
from dgcf.serve.http.operation import Content, Operation, Service
from dgcf.serve.http.parameters import Segment, choices, integer
from dgcf.serve.http.problems import InvalidError
from dgcf.serve.http.requests import INT64, Bodies
from dgcf.serve.settings import Limits

TAG = "events"


def operations(limits: Limits, bodies: Bodies) -> list[Operation]:
    return [*_of_events(bodies), _export()]


def _of_events(bodies: Bodies) -> list[Operation]:
    key = Segment("key", "The idempotency key of an event, percent-encoded.", KEY_LENGTH, "3d2c9a52")
    return [
        Operation(
            "POST",
            "/v1/events",
            "send_events",
            "Store one event or several",
            _send,
            {
                200: Content("All events were stored before; nothing has changed.", answers.Sent),
                201: Content("The events are on disk.", answers.Sent),
            },
            "The answer comes once the events are durable; the next answer of the service takes them into account. An "
            "event whose key is known is a duplicate, and counts once.",
            body=bodies.events,
            tag=TAG,
        ),
        Operation(
            "DELETE",
            "/v1/events/{key}",
            "remove_event",
            "Remove an event",
            _remove,
            {204: Content("The event is removed.")},
            "It is as if the event had not happened, and its key is not accepted again.",
            ids=(key,),
            problems=(404,),
            tag=TAG,
        ),
    ]


def _export() -> Operation:
    return Operation(
        "GET",
        "/v1/events/export",
        "export_events",
        "Export events as Parquet",
        export,
        {
            200: Content(
                "The events, in the order of their arrival.",
                media_type=MEDIA_TYPE,
                headers={NEXT: "The value of `since` for the next export."},
            )
        },
        "The file has the columns user, item, timestamp, kind, weight and seq, and is read by `dgcf update`. "
        "Events of the kinds `dislike` and `hide` are left out by default, because they are no interactions. "
        "`dgcf update` takes all rows as interactions; `--where` chooses among them by kind and weight.",
        parameters=(
            integer("since", "Only events after this position.", 0, INT64 - 1, 0),
            choices("kinds", "Only events of these kinds, separated by commas.", KINDS, DEFAULT_KINDS),
        ),
        tag=TAG,
    )


async def _send(service: Service, call: Call) -> Response:
    body = call.body
    events = _events_of(body.events) if hasattr(body, "events") else [_event_of(body, "")]
    new = await asyncio.wrap_future(service.store.submit(events))
    stored = sum(new)
    sent = {"stored": stored, "duplicates": len(new) - stored, "keys": [event.key for event in events]}
    return answer(sent, 201 if stored else 200)


def _events_of(given: Sequence[Any]) -> list[Event]:
    return [_event_of(event, f"/events/{place}") for place, event in enumerate(given)]


def _event_of(given: Any, at: str) -> Event:
    """Return the event of a checked body; ``at``: its JSON pointer."""
    more: dict[str, Any] = {} if given.key is None else {"key": given.key}
    if given.time is not None:
        more["time"] = _seconds(given.time, f"{at}/time") if isinstance(given.time, str) else given.time
    try:
        return Event(str(given.user), str(given.item), given.kind, given.weight, **more)
    except RequestError as problem:
        raise InvalidError.of("body", at, str(problem)) from None


def _seconds(text: str, at: str) -> float:
    """Return a time of ISO 8601 as seconds since 1970."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return time.timestamp()
        problem = "the time has no zone; append Z or an offset such as +02:00."
    except (ValueError, OverflowError):
        problem = "expected seconds since 1970, or ISO 8601 such as 2026-05-01T12:00:00Z."
    raise InvalidError.of("body", at, problem)


async def _remove(service: Service, call: Call) -> Response:
    key = call.ids["key"]
    if not await asyncio.wrap_future(service.store.remove(key)):
        raise UnknownError(f"there is no event with the key {key!r}; it may have been removed before.")
    return Response(None, 204)
