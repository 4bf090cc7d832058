"""The event store: durable events, records of items and generations of the model, shared by several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from dgcf.errors import ConfigError
from dgcf.serve.events import statements
from dgcf.serve.events.database import open_database
from dgcf.serve.events.reader import PAGE, Reader
from dgcf.serve.events.records import Changes, Event, ItemRecord, ModelRow, Position, StoredEvent, check_id, check_key
from dgcf.serve.events.writer import Writer

LONGEST = 1e10
"""Bound on the seconds of a retention."""


class EventStore:
    """Events, items and models in one SQLite file; every method may be called by any thread.

    Each process opens the file for itself. A write returns a future that is done once the write is on disk. If the disk
    is full or read-only, the future raises StoreFullError; reading goes on, and writing works again when there is room.
    """

    def __init__(self, path: Path, reader: Reader, writer: Writer) -> None:
        self.path = path
        self._reader, self._writer = reader, writer

    @classmethod
    def open(cls, path: Path, *, retention_seconds: float | None = None) -> EventStore:
        """Open or create the file; events are deleted ``retention_seconds`` after they were received (None: never)."""
        if retention_seconds is not None and not 0 < retention_seconds < LONGEST:
            raise ConfigError(
                f"the retention is {retention_seconds:g} seconds, expected more than 0 and less than {LONGEST:g}."
            )
        path = Path(path)
        open_database(path)
        return cls(path, Reader(path), Writer(path, retention_seconds))

    def close(self) -> None:
        """Write what waits, then close the file."""
        self._writer.close()
        self._reader.close()

    def __enter__(self) -> EventStore:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # -- writing ------------------------------------------------------------------------------------------------------

    def submit(self, events: Sequence[Event]) -> Future[list[bool]]:
        """Store events; the result says for each whether it is new. False: its key is known, also of a removed one."""
        return self._writer.insert(events)

    def remove(self, key: str) -> Future[bool]:
        """Remove the event of a key; the result is False if there is none."""
        check_key(key)
        return self._writer.call(lambda con: statements.remove(con, key))

    def forget(self, user: str) -> Future[int]:
        """Delete all events of a user and mark the user as forgotten; the result is the number of events.

        Nothing of the user is left in the file but a digest of the id. Events of the user that come later are stored as
        those of a new user.
        """
        check_id(user, "user")
        return self._writer.call(lambda con: statements.forget(con, user), erase=True)

    def put_item(self, record: ItemRecord) -> Future[bool]:
        """Store the record of an item in place of the one that there may be; the result is whether there was none."""
        return self._writer.call(lambda con: statements.put_item(con, record))

    def delete_item(self, item: str) -> Future[bool]:
        """Delete the record of an item; the result is False if there is none."""
        check_id(item, "item")
        return self._writer.call(lambda con: statements.delete_item(con, item))

    def publish_model(self, sha256: str, path: str) -> Future[int]:
        """Add a generation of the model; the result is its version (1, 2, …)."""
        return self._writer.call(lambda con: statements.publish_model(con, sha256, path))

    # -- reading ------------------------------------------------------------------------------------------------------

    def version(self) -> int:
        """Return a number that changes with every commit of any process; cheap enough for every request.

        Read it before ``changes``; numbers of two stores or processes are not comparable.
        """
        return self._reader.version()

    def changes(self, since: Position) -> Changes:
        """Return what was committed since a position; all from ``Position.START``."""
        return self._reader.changes(since)

    def current_model(self) -> ModelRow | None:
        """Return the newest generation of the model, or None."""
        return self._reader.current_model()

    def events_of(self, user: str) -> list[StoredEvent]:
        """Return the events of a user in the order of ``seq``."""
        return self._reader.events_of(user)

    def event(self, key: str) -> StoredEvent | None:
        """Return the event of a key, or None if there is none or it was removed."""
        return self._reader.event(statements.digest(check_key(key)))

    def items(self) -> list[ItemRecord]:
        """Return the records of all items, in the order of their ids."""
        return self._reader.items()

    def item(self, item: str) -> ItemRecord | None:
        """Return the record of an item, or None."""
        return self._reader.item(item)

    def forgotten(self) -> set[str]:
        """Return the digests (``user_digest``) of the users that were forgotten."""
        return self._reader.forgotten()

    def count(self) -> int:
        """Return the number of events."""
        return self._reader.count()

    def iterate(self, since: int = 0, *, page: int = PAGE) -> Iterator[list[StoredEvent]]:
        """Yield the events with a ``seq`` above ``since``, by pages; events may come and go between two pages."""
        while events := self._reader.events_after(since, page):
            yield events
            since = events[-1].seq
