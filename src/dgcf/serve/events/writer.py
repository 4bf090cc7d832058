"""Writing to the SQLite file. Statements handle many rows at once, because Python's lock is released at each step."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dgcf.serve.errors import StoreFullError
from dgcf.serve.events import statements
from dgcf.serve.events.database import (
    BUSY_SECONDS,
    CHECKED_BYTES,
    FileConnection,
    as_request_error,
    compact,
    connect,
    identity,
)
from dgcf.serve.events.group_commit import GroupCommit
from dgcf.serve.events.records import Event

T = TypeVar("T")
_POLL = 0.008
"""Seconds that SQLite waits for another process before it is called again."""
_ERASE_AGAIN = 1.0
"""Seconds after which erasing is tried again."""
COMPACTED_EVERY = 86_400.0
"""Seconds between two times at which a file is written anew because rows were deleted."""
_DIGEST = statements.DIGEST
_FIELDS = ("key", "user", "item", "kind", "weight", "time")
_VALUES = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(_FIELDS)))
_INSERT = f"""
INSERT OR IGNORE INTO events (digest, received, {", ".join(_FIELDS)})
SELECT substr(:digests, 1 + {_DIGEST} * json_each.key, {_DIGEST}), :received, {_VALUES} FROM json_each(:rows) WHERE true
"""


class Writer(GroupCommit):
    """The writer of a file."""

    errors = (sqlite3.Error,)

    def __init__(self, path: Path, retention_seconds: float | None) -> None:
        self._path, self._identity = path, identity(path)
        self._erase = False
        self._compact_due = time.monotonic() + COMPACTED_EVERY / 24
        self._con: FileConnection | None = None
        super().__init__(retention_seconds)

    def _insert(self, con: FileConnection, batches: Sequence[Sequence[Event]]) -> list[list[bool]]:
        marks = [[statements.digest(event.key) for event in batch] for batch in batches]
        rows = [
            (event.key, event.user, event.item, event.kind, event.weight, round(event.time * 1e6))
            for batch in batches
            for event in batch
        ]
        before = con.total_changes
        values = {
            "digests": b"".join(mark for batch in marks for mark in batch),
            "received": statements.now(),
            "rows": json.dumps(rows, ensure_ascii=False),
        }
        con.execute(_INSERT, values)
        inserted = con.total_changes - before
        statements.count_events(con, inserted)
        if inserted == len(rows):
            return [[True] * len(batch) for batch in batches]
        newest = "SELECT digest FROM events ORDER BY seq DESC LIMIT ?"
        text = con.execute(f"SELECT group_concat(hex(digest), ' ') FROM ({newest})", [inserted]).fetchone()[0]
        return statements.which_are_new(marks, {bytes.fromhex(word) for word in (text or "").split()})

    def _explain(self, problem: Exception) -> Exception:
        return as_request_error(problem, self._path.name) if isinstance(problem, sqlite3.Error) else problem

    def _transaction(self, function: Callable[[FileConnection], T]) -> T:
        """Return the result of ``function`` once it is committed; after an error the connection is opened anew."""
        try:
            if identity(self._path) != self._identity:  # SQLite would go on to write to the deleted file
                name = self._path.name
                raise StoreFullError(f"{name} was moved or deleted while it was in use; restart the service.")
            if self._con is None:
                self._con = connect(self._path, timeout=_POLL)
            _begin(self._con)
            result = function(self._con)
            self._con.execute("COMMIT")
        except BaseException:
            self._end()  # rolls back
            raise
        return result

    def _end(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            with contextlib.suppress(sqlite3.Error):
                con.close()

    def _clean(self, *, erase: bool) -> None:
        """Leave nothing of what was deleted in a small file and its log; in a large file once a day.

        Readers, other writers or a full disk may put this off.
        """
        self._erase = self._erase or erase
        if self._con is None:
            return
        with contextlib.suppress(sqlite3.Error, OSError):
            self._con.execute("PRAGMA busy_timeout = 200")
            now = time.monotonic()
            if now >= self._compact_due or (self._erase and self._path.stat().st_size <= CHECKED_BYTES):
                self._compact_due = now + COMPACTED_EVERY
                compact(self._con)
            if self._erase:
                self._erase = bool(self._con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            self._con.execute(f"PRAGMA busy_timeout = {round(_POLL * 1000)}")
        if self._erase:
            self._due = min(self._due, time.monotonic() + _ERASE_AGAIN)


def _begin(con: FileConnection) -> None:
    """Begin to write; wait for another process by the first, short pauses of SQLite, since its later ones are long."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            con.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
