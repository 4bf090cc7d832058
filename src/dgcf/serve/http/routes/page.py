"""The page, the OpenAPI document and its readable form: files that are read when the service starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from starlette.responses import Response

from dgcf.serve.errors import UnknownError
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import JSON, encode, etag_of, tagged_bytes
from dgcf.serve.http.operation import Content, Handler, Operation, Service
from dgcf.serve.http.parameters import Segment
from dgcf.serve.http.reference import reference

HTML = "text/html; charset=utf-8"
INDEX = "index.html"
MEDIA_TYPES = {
    ".html": HTML,
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".ico": "image/x-icon",
}
NAME_LENGTH = 100


@dataclass(frozen=True)
class File:
    """A file of the page, in memory."""

    body: bytes
    media_type: str
    etag: str


@cache
def files() -> dict[str, File]:
    """Return the files of the page by name; no request reads a file."""
    files: dict[str, File] = {}
    for entry in resources.files("dgcf.serve").joinpath("page").iterdir():
        media_type = MEDIA_TYPES.get("." + entry.name.rpartition(".")[2])
        if media_type is not None and entry.is_file():
            body = entry.read_bytes()
            files[entry.name] = File(body, media_type, etag_of(body))
    return files


def operations(document: Callable[[], dict[str, Any]]) -> list[Operation]:
    """Return the operations of the page and of the documentation of ``document``, the OpenAPI document."""
    return [*_of_page(), *_of_document(document)]


def _of_page() -> list[Operation]:
    present = files()

    async def index(service: Service, call: Call) -> Response:
        return _sent(call, present[INDEX])

    async def file(service: Service, call: Call) -> Response:
        name = call.ids["file"]
        if name not in present:
            raise UnknownError(f"the page has no file {name!r}; open / for the page.")
        return _sent(call, present[name])

    html = {200: Content("The page.", media_type="text/html")}
    content = {200: Content("The file.", media_type="*/*")}
    names = (Segment("file", "The name of a file of the page.", NAME_LENGTH, "style.css"),)
    return [
        _stable("/", "page", "Return the page", index, html, open=True),
        _stable("/page/{file}", "page_file", "Return a file of the page", file, content, ids=names, open=True),
    ]


def _of_document(document: Callable[[], dict[str, Any]]) -> list[Operation]:
    @cache
    def described() -> tuple[bytes, bytes]:
        """Return the document and the page; the first time, this takes some 0.1 s."""
        return encode(document()), reference(document())

    async def schema(service: Service, call: Call) -> Response:
        content, _ = await asyncio.to_thread(described)
        return tagged_bytes(call, content, JSON)

    async def docs(service: Service, call: Call) -> Response:
        _, content = await asyncio.to_thread(described)
        return tagged_bytes(call, content, HTML)

    content = {200: Content("The document.", media_type=JSON)}
    html = {200: Content("The page.", media_type="text/html")}
    return [
        _stable("/openapi.json", "openapi", "Return this document", schema, content, open=True),
        _stable("/docs", "docs", "Return this document for readers", docs, html, open=True),
    ]


def _stable(
    path: str, name: str, summary: str, handler: Handler, content: dict[int, Content], **more: Any
) -> Operation:
    return Operation("GET", path, name, summary, handler, content, tagged=True, tag="page", **more)


def _sent(call: Call, file: File) -> Response:
    return tagged_bytes(call, file.body, file.media_type, file.etag)
