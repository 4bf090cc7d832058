"""Refusals of the server itself: a status, one sentence, and the problem document (RFC 9457) that a client gets."""

from __future__ import annotations

import json
from http import HTTPStatus

from dgcf.serve.errors import KINDS

Headers = list[tuple[bytes, bytes]]

PROBLEM = b"application/problem+json"


class Refusal(Exception):  # noqa: N818
    """A request ends here with this status; ``headers`` are added to those of every answer."""

    def __init__(self, status: int, detail: str, headers: Headers | None = None, *, retry_after: int | None = None):
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers: Headers = list(headers or [])
        if retry_after is not None:
            self.headers.append((b"retry-after", str(retry_after).encode()))

    def body(self, request_id: str) -> bytes:
        """Return the problem document."""
        kind, title = KINDS[self.status]
        document = {"type": f"/problems/{kind}", "title": title, "status": self.status}
        return json.dumps({**document, "detail": self.detail, "instance": request_id}).encode()

    def message(self, request_id: str, headers: Headers) -> bytes:
        """Return a whole HTTP answer that closes the connection."""
        body = self.body(request_id)
        own: Headers = [(b"content-type", PROBLEM), (b"content-length", str(len(body)).encode())]
        own += [(b"connection", b"close"), *self.headers, *headers]
        first = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode()
        return b"\r\n".join([first, *(name + b": " + value for name, value in own), b"", body])
