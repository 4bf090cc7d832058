"""Export of events as Parquet files that ``dgcf update`` reads, with little memory."""

from __future__ import annotations

import contextlib
import csv
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dgcf.data.event_export import COLUMNS
from dgcf.data.sql import path_literal
from dgcf.ids import user_digest
from dgcf.serve.errors import StoreFullError
from dgcf.serve.events.records import NEGATIVE, StoredEvent
from dgcf.serve.events.store import EventStore

CHUNK = 256 * 1024
MEMORY = "128MB"
_FOLDER = "export-"
_ABANDONED = 3600.0  # seconds after which a folder belongs to a process that was killed
_COLUMNS = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
_DISLIKED = ", ".join(f"'{kind}'" for kind in NEGATIVE)
_NEWEST = f"QUALIFY row_number() OVER (PARTITION BY user, item ORDER BY seq DESC) = 1 AND kind NOT IN ({_DISLIKED})"


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
    _clean(folder)
    with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=folder) as name:
        target = Path(name) / "events.parquet"
        last, _ = _write(store, target, since, lambda event: event.kind in kinds, "")
        return Export(target.open("rb"), target.stat().st_size, last)


def write_liked(store: EventStore, target: Path, since: int) -> tuple[int, int]:
    """Write what users liked after a position, and return the position of the last event and the number of rows.

    Of several events of a user with an item the last one counts. Events of forgotten users are left out.
    """
    forgotten, known = store.forgotten(), dict[str, bool]()

    def keep(event: StoredEvent) -> bool:
        if forgotten and event.user not in known:
            known[event.user] = user_digest(event.user) not in forgotten
        return known.get(event.user, True)

    return _write(store, target, since, keep, f"{_NEWEST} ORDER BY seq")


def _write(
    store: EventStore, target: Path, since: int, keep: Callable[[StoredEvent], bool], clause: str
) -> tuple[int, int]:
    """Write events as Parquet, and return the position of the last one read and the number of rows written."""
    import duckdb

    rows = target.with_name("rows.csv")
    try:
        last = _write_rows(store, rows, since, keep)
        with duckdb.connect() as engine:
            engine.execute("SET temp_directory = $1", [str(target.parent)])
            engine.execute(f"SET memory_limit = '{MEMORY}'; SET preserve_insertion_order = true; SET threads = 1")
            read = f"read_csv({path_literal(rows)}, columns = {{{_COLUMNS}}}, header = false, auto_detect = false, "
            read += f"delim = ',', quote = '\"', escape = '\"', nullstr = '') {clause}"
            copy = f"COPY (SELECT * FROM {read}) TO {path_literal(target, write=True)} (FORMAT parquet)"
            (count,) = engine.execute(copy).fetchone() or (0,)
    except duckdb.Error as problem:
        reason = str(problem).strip().splitlines()[0][:200]
        raise StoreFullError(f"the export cannot be written: {reason}; free some space and try again.") from problem
    finally:
        rows.unlink(missing_ok=True)
    return last, int(count)


def _write_rows(store: EventStore, path: Path, since: int, keep: Callable[[StoredEvent], bool]) -> int:
    """Write events as CSV, and return the position of the last one."""
    last = since
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        for page in store.iterate(since):
            last = page[-1].seq
            for event in page:
                if keep(event):
                    writer.writerow((event.user, event.item, event.time, event.kind, event.weight, event.seq))
    return last


def _clean(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    for left in folder.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            if left.is_dir() and time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)
