"""Problem documents (RFC 9457): the answer to every request that fails."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from dgcf.errors import DgcfError, NotEnoughMemoryError
from dgcf.serve.errors import KINDS, RequestError
from dgcf.serve.http.encoding import encode
from dgcf.serve.server.refusal import Refusal

MEDIA_TYPE = "application/problem+json"
_LOG = logging.getLogger("dgcf.serve")
_RETRY_AFTER = 5


class InvalidError(RequestError):
    """Values of a request are invalid; ``errors`` has an entry with ``in``, ``at`` and ``detail`` for each."""

    def __init__(self, errors: Sequence[Mapping[str, str]]) -> None:
        self.errors = [dict(error) for error in errors]
        first = self.errors[0]
        detail = f"{first['at']}: {first['detail']}" if first["at"] else first["detail"]
        more = len(self.errors) - 1
        super().__init__(detail if not more else f"{detail} ({more} more in errors)")

    @classmethod
    def of(cls, place: str, at: str, detail: str) -> InvalidError:
        """Return the error of one value: ``place`` is path, query, header or body, ``at`` its name or JSON pointer."""
        return cls([{"in": place, "at": at, "detail": detail}])


class MediaTypeError(RequestError):
    """The body is not JSON."""

    kind, status, title = "media-type", 415, KINDS[415][1]


def request_id(scope: Mapping[str, Any]) -> str | None:
    """Return the id of a request, if the server gave it one."""
    request_id = scope.get("state", {}).get("request_id")
    return None if request_id is None else str(request_id)


def document(
    status: int,
    detail: str,
    *,
    kind: str | None = None,
    title: str | None = None,
    instance: str | None = None,
    errors: Sequence[Mapping[str, str]] | None = None,
) -> bytes:
    """Return a problem document as JSON; kind and title follow from the status if they are not given."""
    default = KINDS.get(status, ("error", "The request failed"))
    fields: dict[str, Any] = {
        "type": f"/problems/{kind or default[0]}",
        "title": title or default[1],
        "status": status,
        "detail": detail,
    }
    if instance is not None:
        fields["instance"] = instance
    if errors is not None:
        fields["errors"] = errors
    return encode(fields)


def response(error: Exception, scope: Mapping[str, Any]) -> Response:
    """Return the answer to a request that ended with an error; what nobody expected is logged with its traceback."""
    instance = request_id(scope)
    headers = {"cache-control": "no-store"}
    if isinstance(error, RequestError):
        status, kind, title, detail = error.status, error.kind, error.title, str(error)
        if error.retry_after is not None:
            headers["retry-after"] = str(error.retry_after)
    elif isinstance(error, HTTPException):
        status, detail, kind, title = error.status_code, str(error.detail), None, None
        headers.update(error.headers or {})
    else:
        status, detail = _other(error, scope, instance)
        kind = title = None
        if status == 503:
            headers["retry-after"] = str(_RETRY_AFTER)
    errors = error.errors if isinstance(error, InvalidError) else None
    body = document(status, detail, kind=kind, title=title, instance=instance, errors=errors)
    return Response(body, status, headers, MEDIA_TYPE)


def refused(refusal: Refusal, scope: Mapping[str, Any]) -> Response:
    """Return the answer to a request that no operation takes."""
    headers = {name.decode(): value.decode() for name, value in refusal.headers} | {"cache-control": "no-store"}
    body = document(refusal.status, refusal.detail, instance=request_id(scope))
    return Response(body, refusal.status, headers, MEDIA_TYPE)


def _other(error: Exception, scope: Mapping[str, Any], instance: str | None) -> tuple[int, str]:
    """Return status and detail of an error that does not know its status."""
    if isinstance(error, NotEnoughMemoryError):
        return 503, str(error)
    if isinstance(error, MemoryError):
        return 503, "there is not enough memory for this request now; send a smaller one, or try again later."
    if isinstance(error, DgcfError):
        return 422, str(error)
    route = getattr(scope.get("route"), "path", "")
    _LOG.error("%s %s failed", scope.get("method"), route, exc_info=error, extra={"request_id": instance})
    if isinstance(error, sqlite3.Error):
        return 503, f"the event store cannot be used now ({error}); try again later."
    if isinstance(error, OSError):
        return (
            503,
            f"the service cannot use its files now ({error.strerror or 'input or output failed'}); try again later.",
        )
    return 500, "the service failed; the log of the service has the cause under the request id."
