"""What every event store does, in a file and in PostgreSQL: commits, several processes, retention, and the clock."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time

import pytest

from dgcf.errors import ConfigError
from dgcf.serve.errors import NotReadyError
from dgcf.serve.events import group_commit, statements
from dgcf.serve.events.reader import PAGE
from dgcf.serve.events.records import Event, Exposure, ItemRecord, Position
from dgcf.serve.events.store import EventStore
from tests.serve.stores import Where, blocked, session

VISIBLE_SECONDS = 1.0
"""Seconds within which a store has what others have committed; a file has it at once."""


def events(user: str, n: int, prefix: str = "k") -> list[Event]:
    return [Event(user, f"item{number}", key=f"{prefix}-{user}-{number}") for number in range(n)]


# Commits


def test_jobs_that_wait_are_committed_together(where: Where) -> None:
    with EventStore.open(where) as store:
        store.submit(events("first", 1)).result(10)
        with blocked(where):
            waiting = [store.submit([event]) for event in events("anna", 300)]
            time.sleep(0.05)
            assert not any(future.done() for future in waiting[1:])
        assert all(future.result(10) == [True] for future in waiting)
        with session(where) as con:
            query = "SELECT count(DISTINCT received) FROM events WHERE \"user\" = 'anna'"
            times = con.execute(query).fetchone()[0]
    assert times <= 2  # the jobs that the thread had already taken, and all others


def test_failing_call_does_not_harm_those_committed_with_it(where: Where) -> None:
    with EventStore.open(where) as store:
        with blocked(where):
            first = store.submit(events("a", 3))
            broken = store._writer.call(lambda con: 1 // 0)
            last = store.submit(events("b", 3))
        assert first.result(10) == last.result(10) == [True] * 3
        with pytest.raises(ZeroDivisionError):
            broken.result(10)
        assert store.count() == 6


def test_cancelled_write_is_not_stored(where: Where) -> None:
    with EventStore.open(where) as store:
        with blocked(where):
            first, second = store.submit(events("a", 1)), store.submit(events("b", 1))
            time.sleep(0.05)
            cancelled = second.cancel()
        assert first.result(10) == [True]
        store.submit([]).result(10)
        assert store.count() == (1 if cancelled else 2)


def test_closed_store_writes_what_waits_and_refuses_more(where: Where) -> None:
    store = EventStore.open(where)
    futures = [store.submit([event]) for event in events("a", 50)]
    store.close()
    store.close()
    assert all(future.result(0) == [True] for future in futures)
    with pytest.raises(NotReadyError, match="closed"):
        store.submit(events("b", 1)).result(10)


def test_threads_share_a_store(where: Where) -> None:
    with EventStore.open(where) as store:
        problems: list[BaseException] = []

        def work(user: str) -> None:
            try:
                for event in events(user, 20):
                    before = store.version()
                    assert store.submit([event]).result(10) == [True]
                    assert store.version() != before
                    assert store.events_of(user)[-1].key == event.key
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(f"user{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not problems
        assert store.count() == 120


def test_more_events_than_a_page_are_read_from_the_start(where: Where) -> None:
    with EventStore.open(where) as store:
        n = PAGE + 7
        many = [Event(f"u{number % 50}", "item", key=f"k{number}") for number in range(n)]
        assert sum(store.submit(many).result(60)) == n
        store.remove("k3").result(10)
        assert len(store.changes(Position.START).events) == n - 1
        assert len(store.changes(Position(5, 1)).events) == n - 5


def test_texts_are_stored_as_they_are_and_odd_ones_are_unknown(where: Where) -> None:
    texts = ["%s", "%(name)s", "?", ":name", "it's", 'say "so"', "\\", "{}", "NULL", "ünï 😀", " "]
    with EventStore.open(where) as store:
        store.submit([Event(text, text, key=text) for text in texts]).result(10)
        for text in texts:
            assert [(event.user, event.item, event.key) for event in store.events_of(text)] == [(text, text, text)]
            assert store.put_item(ItemRecord(text, text, {text: text})).result(10)
            assert store.item(text) == ItemRecord(text, text, {text: text})
        exposed = [Exposure(text, "main", 1.0) for text in texts]
        assert store.add_exposures("one", exposed, store.changes(Position.START).position.change).result(10) == {
            "main": len(texts)
        }
        assert all(store.is_exposed(text) for text in texts)
        for text in ("\0", "a\0b"):
            assert (store.events_of(text), store.item(text), store.is_exposed(text)) == ([], None, False)
        assert [store.forget(text).result(10) for text in texts] == [1] * len(texts)
        assert not any(store.is_exposed(text) for text in texts)


# Several processes

_WRITE = """
import sys, time
from pathlib import Path
from dgcf.serve.events.store import EventStore
from dgcf.serve.events.records import Event
where, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = EventStore.open(where if "://" in where else Path(where))
print("open", flush=True)
for number in range(rounds):
    keys = [f"{name}-{number}-{place}" for place in range(7)] + ["shared-%d" % number]
    new = store.submit([Event(name, "item", key=key) for key in keys]).result(30)
    print(*[key for key, fresh in zip(keys, new) if fresh or key[0] != "s"], flush=True)
