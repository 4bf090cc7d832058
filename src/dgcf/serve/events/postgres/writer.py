"""Writing to PostgreSQL. All writers of a database wait for each other, so that what they write has one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from dgcf.serve.events import statements
from dgcf.serve.events.address import Address
from dgcf.serve.events.commits import Commits
from dgcf.serve.events.group_commit import PURGED_AFTER, GroupCommit, Job
from dgcf.serve.events.postgres.link import DatabaseConnection, Link, as_request_error
from dgcf.serve.events.records import Event

T = TypeVar("T")
_NUMBER = "UPDATE counters SET value = value + 1 WHERE name = 'commits' RETURNING value"
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
            con.raw.execute("BEGIN")
            number = con.raw.execute(_NUMBER)
            result = function(con)
            con.raw.execute("COMMIT")
        self._commits.note(int(number.fetchall()[0][0]))
        return result

    def _write(self, jobs: Sequence[Job]) -> list[Any]:
        """Send a transaction of inserts in one piece, so that others wait for no message of this machine."""
        if any(job.call is not None for job in jobs):
            return super()._write(jobs)
        batches = [job.events for job in jobs]
        with self._link.use() as con, con.raw.pipeline():
            con.raw.execute("BEGIN")
            number = con.raw.execute(_NUMBER)
            added = con.raw.execute(_INSERT, _columns(batches))
            con.raw.execute("COMMIT")
        self._commits.note(int(number.fetchall()[0][0]))
        return _which_are_new(batches, added.fetchall())

    def _insert(self, con: DatabaseConnection, batches: Sequence[Sequence[Event]]) -> list[list[bool]]:
        return _which_are_new(batches, con.raw.execute(_INSERT, _columns(batches)).fetchall())

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


def _columns(batches: Sequence[Sequence[Event]]) -> list[Any]:
    """Return the values of ``_INSERT``."""
    events = [event for batch in batches for event in batch]
    return [
        statements.now(),
        [statements.digest(event.key) for event in events],
        [event.key for event in events],
        [event.user for event in events],
        [event.item for event in events],
        [event.kind for event in events],
        [event.weight for event in events],
        [round(event.time * 1e6) for event in events],
    ]


def _which_are_new(batches: Sequence[Sequence[Event]], added: Sequence[Sequence[bytes]]) -> list[list[bool]]:
    """Return for each event whether it is new, by the digests that were added."""
    if len(added) == sum(len(batch) for batch in batches):
        return [[True] * len(batch) for batch in batches]
    marks = [[statements.digest(event.key) for event in batch] for batch in batches]
    return statements.which_are_new(marks, {bytes(mark) for (mark,) in added})
