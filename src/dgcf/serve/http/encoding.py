"""JSON answers: encoded once, with an ETag."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response

from dgcf.serve.http.call import Call

JSON = "application/json"
_REVALIDATE = "private, no-cache"


def encode(answer: Any) -> bytes:
    """Return an answer as JSON in UTF-8; a number that is none becomes null, a lone surrogate is escaped."""
    try:
        return to_json(answer, inf_nan_mode="null")
    except PydanticSerializationError:
        return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode("ascii")


def answer(value: Any, status: int = 200) -> Response:
    """Return an answer without an ETag, which caches must not keep."""
    return Response(encode(value), status, {"cache-control": "no-store"}, JSON)


def tagged(call: Call, value: Any) -> Response:
    """Return an answer with an ETag, or 304 if the client has it already."""
    return tagged_bytes(call, encode(value), JSON)


def tagged_bytes(call: Call, body: bytes, media_type: str, etag: str | None = None) -> Response:
    """Return ``body`` with an ETag, or 304 if the client has it already."""
    etag = etag or etag_of(body)
    headers = {"etag": etag, "cache-control": _REVALIDATE}
    given = call.header(b"if-none-match")
    if given is not None and _matches(given.decode("latin-1"), etag):
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type)


def etag_of(body: bytes) -> str:
    """Return a strong ETag: a hash of the body."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def _matches(given: str, etag: str) -> bool:
    """Return whether If-None-Match names the ETag; the comparison is weak (RFC 9110, 13.1.2)."""
    return any(part.strip().removeprefix("W/") in (etag, "*") for part in given.split(","))
