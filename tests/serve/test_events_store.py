"""The event store: several connections and processes, group commit, retention, erasure, and files that are refused."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from dgcf.errors import DgcfError
from dgcf.serve.errors import RequestError, StoreFullError
from dgcf.serve.events import writer
from dgcf.serve.events.database import StoreError
from dgcf.serve.events.records import Event, ItemRecord, user_digest
from dgcf.serve.events.store import EventStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "events.sqlite3"


def events(user: str, n: int, prefix: str = "k") -> list[Event]:
    return [Event(user, f"item{number}", key=f"{prefix}-{user}-{number}") for number in range(n)]


def content(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())


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


def test_errors_are_those_of_dgcf() -> None:
    assert issubclass(StoreError, DgcfError)
    assert StoreFullError.status == StoreError.status == 503