store.close()
"""


def writing(where: Where, name: str, rounds: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _WRITE, str(where), name, str(rounds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_processes_write_and_read_one_store(where: Where) -> None:
    with EventStore.open(where) as store:
        processes = [writing(where, f"p{number}", 40) for number in range(3)]
        try:
            seen, version = [0], store.version()
            position = Position.START
            while any(process.poll() is None for process in processes):
                if store.version() != version:
                    version = store.version()
                    changes = store.changes(position)
                    assert changes.reset == (position == Position.START)
                    position = changes.position
                    seen.append(seen[-1] + len(changes.events))
                time.sleep(0.01)
            written = [key for process in processes for key in process.communicate(timeout=60)[0].split()[1:]]
        finally:
            for process in processes:
                process.kill()
                process.wait(10)
        total, until = seen[-1], time.monotonic() + VISIBLE_SECONDS
        while total < store.count() and time.monotonic() < until:
            changes = store.changes(position)
            total, position = total + len(changes.events), changes.position
            time.sleep(0.01)
        assert [process.returncode for process in processes] == [0] * 3
        # A shared key is stored by one process alone, which was told so.
        assert len(written) == len(set(written)) == total == store.count() == 3 * 40 * 7 + 40


MANY_ROUNDS = [pytest.param(round_, marks=pytest.mark.slow) for round_ in (0, 1, *range(4, 24))]


@pytest.mark.parametrize("round_", [2, 3, *MANY_ROUNDS])
def test_killed_processes_lose_nothing_that_was_acknowledged(where: Where, round_: int) -> None:
    EventStore.open(where).close()
    moment = random.Random(round_)
    processes = [writing(where, f"p{number}", 100_000) for number in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
        for process in processes:
            time.sleep(moment.uniform(0.0, 0.1 + 0.1 * (round_ % 4)))
            process.kill()
        outputs = [process.stdout.read() for process in processes if process.stdout is not None]
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=10)
    # A last line without its end may be cut.
    lines = [line for output in outputs for line in output[: output.rfind("\n") + 1].splitlines()]
    acknowledged = {key for line in lines for key in line.split()}
    assert round_ != 3 or acknowledged
    with EventStore.open(where) as store:
        stored = [event.key for page in store.iterate() for event in page]
        assert acknowledged <= set(stored)
        assert len(stored) == len(set(stored)) == store.count()
        again = store.submit([Event("x", "item", key=key) for key in sorted(acknowledged)]).result(30)
        assert not any(again)


# Retention and the clock


def test_events_expire_after_they_were_received(where: Where) -> None:
    with EventStore.open(where, retention_seconds=0.4) as store:
        store.submit([Event("anna", "old", time=0.0, key="k1")]).result(10)
        position = store.changes(Position.START).position
        until = time.monotonic() + 20
        while store.count() and time.monotonic() < until:
            time.sleep(0.05)
        changes = store.changes(position)
        assert store.count() == 0
        assert changes.users == {"anna": []}
        assert store.submit([Event("anna", "new", key="k1")]).result(10) == [True]  # its key is free again


def test_clock_that_goes_back_changes_neither_order_nor_changes(where: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time()
    monkeypatch.setattr(time, "time", lambda: clock)
    with EventStore.open(where, retention_seconds=3600.0) as store:
        store.submit([Event("anna", "first", time=5.0, key="k1")]).result(10)
        position = store.changes(Position.START).position
        clock -= 3 * 86_400
        store.submit([Event("anna", "second", time=4.0, key="k2")]).result(10)
        store.remove("k1").result(10)
        changes = store.changes(position)
        assert not changes.reset
        assert [event.item for event in changes.users["anna"]] == ["second"]
        clock += 3 * 86_400
        before = statements.now() - 3_600_000_000
        assert store._writer.call(lambda con: statements.expire(con, before, 10)).result(10) == 1


def test_marks_of_users_who_lost_events_are_deleted_after_a_day(where: Where) -> None:
    with EventStore.open(where) as store:
        store.submit(events("anna", 2)).result(10)
        old = store.changes(Position.START).position
        store.remove("k-anna-0").result(10)
        new = store.changes(old).position
        later = statements.now() + 2 * round(group_commit.PURGED_AFTER * 1e6)
        store._writer.call(lambda con: statements.purge(con, later)).result(10)
        assert store.changes(old).reset
        assert not store.changes(new).reset
        assert [event.key for event in store.changes(old).events] == ["k-anna-1"]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_retention_is_a_positive_number(where: Where, seconds: float) -> None:
    with pytest.raises(ConfigError, match="retention"):
        EventStore.open(where, retention_seconds=seconds)
