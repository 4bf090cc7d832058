"""Reading the event store: events, items and models, and what changed since a position."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from dgcf.serve.events.records import (
    ArmCounts,
    Changes,
    ItemRecord,
    ModelRow,
    Position,
    RefreshRow,
    StoredEvent,
)

PAGE = 20_000
EVENT = 'seq, key, "user", item, kind, weight, time'
ITEM = "item, title, attributes, hidden, present"
_MODEL = "version, sha256, path, published, arm, origin, card, learned"
NEWEST_MODEL = "version, sha256, path, published, arm, origin, NULL, learned"
_REFRESH = "id, holder, cause, started, ended, step, result, detail, version"


class Reader(ABC):
    """Reads a database; any thread may use it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    def version(self) -> int:
        """Return a number that changes with every commit, also of other processes."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]:
        """Yield a connection within a transaction, so that all that is read belongs to one moment."""

    @abstractmethod
    def _rows(self, con: Any, columns: str, source: str, *values: Any) -> list[list[Any]]:
        """Return the rows of ``SELECT columns FROM source``."""

    @abstractmethod
    def _since(self, con: Any, position: Position, arm: str) -> dict[str, Any]:
        """Return what was committed since a position.

        ``counters`` by name, ``newest``: the largest ``seq``, ``users`` and ``forgotten``, rows of ``items`` and of the
        first ``PAGE`` ``events``, and the newest ``model`` of the arm or None.
        """

    @abstractmethod
    def counts(self, experiment: str, kinds: Sequence[str]) -> list[ArmCounts]:
        """Return the counts of an experiment, read by a connection of their own."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes that the store takes."""

    def changes(self, since: Position, arm: str) -> Changes:
        """Return what was committed since a position; of the models the newest one of ``arm``."""
        with self._reading() as con:
            return self._changes(con, since, arm)

    def _changes(self, con: Any, since: Position, arm: str) -> Changes:
        content = self._since(con, since, arm)
        reset = since == Position.START or since.change < content["counters"]["purged"]
        if reset and since != Position.START:
            since, content = Position.START, self._since(con, Position.START, arm)
        users = {} if reset else self._events_by_user(con, content["users"], since.change)
        added = _stored(content["events"])
        if len(added) == PAGE:
            added += self._events_after(con, added[-1].seq)
        return Changes(
            position=Position(max(since.event, content["newest"]), content["counters"]["change"]),
            reset=reset,
            events=[event for event in added if event.user not in users] if users else added,
            users=users,
            forgotten=set(content["forgotten"]),
            items={row[0]: _item(row) if row[4] else None for row in content["items"] if row[4] or not reset},
            model=None if content["model"] is None else _model(content["model"]),
        )

    def _events_by_user(self, con: Any, users: Sequence[str], change: int) -> dict[str, list[StoredEvent]]:
        """Return the events that are left of users who lost some after a change."""
        if not users:
            return {}
        left = defaultdict[str, list[StoredEvent]](list)
        for event in self._events(con, '"user" IN (SELECT "user" FROM users WHERE changed > ?)', change):
            left[event.user].append(event)
        return {user: left[user] for user in users}

    def events_of(self, user: str) -> list[StoredEvent]:
        with self._reading() as con:
            return self._events(con, '"user" = ?', user)

    def events_after(self, seq: int, limit: int) -> list[StoredEvent]:
        with self._reading() as con:
            return self._page(con, _AFTER, seq, limit)

    def items(self) -> list[ItemRecord]:
        with self._reading() as con:
            return [_item(row) for row in self._rows(con, ITEM, "items WHERE present = 1 ORDER BY item")]

    def item(self, item: str) -> ItemRecord | None:
        with self._reading() as con:
            rows = self._rows(con, ITEM, "items WHERE present = 1 AND item = ?", item)
        return _item(rows[0]) if rows else None

    def event(self, digest: bytes) -> StoredEvent | None:
        with self._reading() as con:
            events = self._page(con, 'digest = ? AND "user" IS NOT NULL', digest)
        return events[0] if events else None

    def forgotten(self) -> set[str]:
        with self._reading() as con:
            return {digest for (digest,) in self._rows(con, "digest", "forgotten")}

    def is_exposed(self, user: str) -> bool:
        with self._reading() as con:
            return bool(self._rows(con, "arm", 'exposures WHERE "user" = ? LIMIT 1', user))

    def count(self) -> int:
        with self._reading() as con:
            return int(con.execute("SELECT value FROM counters WHERE name = 'events'").fetchone()[0])

    def current_model(self, arm: str) -> ModelRow | None:
        with self._reading() as con:
            rows = self._rows(con, _MODEL, "models WHERE arm = ? ORDER BY version DESC LIMIT 1", arm)
        return _model(rows[0]) if rows else None

    def models(self, limit: int, arm: str | None, origins: Sequence[str]) -> list[ModelRow]:
        conditions, values = ["1 = 1"], list[Any]()
        if arm is not None:
            conditions, values = ["arm = ?"], [arm]
        if origins:
            conditions.append(f"origin IN ({', '.join('?' * len(origins))})")
            values += origins
        source = f"models WHERE {' AND '.join(conditions)} ORDER BY version DESC LIMIT ?"
        with self._reading() as con:
            rows = self._rows(con, _MODEL, source, *values, limit)
        return [_model(row) for row in rows]

    def refreshes(self, limit: int) -> list[RefreshRow]:
        with self._reading() as con:
            rows = self._rows(con, _REFRESH, "refreshes ORDER BY id DESC LIMIT ?", limit)
        return [_refresh(row) for row in rows]

    def refresh_counts(self) -> dict[str, int]:
        counted = "(SELECT result, count(*) AS n FROM refreshes WHERE ended IS NOT NULL GROUP BY result) AS counted"
        with self._reading() as con:
            return dict(self._rows(con, "result, n", counted))

    def lease(self, name: str) -> tuple[str, float] | None:
        with self._reading() as con:
            rows = self._rows(con, "holder, until", "leases WHERE name = ?", name)
        return (rows[0][0], rows[0][1] / 1e6) if rows else None

    def _page(self, con: Any, condition: str, *values: Any) -> list[StoredEvent]:
        return _stored(self._rows(con, EVENT, f"events WHERE {condition}", *values))

    def _events(self, con: Any, condition: str, *values: Any) -> list[StoredEvent]:
        """Return the events that meet a condition, in the order of ``seq``."""
        return sorted(self._page(con, f'{condition} AND "user" IS NOT NULL', *values))

    def _events_after(self, con: Any, seq: int) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        while page := self._page(con, _AFTER, seq, PAGE):
            events += page
            if len(page) < PAGE:
                break
            seq = page[-1].seq
        return events


_AFTER = 'seq > ? AND "user" IS NOT NULL ORDER BY seq LIMIT ?'


def _stored(rows: list[list[Any]]) -> list[StoredEvent]:
    return [StoredEvent._make((*row[:6], row[6] / 1e6)) for row in rows]


def _item(row: list[Any]) -> ItemRecord:
    item, title, attributes, hidden, _ = row
    return ItemRecord(item, title, json.loads(attributes), bool(hidden))


def _model(row: list[Any]) -> ModelRow:
    return ModelRow._make((*row[:3], row[3] / 1e6, *row[4:]))


def _refresh(row: list[Any]) -> RefreshRow:
    return RefreshRow._make((*row[:3], row[3] / 1e6, None if row[4] is None else row[4] / 1e6, *row[5:]))
