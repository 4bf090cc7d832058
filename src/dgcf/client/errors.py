"""Errors of the client: what the service refused, and what prevented an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgcf.errors import DgcfError


class ServiceError(DgcfError):
    """Base class. ``status`` is the HTTP status, None without an answer; ``kind`` is the kind of the problem document.

    ``detail`` is one sentence, ``request_id`` the id that the service has in its log, ``errors`` the single faults of
    an invalid request, and ``retry_after`` the number of seconds to wait before a repetition.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        kind: str = "service",
        request_id: str | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.kind = kind  # type: ignore[misc]  # the kind of an answer is known only when it has come
        self.request_id = request_id
        self.errors = list(errors)
        self.retry_after = retry_after

    def __str__(self) -> str:
        known = {"status": self.status, "kind": self.kind, "request": self.request_id}
        return f"{self.detail} ({', '.join(f'{name} {value}' for name, value in known.items() if value is not None)})"


class AccessError(ServiceError):
    """The token is missing or wrong (401), or its scope is too small (403)."""


class NotFoundError(ServiceError):
    """The service knows no such user, item or event (404)."""


class RefusedError(ServiceError):
    """The service refused the request (another status from 400 to 499); a repetition would be refused as well."""


class UnavailableError(ServiceError):
    """The service could not be reached, was busy or failed (429, 500 and above), after the last attempt."""


class AnswerError(ServiceError):
    """The answer is none of this service; the address is probably that of another one."""
