"""A call from its first attempt to its result: attempts, pauses and errors, without the network.

``exchange`` is a generator that yields what to do next, ``Send`` or ``Pause``, and is sent the reply. The two clients
only carry these steps out, one by blocking and one by awaiting.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx

from dgcf.client.calls import Call, Reply
from dgcf.client.errors import (
    AccessError,
    AnswerError,
    NotFoundError,
    RefusedError,
    ServiceError,
    UnavailableError,
)
from dgcf.files import atomic_file

T = TypeVar("T")

BUSY = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed: too many requests, and a service or its proxy that restarts."""
PASSED_ON = frozenset({502, 504})
"""Of these, those of a proxy that may have passed the request on."""
HOPELESS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.DecodingError)
"""Errors of the request itself: a repetition would fail as well."""
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors before the request was sent."""
_RANDOM = random.SystemRandom()


@dataclass(frozen=True)
class Retries:
    """When a call is repeated: after errors of the connection and answers 429, 502, 503 and 504.

    The pause before attempt n + 1 is drawn from the upper half of ``first · 2ⁿ⁻¹`` seconds, and is at least what the
    service asks for in Retry-After. A call that would have to wait for more than ``longest`` seconds fails at once.
    """

    attempts: int = 4
    first: float = 0.1
    longest: float = 30.0

    def pause(self, attempt: int, retry_after: float | None) -> float | None:
        """Return the seconds to wait after an attempt, None if there is no further one."""
        if attempt >= self.attempts or (retry_after or 0) > self.longest:
            return None
        backoff: float = min(self.first * 2 ** min(attempt - 1, 60), self.longest)
        return max(retry_after or 0, 0) + backoff * _RANDOM.uniform(0.5, 1)


@dataclass(frozen=True)
class Send:
    """Send the request; ``target`` is the file for the body of a 200, None to return it in the reply."""

    target: Path | None


@dataclass(frozen=True)
class Pause:
    seconds: float


Steps = Generator[Send | Pause, Reply | None, T]


def exchange(call: Call[T], retries: Retries, address: str, request_id: str) -> Steps[T]:
    """Return the result of a call, or raise what prevented it."""
    arrived = False  # whether an earlier attempt may have had its effect
    with _target(call) as target:
        for attempt in range(1, retries.attempts + 1):
            try:
                reply = yield Send(target)
                assert reply is not None
                error = _error_of(call, reply, request_id, arrived)
                if error is None:
                    return _result(call, reply, target, address, request_id)
                again = reply.status in BUSY
                arrived = arrived or reply.status in PASSED_ON
            except httpx.RequestError as problem:
                error = _no_answer(problem, address, request_id)
                again = not isinstance(problem, HOPELESS)
                arrived = arrived or not isinstance(problem, NOT_SENT)
            pause = retries.pause(attempt, error.retry_after) if again and call.repeatable else None
            if pause is None:
                raise error
            yield Pause(pause)
    raise AssertionError("the last attempt has no pause")


def _target(call: Call[Any]) -> contextlib.AbstractContextManager[Path | None]:
    """Return the temporary file for the body, which is renamed when the call has succeeded; None without a file."""
    return contextlib.nullcontext() if call.target is None else atomic_file(call.target)


def _result(call: Call[T], reply: Reply, target: Path | None, address: str, request_id: str) -> T:
    if target is None or _is_parquet(target):
        with contextlib.suppress(ValueError):
            return call.read(reply)
    expected = "JSON object" if target is None else "Parquet file"
    raise AnswerError(
        f"the answer of {address} is no {expected}; is this the address of dgcf serve?",
        status=reply.status,
        kind="answer",
        request_id=reply.headers.get("x-request-id", request_id),
    )


def _is_parquet(path: Path) -> bool:
    """Return whether a file begins and ends as a Parquet file does, so that a cut one is not taken for a whole one."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 4, 0))
        end = file.read()
        file.seek(0)
        return size >= 12 and file.read(4) == end == b"PAR1"


def _no_answer(problem: httpx.RequestError, address: str, request_id: str) -> ServiceError:
    """Return the error for a connection that failed or broke."""
    late = isinstance(problem, httpx.TimeoutException)
    what = "did not answer in time" if late else f"did not answer: {problem or type(problem).__name__}"
    return UnavailableError(f"{address} {what}", kind="timeout" if late else "connection", request_id=request_id)


def _error_of(call: Call[Any], reply: Reply, request_id: str, arrived: bool) -> ServiceError | None:
    """Return the error of a reply, None if it is an answer."""
    status = reply.status
    if 200 <= status < 300 or status in call.accepts or (status == 404 and call.deletes and arrived):
        return None
    problem = _problem_of(reply)
    kind = str(problem.get("type") or "").rstrip("/").rpartition("/")[2]
    errors = problem.get("errors")
    moved = f", a redirection to {reply.headers['location']}" if "location" in reply.headers else ""
    return _class_of(status)(
        str(problem.get("detail") or problem.get("title") or f"the service answered {status}{moved}"),
        status=status,
        kind=kind or "http",
        request_id=reply.headers.get("x-request-id") or request_id,
        errors=errors if isinstance(errors, list) else (),
        retry_after=_seconds_of(reply.headers.get("retry-after")),
    )


def _problem_of(reply: Reply) -> dict[str, Any]:
    """Return the problem document; empty if the body is none, such as the page of a proxy."""
    try:
        body = json.loads(reply.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _class_of(status: int) -> type[ServiceError]:
    if status in (401, 403):
        return AccessError
    if status == 404:
        return NotFoundError
    if status == 429 or status >= 500:
        return UnavailableError
    return RefusedError if status >= 400 else AnswerError


def _seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which has a number or a date; None without one."""
    if retry_after is None:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except ValueError:
        return None
