"""The event store: durable events, records of items and generations of the model, shared by several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from dgcf.errors import ConfigError
from dgcf.serve.events import exposures, refreshes, statements
from dgcf.serve.events.address import Address, is_address, parse
from dgcf.serve.events.commits import Commits
from dgcf.serve.events.database import open_database
from dgcf.serve.events.file_reader import FileReader
from dgcf.serve.events.group_commit import GroupCommit
from dgcf.serve.events.reader import PAGE, Reader
from dgcf.serve.events.records import (
    MAIN,
    ArmCounts,
    Changes,
    Event,
    Exposure,
    ItemRecord,
    ModelRow,
    NewModel,
    Origin,
    Position,
    RefreshRow,
    Result,
    StoredEvent,
    check_id,
    check_key,
)
from dgcf.serve.events.writer import Writer

LONGEST = 1e10
"""Bound on the seconds of a retention."""


class EventStore:
    """Events, items and models in a SQLite file or in PostgreSQL; every method may be called by any thread.

    Each process opens the store for itself. A write returns a future that is done once the write is on disk. If the
    disk is full or read-only, or the database does not answer, the future raises StoreFullError; reading goes on, and
    writing works again when there is room or the database is back.
    """

    def __init__(self, reader: Reader, writer: GroupCommit) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    def open(cls, where: Path | str, *, retention_seconds: float | None = None, commits: Commits | None = None) -> Self:
        """Open or create the store in a file, or in the database of a URL.

        Events are deleted ``retention_seconds`` after they were received (None: never). ``commits`` is shared by the
        processes of a server.
        """
        if retention_seconds is not None and not 0 < retention_seconds < LONGEST:
            raise ConfigError(
                f"the retention is {retention_seconds:g} seconds, expected more than 0 and less than {LONGEST:g}."
            )
        if is_address(where):
            return cls(*_of_database(parse(str(where)), retention_seconds, commits or Commits()))
        path = Path(where)
        open_database(path)
        return cls(FileReader(path), Writer(path, retention_seconds))

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

    def publish_model(
        self,
        sha256: str,
        path: str,
        *,
        origin: Origin | None = None,
        card: str | None = None,
        learned: int | None = None,
        arm: str = MAIN,
    ) -> Future[int]:
        """Add a generation of the model of an arm; the result is its version (1, 2, … over all arms)."""
        model = NewModel(sha256, path, origin, card, learned, arm)
        return self._writer.call(lambda con: statements.publish_model(con, model))

    def take_lease(self, name: str, holder: str, seconds: float) -> Future[bool]:
        """Take or renew a lease; the result is False as long as another holder has it."""
        return self._writer.call(lambda con: refreshes.take_lease(con, name, holder, seconds))

    def release_lease(self, name: str, holder: str) -> Future[bool]:
        """Release a lease; the result is False if the holder does not have it."""
        return self._writer.call(lambda con: refreshes.release_lease(con, name, holder))

    def begin_refresh(
        self, holder: str, cause: str, seconds: float, *, newest: int | None = None
    ) -> Future[int | None]:
        """Take the lease of the refresh and record a new one; the result is its id, None if another one runs.

        ``newest``: the id that the newest refresh has to have, 0 if there is none; else the result is None as well.
        Refreshes whose holder has let the lease run out are recorded as failed.
        """
        return self._writer.call(lambda con: refreshes.begin(con, holder, cause, seconds, newest))

    def renew_refresh(self, number: int, holder: str, step: str, seconds: float) -> Future[bool]:
        """Renew the lease of a refresh and record its step; the result is False if it has lost its lease."""
        return self._writer.call(lambda con: refreshes.renew(con, number, holder, step, seconds))

    def end_refresh(
        self, number: int, holder: str, result: Result, detail: str, model: NewModel | None = None
    ) -> Future[int | None]:
        """Record the end of a refresh, publish its model, and release the lease, all in one.

        The result is the version of the model, 0 if none was published, and None if the lease was lost: then nothing is
        done. If another model was published than the one that the new one has to come after, the refresh is refused.
        """
        return self._writer.call(lambda con: refreshes.end(con, number, holder, result, detail, model))

    def add_exposures(self, experiment: str, new: Sequence[Exposure], change: int) -> Future[dict[str, int]]:
        """Store the first exposures of users; the result is the number of new ones by arm.

        A user who has one keeps it. Users that were forgotten after ``change`` (of a ``Position``) are left out.
        """
        return self._writer.call(lambda con: exposures.add(con, experiment, new, change))

    # -- reading ------------------------------------------------------------------------------------------------------

    def version(self) -> int:
        """Return a number that changes with every commit of any process; cheap enough for every request.

        Read it before ``changes``; numbers of two stores or processes are not comparable.
        """
        return self._reader.version()

    def changes(self, since: Position, arm: str = MAIN) -> Changes:
        """Return what was committed since a position, all from ``Position.START``; of models those of an arm."""
        return self._reader.changes(since, arm)

    def current_model(self, arm: str = MAIN) -> ModelRow | None:
        """Return the newest generation of the model of an arm, or None."""
        return self._reader.current_model(arm)

    def models(self, limit: int = 50, *, arm: str | None = None, origins: Sequence[Origin] = ()) -> list[ModelRow]:
        """Return the generations of the model, the newest first; of all arms and origins unless some are given."""
        return self._reader.models(limit, arm, origins)

    def refreshes(self, limit: int = 1) -> list[RefreshRow]:
        """Return the refreshes, the newest first."""
        return self._reader.refreshes(limit)

    def refresh_counts(self) -> dict[str, int]:
        """Return the number of refreshes by result."""
        return self._reader.refresh_counts()

    def lease(self, name: str) -> tuple[str, float] | None:
        """Return the holder of a lease, and until when in seconds since 1970, or None."""
        return self._reader.lease(name)

    def experiment_counts(self, experiment: str, kinds: Sequence[str]) -> list[ArmCounts]:
        """Return the users of each arm that has some, and what they did since, counting events of these kinds.

        It takes long where many users are in the experiment, and has a connection of its own.
        """
        return self._reader.counts(experiment, kinds)

    def is_exposed(self, user: str) -> bool:
        """Return whether a user has an exposure."""
        return self._reader.is_exposed(user)

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

    def size(self) -> int:
        """Return the bytes of the store on disk."""
        return self._reader.size()

    def iterate(self, since: int = 0, *, page: int = PAGE) -> Iterator[list[StoredEvent]]:
        """Yield the events with a ``seq`` above ``since``, by pages; events may come and go between two pages."""
        while events := self._reader.events_after(since, page):
            yield events
            since = events[-1].seq


def _of_database(address: Address, retention: float | None, commits: Commits) -> tuple[Reader, GroupCommit]:
    """Return reader and writer of a database, which is prepared first."""
    from dgcf.serve.events.postgres import reader, schema, writer

    schema.open_database(address)
    return reader.DatabaseReader(address, commits), writer.DatabaseWriter(address, commits, retention)
