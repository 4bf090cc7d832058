"""The answer with events as Parquet: sent from a temporary file that has no name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from dgcf.serve.events.export import Export, write
from dgcf.serve.events.records import POSITIVE
from dgcf.serve.http.call import Call
from dgcf.serve.http.operation import Service

MEDIA_TYPE = "application/vnd.apache.parquet"
NEXT = "dgcf-next"
"""The header with the position that the next export begins after."""
DEFAULT_KINDS = POSITIVE


async def export(service: Service, call: Call) -> Response:
    """Answer with the events after ``since``."""
    kinds: Any = call.query["kinds"] or DEFAULT_KINDS
    async with service.exporting:
        done = await asyncio.to_thread(
            write, service.store, service.settings.data, call.query["since"], frozenset(kinds)
        )
    headers = {
        "content-length": str(done.size),
        "content-disposition": 'attachment; filename="events.parquet"',
        "cache-control": "no-store",
        NEXT: str(done.last),
    }
    return StreamingResponse(_sent(done), 200, headers, MEDIA_TYPE)


async def _sent(done: Export) -> AsyncIterator[bytes]:
    with contextlib.closing(done.file):
        for chunk in done.chunks():
            yield chunk
            await asyncio.sleep(0)
