"""Reading the event store: events, items and models, and what changed since a position.

Many rows are read as one JSON text, because Python's lock is released and taken again for each row that SQLite returns.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from dgcf.serve.events.database import connect, explain
from dgcf.serve.events.records import Changes, ItemRecord, ModelRow, Position, RefreshRow, StoredEvent

PAGE = 20_000
_EVENT = "seq, key, user, item, kind, weight, time"
_ITEM = "item, title, attributes, hidden, present"
_MODEL = "version, sha256, path, published, arm, origin, card, learned"
_NEWEST_MODEL = """
SELECT json_array(version, sha256, path, published, arm, origin, NULL, learned) FROM models WHERE arm = :arm
ORDER BY version DESC LIMIT 1
"""
_REFRESH = "id, holder, asked, started, ended, step, result, detail, version"
# Rows without a user are removed events: they count for the position only.
_SINCE = f"""
SELECT json_object(
    'counters', (SELECT json_group_object(name, value) FROM counters),
    'newest', (SELECT coalesce(max(seq), 0) FROM events),
    'users', (SELECT json_group_array(user) FROM users WHERE changed > :change),
    'forgotten', (SELECT json_group_array(digest) FROM forgotten WHERE changed > :change),
    'items', (SELECT json_group_array(json_array({_ITEM})) FROM items WHERE changed > :change),
    'model', ({_NEWEST_MODEL}),
    'events', (SELECT json_group_array(json_array({_EVENT})) FROM (
        SELECT {_EVENT} FROM events WHERE seq > :event AND user IS NOT NULL ORDER BY seq LIMIT {PAGE})))
"""


class Reader:
    """A connection for reading, which any thread may use, and one that notices commits."""

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
        """Return a number that changes with every commit, also of other processes."""
        with self._version_lock, explain(self._path):
            return int(self._watch.execute("PRAGMA data_version").fetchone()[0])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Yield the connection within a transaction, so that all that is read belongs to one moment."""
        with self._lock, explain(self._path):
            self._con.execute("BEGIN")
            try:
                yield self._con
            finally:
                self._con.rollback()

    def changes(self, since: Position, arm: str) -> Changes:
        """Return what was committed since a position; of the models the newest one of ``arm``."""
        with self._reading() as con:
            content = _since(con, since, arm)
            reset = since == Position.START or since.change < content["counters"]["purged"]
            if reset and since != Position.START:
                since, content = Position.START, _since(con, Position.START, arm)
            users = {} if reset else {user: _events(con, "user = ?", user) for user in content["users"]}
            added = _stored(content["events"])
            if len(added) == PAGE:
                added += _events_after(con, added[-1].seq)
            return Changes(
                position=Position(max(since.event, content["newest"]), content["counters"]["change"]),
                reset=reset,
                events=[event for event in added if event.user not in users] if users else added,
                users=users,
                forgotten=set(content["forgotten"]),
                items={row[0]: _item(row) if row[4] else None for row in content["items"] if row[4] or not reset},
                model=None if content["model"] is None else _model(content["model"]),
            )

    def events_of(self, user: str) -> list[StoredEvent]:
        with self._reading() as con:
            return _events(con, "user = ?", user)

    def events_after(self, seq: int, limit: int) -> list[StoredEvent]:
        with self._reading() as con:
            return _page(con, "seq > ? AND user IS NOT NULL ORDER BY seq LIMIT ?", seq, limit)

    def items(self) -> list[ItemRecord]:
        with self._reading() as con:
            return [_item(row) for row in _rows(con, _ITEM, "items WHERE present ORDER BY item")]

    def item(self, item: str) -> ItemRecord | None:
        with self._reading() as con:
            rows = _rows(con, _ITEM, "items WHERE present AND item = ?", item)
        return _item(rows[0]) if rows else None

    def event(self, digest: bytes) -> StoredEvent | None:
        with self._reading() as con:
            events = _page(con, "digest = ? AND user IS NOT NULL", digest)
        return events[0] if events else None

    def forgotten(self) -> set[str]:
        with self._reading() as con:
            return {digest for (digest,) in _rows(con, "digest", "forgotten")}

    def is_exposed(self, user: str) -> bool:
        with self._reading() as con:
            return bool(con.execute("SELECT count(*) FROM exposures WHERE user = ?", [user]).fetchone()[0])

    def count(self) -> int:
        with self._reading() as con:
            return int(con.execute("SELECT value FROM counters WHERE name = 'events'").fetchone()[0])

    def current_model(self, arm: str) -> ModelRow | None:
        with self._reading() as con:
            rows = _rows(con, _MODEL, "models WHERE arm = ? ORDER BY version DESC LIMIT 1", arm)
        return _model(rows[0]) if rows else None

    def models(self, limit: int, arm: str | None, origins: Sequence[str]) -> list[ModelRow]:
        chosen = (
            "(:arm IS NULL OR arm = :arm) AND (:origins = '[]' OR origin IN (SELECT value FROM json_each(:origins)))"
        )
        values = {"arm": arm, "origins": json.dumps(origins), "limit": limit}
        with self._reading() as con:
            rows = _rows(con, _MODEL, f"models WHERE {chosen} ORDER BY version DESC LIMIT :limit", values)
        return [_model(row) for row in rows]

    def refreshes(self, limit: int) -> list[RefreshRow]:
        with self._reading() as con:
            rows = _rows(con, _REFRESH, "refreshes ORDER BY id DESC LIMIT ?", limit)
        return [_refresh(row) for row in rows]

    def lease(self, name: str) -> tuple[str, float] | None:
        with self._reading() as con:
            rows = _rows(con, "holder, until", "leases WHERE name = ?", name)
        return (rows[0][0], rows[0][1] / 1e6) if rows else None


