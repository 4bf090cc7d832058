"""The event store against a plain model of itself: any sequence of calls, and readers at any position."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dgcf.serve.events import statements
from dgcf.serve.events.records import KINDS, Event, ItemRecord, Position, StoredEvent, user_digest
from dgcf.serve.events.store import EventStore
from tests import postgres
from tests.serve.stores import Where, new_schema

T = TypeVar("T")
USERS = st.sampled_from(["7", "ü's", "anna", "a"])
ITEMS = st.sampled_from(["1", "item 2", "<b>"])
KEYS = st.sampled_from([f"key{number}" for number in range(12)])
EVENTS = st.builds(
    Event, USERS, ITEMS, st.sampled_from(KINDS), st.sampled_from([1.0, 0.1, 12345.678]), st.floats(-1e9, 4e9), KEYS
)
RECORDS = st.builds(
    ItemRecord,
    ITEMS,
    st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
    st.dictionaries(st.sampled_from(["genre", "year"]), st.booleans() | st.text("aé ", max_size=3) | st.floats(-9, 9)),
    st.booleans(),
)


@dataclass
class Follower:
    """A reader that takes over changes, as the overlay of a worker does."""

    position: Position = Position.START
    events: dict[str, list[StoredEvent]] = field(default_factory=dict)
    items: dict[str, ItemRecord] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    model: Any = None

    def follow(self, store: EventStore) -> None:
        changes = store.changes(self.position)
        if changes.reset:
            self.events, self.items, self.forgotten = {}, {}, set()
        self.forgotten |= changes.forgotten
        for user in [user for user in self.events if user_digest(user) in changes.forgotten]:
            del self.events[user]
        self.events.update(changes.users)
        for event in changes.events:
            self.events.setdefault(event.user, []).append(event)
        for item, record in changes.items.items():
            if record is None:
                self.items.pop(item, None)
            else:
                self.items[item] = record
        self.position, self.model = changes.position, changes.model

    def state(self) -> tuple[Any, ...]:
        return {user: events for user, events in self.events.items() if events}, self.items, self.forgotten


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.real_now = 1_000_000, statements.now
        statements.now = lambda: self.clock
        self.where = self.place()
        self.store = EventStore.open(self.where)
        self.rows: list[dict[str, Any]] = []  # as they are stored: key, event or None, received
        self.items: dict[str, ItemRecord] = {}
        self.forgotten: set[str] = set()
        self.published: list[str] = []
        self.followers = [Follower() for _ in range(3)]

    def place(self) -> Where:
        return Path(self.folder.name) / "events.sqlite3"

    def teardown(self) -> None:
        self.store.close()
        statements.now = self.real_now
        self.folder.cleanup()

    def write(self, function: Callable[[Any], T]) -> T:
        return self.store._writer.call(function).result(10)

    @rule(batches=st.lists(st.lists(EVENTS, max_size=6), min_size=1, max_size=3))
    def submit(self, batches: list[list[Event]]) -> None:
        futures: list[Future[list[bool]]] = [self.store.submit(batch) for batch in batches]
        for batch, future in zip(batches, futures, strict=True):
            expected = []
            for event in batch:
                expected.append(event.key not in {row["key"] for row in self.rows})
                if expected[-1]:
                    self.rows.append({"key": event.key, "event": event, "received": self.clock})
            assert future.result(10) == expected

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        found = [row for row in self.rows if row["key"] == key and row["event"] is not None]
        assert self.store.remove(key).result(10) == bool(found)
        for row in found:
            row["event"] = None

    @rule(user=USERS)
    def forget(self, user: str) -> None:
        found = [row for row in self.rows if row["event"] is not None and row["event"].user == user]
        assert self.store.forget(user).result(10) == len(found)
        self.forgotten.add(user_digest(user))
        for row in found:
            row["event"] = None

    @rule(record=RECORDS)
    def put_item(self, record: ItemRecord) -> None:
        assert self.store.put_item(record).result(10) == (record.item not in self.items)
        self.items[record.item] = record

    @rule(item=ITEMS)
    def delete_item(self, item: str) -> None:
        assert self.store.delete_item(item).result(10) == (item in self.items)
        self.items.pop(item, None)

    @rule(sha256=st.sampled_from(["aa", "bb"]))
    def publish(self, sha256: str) -> None:
        self.published.append(sha256)
        assert self.store.publish_model(sha256, "a path").result(10) == len(self.published)

    @rule(step=st.integers(-50, 200))
    def clock_moves(self, step: int) -> None:
        self.clock += step

    @rule(age=st.integers(-10, 150))
    def expire(self, age: int) -> None:
        before = self.clock - age
        gone = [row for row in self.rows if row["received"] < before]
        assert self.write(lambda con: statements.expire(con, before, 10_000)) == len(gone)
        self.rows = [row for row in self.rows if row["received"] >= before]

    @rule(age=st.integers(-10, 150))
    def purge(self, age: int) -> None:
        self.write(lambda con: statements.purge(con, self.clock - age))

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = EventStore.open(self.where)

    @rule(number=st.integers(0, 2))
    def follow(self, number: int) -> None:
        self.compare(self.followers[number])

    @rule()
    def all_is_read(self) -> None:
        self.compare(Follower())
        events = self.live()
        read = [event for page in self.store.iterate(page=2) for event in page]
        assert read == sorted(event for of in events.values() for event in of)
        assert self.store.items() == sorted(self.items.values(), key=lambda record: record.item.encode())
        for key in {row["key"] for row in self.rows}:
            found = self.store.event(key)
            assert (None if found is None else found.key) == next(
                (row["event"].key for row in self.rows if row["key"] == key and row["event"] is not None), None
            )

    @invariant()
    def the_count_is_that_of_the_events(self) -> None:
        assert self.store.count() == sum(row["event"] is not None for row in self.rows)

    def compare(self, follower: Follower) -> None:
        follower.follow(self.store)
        assert follower.state() == (self.live(), self.items, self.forgotten)
        assert (None if follower.model is None else follower.model.sha256) == next(reversed(self.published), None)

    def live(self) -> dict[str, list[StoredEvent]]:
        """The events of each user as they are to be read; their ``seq`` is taken from the store."""
        found: dict[str, list[StoredEvent]] = {}
        for row in self.rows:
            event = row["event"]
            if event is not None:
                stored = self.store.event(event.key)
                assert stored is not None
                assert stored[1:] == (event.key, event.user, event.item, event.kind, event.weight, event.time)
                found.setdefault(event.user, []).append(stored)
        assert all(of == sorted(of) for of in found.values())
        return found


SETTINGS = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestStore = StoreMachine.TestCase
TestStore.settings = SETTINGS


def test_store_in_postgres(database: postgres.Server) -> None:
    class DatabaseMachine(StoreMachine):
        def place(self) -> Where:
            return new_schema(database.dsn)

    run_state_machine_as_test(
        DatabaseMachine, settings=settings(SETTINGS, max_examples=6, phases=[Phase.explicit, Phase.generate])
    )
