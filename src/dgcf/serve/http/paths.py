"""Paths as sent: routes are matched on the percent-encoded path, so that an encoded slash is a part of an id."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ESCAPES = re.compile(r"%(?![0-9A-Fa-f]{2})")


class EncodedPath:
    """Route on the encoded path, and answer HEAD as GET without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope = {**scope, "path": encoded_path(scope)}
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
            send = _without_body(send)
        await self.app(scope, receive, send)


def encoded_path(scope: Scope) -> str:
    """Return the path of a request as it was sent, percent-encoded and without the query."""
    raw = scope.get("raw_path")
    if raw is None:
        return str(scope["path"])
    return bytes(raw).partition(b"?")[0].decode("latin-1")


def decode_segment(segment: str) -> str:
    """Return a segment of a path with its percent escapes decoded once; raise ``ValueError`` if it is not UTF-8."""
    if _ESCAPES.search(segment):
        raise ValueError("a percent sign is not followed by two hexadecimal digits; write it as %25.")
    try:
        return unquote_to_bytes(segment.encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the percent-encoded bytes are not UTF-8; encode the text as UTF-8 first.") from None


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head
