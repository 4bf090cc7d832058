"""Reading the SQLite file.

Many rows are read as one JSON text, because Python's lock is released and taken again for each row that SQLite returns.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dgcf.serve.events import exposures
from dgcf.serve.events.database import FileConnection, connect, explain
from dgcf.serve.events.reader import EVENT, ITEM, NEWEST_MODEL, PAGE, Reader
from dgcf.serve.events.records import ArmCounts, Position

# Rows without a user are removed events: they count for the position only.
_SINCE = f"""
SELECT json_object(
    'counters', (SELECT json_group_object(name, value) FROM counters),
    'newest', (SELECT coalesce(max(seq), 0) FROM events),
    'users', (SELECT json_group_array("user") FROM users WHERE changed > :change),
    'forgotten', (SELECT json_group_array(digest) FROM forgotten WHERE changed > :change),
    'items', (SELECT json_group_array(json_array({ITEM})) FROM items WHERE changed > :change),
    'model', (SELECT json_array({NEWEST_MODEL}) FROM models WHERE arm = :arm ORDER BY version DESC LIMIT 1),
    'events', (SELECT json_group_array(json_array({EVENT})) FROM (
        SELECT {EVENT} FROM events WHERE seq > :event AND "user" IS NOT NULL ORDER BY seq LIMIT {PAGE})))
"""


class FileReader(Reader):
    """A connection for reading, and one that notices commits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock, self._version_lock = threading.Lock(), threading.Lock()
        with explain(path):
            self._con = connect(path, read=True)
            self._watch = connect(path, read=True)

    def close(self) -> None:
        with self._lock, self._version_lock:
            self._con.close()
            self._watch.close()

    def version(self) -> int:
        with self._version_lock, explain(self._path):
            return int(self._watch.execute("PRAGMA data_version").fetchone()[0])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[FileConnection]:
        with self._lock, explain(self._path):
            self._con.execute("BEGIN")
            try:
                yield self._con
            finally:
                self._con.rollback()

    def _rows(self, con: FileConnection, columns: str, source: str, *values: Any) -> list[list[Any]]:
        query = f"SELECT json_group_array(json_array({columns})) FROM (SELECT {columns} FROM {source})"
        rows: list[list[Any]] = json.loads(con.execute(query, values).fetchone()[0])
        return rows

    def _since(self, con: FileConnection, position: Position, arm: str) -> dict[str, Any]:
        values = {"event": position.event, "change": position.change, "arm": arm}
        content: dict[str, Any] = json.loads(con.execute(_SINCE, values).fetchone()[0])
        return content

    def size(self) -> int:
        size = 0
        for suffix in ("", "-wal"):
            path = self._path.with_name(self._path.name + suffix)
            size += path.stat().st_size if path.exists() else 0
        return size

    def counts(self, experiment: str, kinds: Sequence[str]) -> list[ArmCounts]:
        with explain(self._path), contextlib.closing(connect(self._path, read=True)) as con:
            return exposures.counts(con, experiment, kinds)
