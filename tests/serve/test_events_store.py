"""The event store: several connections and processes, group commit, retention, erasure, and files that are refused."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dgcf.errors import ConfigError, DgcfError
from dgcf.serve.errors import NotReadyError, RequestError, StoreFullError
from dgcf.serve.events import group_commit, statements, writer
from dgcf.serve.events.database import StoreError
from dgcf.serve.events.reader import PAGE
from dgcf.serve.events.records import Event, ItemRecord, Position, user_digest
from dgcf.serve.events.store import EventStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "events.sqlite3"


def events(user: str, n: int, prefix: str = "k") -> list[Event]:
    return [Event(user, f"item{number}", key=f"{prefix}-{user}-{number}") for number in range(n)]


def content(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())


# Commits


def test_jobs_that_wait_are_committed_together(path: Path) -> None:
    with EventStore.open(path) as store:
        store.submit(events("first", 1)).result(10)
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        waiting = [store.submit([event]) for event in events("anna", 300)]
        time.sleep(0.05)
        assert not any(future.done() for future in waiting[1:])
        blocker.execute("ROLLBACK")
        assert all(future.result(10) == [True] for future in waiting)
        times = blocker.execute("SELECT count(DISTINCT received) FROM events WHERE user = 'anna'").fetchone()[0]
        blocker.close()
    assert times <= 2  # the jobs that the thread had already taken, and all others


def test_failing_call_does_not_harm_those_committed_with_it(path: Path) -> None:
    with EventStore.open(path) as store:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        first = store.submit(events("a", 3))
        broken = store._writer.call(lambda con: 1 // 0)
        last = store.submit(events("b", 3))
        blocker.execute("ROLLBACK")
        blocker.close()
        assert first.result(10) == last.result(10) == [True] * 3
        with pytest.raises(ZeroDivisionError):
            broken.result(10)
        assert store.count() == 6


def test_cancelled_write_is_not_stored(path: Path) -> None:
    with EventStore.open(path) as store:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        first, second = store.submit(events("a", 1)), store.submit(events("b", 1))
        time.sleep(0.05)
        cancelled = second.cancel()
        blocker.execute("ROLLBACK")
        blocker.close()
        assert first.result(10) == [True]
        store.submit([]).result(10)
        assert store.count() == (1 if cancelled else 2)


def test_closed_store_writes_what_waits_and_refuses_more(path: Path) -> None:
    store = EventStore.open(path)
    futures = [store.submit([event]) for event in events("a", 50)]
    store.close()
    store.close()
    assert all(future.result(0) == [True] for future in futures)
    with pytest.raises(NotReadyError, match="closed"):
        store.submit(events("b", 1)).result(10)


def test_threads_share_a_store(path: Path) -> None:
    with EventStore.open(path) as store:
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


def test_more_events_than_a_page_are_read_from_the_start(path: Path) -> None:
    with EventStore.open(path) as store:
        n = PAGE + 7
        many = [Event(f"u{number % 50}", "item", key=f"k{number}") for number in range(n)]
        assert sum(store.submit(many).result(60)) == n
        store.remove("k3").result(10)
        assert len(store.changes(Position.START).events) == n - 1
        assert len(store.changes(Position(5, 1)).events) == n - 5


# Several processes

_WRITE = """
import sys, time
from pathlib import Path
from dgcf.serve.events.store import EventStore
from dgcf.serve.events.records import Event
path, name, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = EventStore.open(path)
print("open", flush=True)
for number in range(rounds):
    keys = [f"{name}-{number}-{place}" for place in range(7)] + ["shared-%d" % number]
    new = store.submit([Event(name, "item", key=key) for key in keys]).result(30)
    print(*[key for key, fresh in zip(keys, new) if fresh or key[0] != "s"], flush=True)