def _rows(con: Connection, columns: str, source: str, *values: Any) -> list[list[Any]]:
    """Return the rows of ``SELECT columns FROM source``; ``values``: those of its marks, or one mapping by name."""
    query = f"SELECT json_group_array(json_array({columns})) FROM (SELECT {columns} FROM {source})"
    given = values[0] if values and isinstance(values[0], dict) else values
    rows: list[list[Any]] = json.loads(con.execute(query, given).fetchone()[0])
    return rows


def _since(con: Connection, position: Position, arm: str) -> dict[str, Any]:
    """Return what was committed since a position; of the events the first ``PAGE``."""
    values = {"event": position.event, "change": position.change, "arm": arm}
    content: dict[str, Any] = json.loads(con.execute(_SINCE, values).fetchone()[0])
    return content


def _page(con: Connection, condition: str, *values: Any) -> list[StoredEvent]:
    return _stored(_rows(con, _EVENT, f"events WHERE {condition}", *values))


def _stored(rows: list[list[Any]]) -> list[StoredEvent]:
    return [StoredEvent._make((*row[:6], row[6] / 1e6)) for row in rows]


def _events(con: Connection, condition: str, *values: Any) -> list[StoredEvent]:
    """Return the events that meet a condition, in the order of ``seq``."""
    return sorted(_page(con, f"{condition} AND user IS NOT NULL", *values))


def _events_after(con: Connection, seq: int) -> list[StoredEvent]:
    events: list[StoredEvent] = []
    while page := _page(con, "seq > ? AND user IS NOT NULL ORDER BY seq LIMIT ?", seq, PAGE):
        events += page
        if len(page) < PAGE:
            break
        seq = page[-1].seq
    return events


def _item(row: list[Any]) -> ItemRecord:
    item, title, attributes, hidden, _ = row
    return ItemRecord(item, title, json.loads(attributes), bool(hidden))


def _model(row: list[Any]) -> ModelRow:
    return ModelRow._make((*row[:3], row[3] / 1e6, *row[4:]))


def _refresh(row: list[Any]) -> RefreshRow:
    return RefreshRow._make((*row[:3], row[3] / 1e6, None if row[4] is None else row[4] / 1e6, *row[5:]))
