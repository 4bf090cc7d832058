"""Errors that a request ends with: one sentence, a kind and an HTTP status."""

from __future__ import annotations

from typing import ClassVar

from dgcf.errors import DgcfError


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


class NotReadyError(RequestError):
    """The service is starting or stopping."""

    kind, status, title = "not-ready", 503, "The service is not ready"
    retry_after = 1
