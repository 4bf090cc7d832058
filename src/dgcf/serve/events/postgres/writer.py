"""Writing to PostgreSQL. All writers of a database wait for each other, so that what they write has one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from dgcf.serve.events import statements
from dgcf.serve.events.address import Address
from dgcf.serve.events.commits import Commits
from dgcf.serve.events.group_commit import PURGED_AFTER, GroupCommit
from dgcf.serve.events.postgres.link import DatabaseConnection, Link, as_request_error
from dgcf.serve.events.records import Event

T = TypeVar("T")
_BEGIN = "BEGIN; UPDATE counters SET value = value + 1 WHERE name = 'commits' RETURNING value"
_INSERT = """
WITH added AS (
    INSERT INTO events (digest, received, key, "user", item, kind, weight, time)
    SELECT digest, %s, key, "user", item, kind, weight, time
    FROM unnest(%s::bytea[], %s::text[], %s::text[], %s::text[], %s::text[], %s::float8[], %s::bigint[])
        WITH ORDINALITY AS given (digest, key, "user", item, kind, weight, time, place)
    ORDER BY place
    ON CONFLICT (digest) DO NOTHING RETURNING digest
), counted AS (
    UPDATE counters SET value = value + (SELECT count(*) FROM added) WHERE name = 'events'
)
SELECT digest FROM added
"""
_OLD = "SELECT EXISTS (SELECT FROM {table} WHERE {column} < ?)"


class DatabaseWriter(GroupCommit):
    """The writer of a database; it notes its commits in ``commits`` before it acknowledges them."""

    errors = (psycopg.Error,)

    def __init__(self, address: Address, commits: Commits, retention_seconds: float | None) -> None:
        self._address, self._commits = address, commits
        self._link = Link(address, synchronous_commit="on")
        super().__init__(retention_seconds)

    def _transaction(self, function: Callable[[DatabaseConnection], T]) -> T:
        with self._link.use() as con:
            begun = con.raw.execute(_BEGIN)
            begun.nextset()
            number = int(begun.fetchall()[0][0])
            result = function(con)
            con.raw.execute("COMMIT")
        self._commits.note(number)
        return result

    def _insert(self, con: DatabaseConnection, batches: Sequence[Sequence[Event]]) -> list[list[bool]]:
        events = [event for batch in batches for event in batch]
        if not events:
            return [[] for _ in batches]
        marks = [[statements.digest(event.key) for event in batch] for batch in batches]
        columns = (
            [mark for batch in marks for mark in batch],
            [event.key for event in events],
            [event.user for event in events],
            [event.item for event in events],
            [event.kind for event in events],
            [event.weight for event in events],
            [round(event.time * 1e6) for event in events],
        )
        added = con.raw.execute(_INSERT, [statements.now(), *columns]).fetchall()
        if len(added) == len(events):
            return [[True] * len(batch) for batch in batches]
        return statements.which_are_new(marks, {bytes(mark) for (mark,) in added})

    def _delete_old(self, now: int) -> int:
        """Begin to write only if there is something to delete, because others would wait and look for changes."""
        kept, purged = self._retention, now - round(PURGED_AFTER * 1e6)
        with self._link.use() as con:
            limits = [("users", "at", purged)]
            if kept is not None:
                before = now - round(kept * 1e6)
                limits += [("events", "received", before), ("exposures", "first", before)]
            old = [con.execute(_OLD.format(table=table, column=name), [at]) for table, name, at in limits]
            due = any(answer.fetchall()[0][0] for answer in old)
        return super()._delete_old(now) if due else 0

    def _explain(self, problem: Exception) -> Exception:
        return as_request_error(problem, self._address) if isinstance(problem, psycopg.Error) else problem

    def _clean(self, *, erase: bool) -> None:
        """Leave the space of deleted rows to the vacuum of PostgreSQL."""

    def _end(self) -> None:
        self._link.close()
