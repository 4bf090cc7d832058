"""Export of events as Parquet: written to a temporary file with little memory, then sent and removed."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from starlette.responses import Response, StreamingResponse

from dgcf.data.event_export import COLUMNS
from dgcf.data.sql import path_literal
from dgcf.serve.errors import StoreFullError
from dgcf.serve.events.records import POSITIVE
from dgcf.serve.events.store import EventStore
from dgcf.serve.http.call import Call
from dgcf.serve.http.operation import Service

MEDIA_TYPE = "application/vnd.apache.parquet"
NEXT = "dgcf-next"
"""The header with the position that the next export begins after."""
DEFAULT_KINDS = POSITIVE
CHUNK = 256 * 1024
MEMORY = "128MB"
_FOLDER = "export-"
_ABANDONED = 3600.0  # seconds after which a folder belongs to a process that was killed
_COLUMNS = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())


@dataclass(frozen=True)
class Export:
    """A Parquet file that is open, and has no name any more: it is gone when it is closed."""

    file: BinaryIO
    size: int
    last: int
    """The position of the last event that was read, of whatever kind."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the content, and close the file."""
        with self.file:
            while chunk := self.file.read(CHUNK):
                yield chunk


def write(store: EventStore, folder: Path, since: int, kinds: frozenset[str]) -> Export:
    """Write the events after a position into a temporary file in a folder."""
    import duckdb

    _clean(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=folder) as name:
            rows, target = Path(name) / "rows.csv", Path(name) / "events.parquet"
            last = _write_rows(store, rows, since, kinds)
            with duckdb.connect() as engine:
                engine.execute("SET temp_directory = $1", [name])
                engine.execute(f"SET memory_limit = '{MEMORY}'; SET preserve_insertion_order = true; SET threads = 1")
                read = f"read_csv({path_literal(rows)}, columns = {{{_COLUMNS}}}, header = false, auto_detect = false, "
                read += "delim = ',', quote = '\"', escape = '\"', nullstr = '')"
                engine.execute(f"COPY (SELECT * FROM {read}) TO {path_literal(target, write=True)} (FORMAT parquet)")
            return Export(target.open("rb"), target.stat().st_size, last)
    except duckdb.Error as problem:
        reason = str(problem).strip().splitlines()[0][:200]
        raise StoreFullError(f"the export cannot be written: {reason}; free some space and try again.") from problem


def _write_rows(store: EventStore, path: Path, since: int, kinds: frozenset[str]) -> int:
    """Write events as CSV, and return the position of the last one."""
    last = since
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        for page in store.iterate(since):
            last = page[-1].seq
            for event in page:
                if event.kind in kinds:
                    writer.writerow((event.user, event.item, event.time, event.kind, event.weight, event.seq))
    return last


def _clean(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    for left in folder.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            if left.is_dir() and time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)


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