store.close()
"""


def writing(path: Path, name: str, rounds: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _WRITE, str(path), name, str(rounds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_processes_write_and_read_one_file(path: Path) -> None:
    with EventStore.open(path) as store:
        processes = [writing(path, f"p{number}", 40) for number in range(3)]
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
        total = seen[-1] + len(store.changes(position).events)
        assert [process.returncode for process in processes] == [0] * 3
        # A shared key is stored by one process alone, which was told so.
        assert len(written) == len(set(written)) == total == store.count() == 3 * 40 * 7 + 40


MANY_ROUNDS = [pytest.param(round_, marks=pytest.mark.slow) for round_ in range(4, 24)]


@pytest.mark.parametrize("round_", [*range(4), *MANY_ROUNDS])
def test_killed_processes_lose_nothing_that_was_acknowledged(path: Path, round_: int) -> None:
    EventStore.open(path).close()
    moment = random.Random(round_)
    processes = [writing(path, f"p{number}", 100_000) for number in range(2)]
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
    with EventStore.open(path) as store:
        stored = [event.key for page in store.iterate() for event in page]
        assert acknowledged <= set(stored)
        assert len(stored) == len(set(stored)) == store.count()
        again = store.submit([Event("x", "item", key=key) for key in sorted(acknowledged)]).result(30)
        assert not any(again)


# Retention and the clock


def test_events_expire_after_they_were_received(path: Path) -> None:
    with EventStore.open(path, retention_seconds=0.4) as store:
        store.submit([Event("anna", "old", time=0.0, key="k1")]).result(10)
        position = store.changes(Position.START).position
        until = time.monotonic() + 20
        while store.count() and time.monotonic() < until:
            time.sleep(0.05)
        changes = store.changes(position)
        assert store.count() == 0
        assert changes.users == {"anna": []}
        assert store.submit([Event("anna", "new", key="k1")]).result(10) == [True]  # its key is free again


def test_clock_that_goes_back_changes_neither_order_nor_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time()
    monkeypatch.setattr(time, "time", lambda: clock)
    with EventStore.open(path, retention_seconds=3600.0) as store:
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


def test_marks_of_users_who_lost_events_are_deleted_after_a_day(path: Path) -> None:
    with EventStore.open(path) as store:
        store.submit(events("anna", 2)).result(10)
        old = store.changes(Position.START).position
        store.remove("k-anna-0").result(10)
        new = store.changes(old).position
        later = statements.now() + 2 * round(group_commit.PURGED_AFTER * 1e6)
        store._writer.call(lambda con: statements.purge(con, later)).result(10)
        assert store.changes(old).reset
        assert not store.changes(new).reset
        assert [event.key for event in store.changes(old).events] == ["k-anna-1"]


# Erasure


def test_forgotten_user_leaves_no_byte_in_the_file_and_its_log(path: Path) -> None:
    names = [f"person {number:03d} {'x' * (number % 70)}|" for number in range(300)]
    with EventStore.open(path) as store:
        for start in range(0, 1200, 40):  # pages are split and filled again, which leaves copies of rows
            chosen = [names[(start * 7 + step * 13) % len(names)] for step in range(40)]
            batch = [Event(name, f"item{step}", key=f"{start}-{step}") for step, name in enumerate(chosen)]
            store.submit(batch).result(10)
            if start % 200 == 0:
                store.remove(f"{start}-3").result(10)
        reader = sqlite3.connect(path, isolation_level=None)
        assert b"person 000" in content(path)
        for name in names[::25]:
            reader.execute("SELECT count(*) FROM events").fetchall()
            store.forget(name).result(10)
            assert name.encode() not in content(path)
            assert user_digest(name) in store.forgotten()
        reader.close()
        waiting = [store.forget(name) for name in names]
        for future in waiting:
            future.result(30)
        assert b"person " not in content(path)
        assert store.count() == 0


def test_log_that_a_reader_holds_is_erased_when_the_reader_ends(path: Path) -> None:
    with EventStore.open(path) as store:
        store.submit(events("user to forget", 3)).result(10)
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        assert store.forget("user to forget").result(10) == 3
        assert b"user to forget" in content(path)  # the reader still sees it
        reader.execute("ROLLBACK")
        reader.close()
        until = time.monotonic() + 20
        while b"user to forget" in content(path) and time.monotonic() < until:
            time.sleep(0.1)
        assert b"user to forget" not in content(path)


def test_large_file_is_compacted_when_it_is_due(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECKED_BYTES", 0)
    with EventStore.open(path) as store:
        store.submit([Event("anna", "i" * 400, key=str(number)) for number in range(800)]).result(10)
        store.forget("anna").result(10)
        large = path.stat().st_size
        store._writer._compact_due = 0.0
        store.forget("anna").result(10)
        assert path.stat().st_size < large / 3


# Records


def test_invalid_events_and_records_are_refused_in_one_sentence() -> None:
    for make in (
        lambda: Event("", "item"),
        lambda: Event("u" * 513, "item"),
        lambda: Event("a\x00b", "item"),
        lambda: Event("\ud800", "item"),
        lambda: Event(7, "item"),  # type: ignore[arg-type]
        lambda: Event("u", "item", "lik"),
        lambda: Event("u", "item", weight=float("nan")),
        lambda: Event("u", "item", weight=0),
        lambda: Event("u", "item", weight=10**400),
        lambda: Event("u", "item", weight=True),
        lambda: Event("u", "item", time=1e12),
        lambda: Event("u", "item", key="k" * 129),
        lambda: ItemRecord("i", "t" * 1001),
        lambda: ItemRecord("i", "two\nlines"),
        lambda: ItemRecord("i", attributes={"a": None}),  # type: ignore[dict-item]
        lambda: ItemRecord("i", attributes={"a": "x" * 17_000}),
        lambda: ItemRecord("i", attributes={str(number): True for number in range(65)}),
        lambda: ItemRecord("i", hidden=1),  # type: ignore[arg-type]
    ):
        with pytest.raises(RequestError) as problem:
            make()
        text = str(problem.value)
        assert text[-1] in ".?"
        assert "\n" not in text
        assert len(text) < 300


# Files that are refused


def other_database(path: Path) -> None:
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE t (x)")
    con.commit()
    con.close()


def with_pragma(path: Path, pragma: str) -> None:
    EventStore.open(path).close()
    con = sqlite3.connect(path, isolation_level=None)
    con.execute(pragma)
    con.close()


def overwritten(path: Path, place: int, size: int) -> None:
    with EventStore.open(path) as store:
        store.submit(events("anna", 500)).result(10)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xa5" * size)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (other_database, "the database of another program"),
        (lambda path: path.write_text("user,item\n" * 99), "not an event store"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.symlink_to("elsewhere"), "not a regular file"),
        (lambda path: with_pragma(path, "PRAGMA user_version = 3"), "schema version 3, expected at most 2"),
        (lambda path: with_pragma(path, "DROP TABLE users"), "damaged"),
        (lambda path: overwritten(path, 0, 16), "its start is damaged"),
        (lambda path: overwritten(path, 8192, 4096), "damaged"),
        (lambda path: overwritten(path, 20, 60), "damaged|cannot be used"),
    ],
    ids=["other program", "text", "folder", "link", "newer", "no table", "start", "pages", "header"],
)
def test_file_that_is_no_sound_event_store_is_refused(path: Path, make: object, sentence: str) -> None:
    path.parent.mkdir()
    make(path)  # type: ignore[operator]
    with pytest.raises(StoreError, match=sentence) as problem:
        EventStore.open(path)
    assert str(path) in str(problem.value)


def test_empty_file_becomes_an_event_store(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with EventStore.open(path) as store:
        assert store.submit(events("anna", 1)).result(10) == [True]


def test_file_deleted_while_in_use_is_reported(path: Path) -> None:
    with EventStore.open(path) as store:
        store.submit(events("anna", 1)).result(10)
        path.unlink()
        with pytest.raises(StoreFullError, match="moved or deleted"):
            store.submit(events("anna", 1, "later")).result(10)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_retention_is_a_positive_number(path: Path, seconds: float) -> None:
    with pytest.raises(ConfigError, match="retention"):
        EventStore.open(path, retention_seconds=seconds)


def test_errors_are_those_of_dgcf() -> None:
    assert issubclass(StoreError, DgcfError)
    assert StoreFullError.status == StoreError.status == 503
