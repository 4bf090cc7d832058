"""Errors that a request ends with: one sentence, a kind and an HTTP status."""

from __future__ import annotations

from typing import ClassVar

from dgcf.errors import DgcfError

KINDS: dict[int, tuple[str, str]] = {
    400: ("bad-request", "The request is malformed"),
    401: ("unauthorized", "A token is needed"),
    403: ("forbidden", "Not allowed"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "The method is not allowed"),
    408: ("timeout", "The request came too slowly"),
    409: ("conflict", "The request conflicts with the present state"),
    413: ("body-too-large", "The body is too large"),
    414: ("uri-too-long", "The URL is too long"),
    415: ("media-type", "The media type is not supported"),
    421: ("host", "The host is not served here"),
    422: ("invalid", "The request is invalid"),
    429: ("too-many-requests", "Too many requests"),
    431: ("headers-too-large", "The headers are too large"),
    500: ("internal", "The service failed"),
    503: ("unavailable", "The service cannot answer now"),
}
"""Kind and title of a problem by HTTP status; the kind ends its type. The errors below have their own."""


class RequestError(DgcfError):
    """Base class; ``retry_after`` is the number of seconds after which a repetition may succeed, None if never."""

    kind = "invalid"
    status: ClassVar[int] = 422
    title: ClassVar[str] = "The request is invalid"
    retry_after: int | None = None


class UnknownError(RequestError):
    """A user, an item or an event is unknown."""

    kind, status, title = "not-found", 404, "Not found"


class ModelRefusedError(RequestError):
    """A new model cannot be loaded; the present one stays."""

    kind, status, title = "model-refused", 409, "The model was refused"


class StoreFullError(RequestError):
    """The event store cannot write; reading goes on."""

    kind, status, title = "store-full", 503, "The event store cannot write"
    retry_after = 5


class StoreDownError(StoreFullError):
    """The database of the events does not answer; lists follow from what was read before."""

    kind, title = "store-down", "The database of the events does not answer"


class NotReadyError(RequestError):
    """The service is starting or stopping."""

    kind, status, title = "not-ready", 503, "The service is not ready"
    retry_after = 1
