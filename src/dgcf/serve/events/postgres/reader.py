"""Reading from PostgreSQL; changes are read ahead by a thread, so that requests wait for no database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dgcf.serve.errors import StoreDownError
from dgcf.serve.events import exposures
from dgcf.serve.events.address import Address
from dgcf.serve.events.commits import Commits
from dgcf.serve.events.postgres.follower import BEGIN, COMMITS, Follower
from dgcf.serve.events.postgres.link import DatabaseConnection, Link, connect, explained
from dgcf.serve.events.reader import EVENT, ITEM, NEWEST_MODEL, PAGE, Reader
from dgcf.serve.events.records import ArmCounts, Changes, Position

_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0) FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = ? AND relkind = 'r'
"""


class DatabaseReader(Reader):
    """A connection for single questions, and a follower of the changes."""

    def __init__(self, address: Address, commits: Commits) -> None:
        self._address = address
        self._link = Link(address)
        self._known: dict[str, int] = {}
        self._follower = Follower(address, self._changes, commits)

    def close(self) -> None:
        self._follower.close()
        self._link.close()

    def version(self) -> int:
        return self._follower.version()

    def changes(self, since: Position, arm: str) -> Changes:
        changes = self._follower.take(arm, since)
        if changes is None:
            with self._reading() as con:
                commit = int(con.raw.execute(COMMITS).fetchall()[0][0])
                changes = self._changes(con, since, arm)
            self._follower.begin(arm, changes, commit)
        return changes

    def count(self) -> int:
        """Return the number of events, the last one that was read if the database does not answer."""
        return self._last("count", super().count)

    def size(self) -> int:
        """Return the bytes of all tables, those that were read last if the database does not answer."""
        return self._last("size", self._size)

    def _size(self) -> int:
        with self._link.use() as con:
            return int(con.execute(_SIZE, [self._address.schema]).fetchall()[0][0])

    def _last(self, name: str, read: Callable[[], int]) -> int:
        with contextlib.suppress(StoreDownError):
            self._known[name] = read()
        return self._known.get(name, 0)

    def counts(self, experiment: str, kinds: Sequence[str]) -> list[ArmCounts]:
        with explained(self._address), connect(self._address, statement_timeout="0").raw as raw:
            return exposures.counts(DatabaseConnection(raw), experiment, kinds)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[DatabaseConnection]:
        with self._link.use() as con:
            con.raw.execute(BEGIN)
            yield con
            con.raw.execute("COMMIT")

    def _rows(self, con: DatabaseConnection, columns: str, source: str, *values: Any) -> list[Any]:
        if any(isinstance(value, str) and "\0" in value for value in values):
            return []  # PostgreSQL takes no text with it, and so has none
        return con.execute(f"SELECT {columns} FROM {source}", values).fetchall()

    def _since(self, con: DatabaseConnection, position: Position, arm: str) -> dict[str, Any]:
        models = self._rows(con, NEWEST_MODEL, "models WHERE arm = ? ORDER BY version DESC LIMIT 1", arm)
        return {
            "counters": dict(self._rows(con, "name, value", "counters")),
            "newest": self._rows(con, "coalesce(max(seq), 0)", "events")[0][0],
            "users": [user for (user,) in self._rows(con, '"user"', "users WHERE changed > ?", position.change)],
            "forgotten": [one for (one,) in self._rows(con, "digest", "forgotten WHERE changed > ?", position.change)],
            "items": self._rows(con, ITEM, "items WHERE changed > ?", position.change),
            "model": models[0] if models else None,
            "events": self._rows(
                con, EVENT, f'events WHERE seq > ? AND "user" IS NOT NULL ORDER BY seq LIMIT {PAGE}', position.event
            ),
        }
