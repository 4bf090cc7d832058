"""Generations of the model, leases and refreshes in the event store, and files of older versions."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dgcf.ids import user_digest
from dgcf.serve.events import statements
from dgcf.serve.events.records import ItemRecord, ModelRow, NewModel, Position
from dgcf.serve.events.store import EventStore
from tests.serve.stores import Where

VERSION_1 = Path(__file__).parent / "old" / "events-1.sqlite3.gz"
"""A store that version 1 of the schema wrote: events of anna, bert and cleo, of whom cleo is forgotten; two models."""
WAIT = 10


@pytest.fixture
def store(where: Where) -> Iterator[EventStore]:
    with EventStore.open(where) as store:
        yield store


def schema_of(path: Path) -> dict[str, Any]:
    """Return the columns of each table, and the version."""
    with closing(sqlite3.connect(path)) as con:
        names = [name for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        tables = {name: con.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
        return {**tables, "version": con.execute("PRAGMA user_version").fetchone()}


def test_file_of_version_1_is_migrated_in_place(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite3"
    path.write_bytes(gzip.decompress(VERSION_1.read_bytes()))
    for _ in range(2):  # the second time it is of this version
        with EventStore.open(path) as store:
            anna = [(event.item, event.kind, event.time, event.key) for event in store.events_of("anna")]
            assert anna == [(f"i{n}", "like", 1.7e9 + n, f"k{n}") for n in (0, 1, 2, 4)]
            assert (store.count(), store.event("k3"), store.forgotten()) == (5, None, {user_digest("cleo")})
            assert store.items() == [ItemRecord("i1", "Film 1", {"genre": "Noir"}, True)]
            newest = store.current_model()
            assert newest is not None
            assert newest == ModelRow(2, "b" * 64, "/models/second.dgcf", newest.published)
            assert [row.version for row in store.models()] == [2, 1]
            assert store.changes(Position.START).model == newest
            assert store.refreshes() == []
    with EventStore.open(tmp_path / "new" / "events.sqlite3"):
        pass
    assert schema_of(path) == schema_of(tmp_path / "new" / "events.sqlite3")


def test_failed_migration_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.sqlite3"
    path.write_bytes(gzip.decompress(VERSION_1.read_bytes()))
    before = schema_of(path)
    with monkeypatch.context() as patch:
        patch.setitem(_migrations(), 1, _migrations()[1] + "SELECT nothing_of_that_name;")
        with pytest.raises(Exception, match="nothing_of_that_name"):
            EventStore.open(path)
    assert schema_of(path) == before
    with EventStore.open(path) as store:
        assert store.count() == 5


def _migrations() -> dict[int, str]:
    from dgcf.serve.events import schema

    return schema.MIGRATIONS


def test_models_of_arms(store: EventStore) -> None:
    first = store.publish_model("a", "x", origin="start", card='{"model": "ä"}', learned=7).result(WAIT)
    other = store.publish_model("b", "y", arm="b", origin="reload").result(WAIT)
    assert (first, other) == (1, 2)
    (newest, oldest), main = store.models(), store.current_model()
    assert main is not None
    assert main == oldest == ModelRow(1, "a", "x", main.published, "main", "start", '{"model": "ä"}', 7)
    assert newest == store.current_model("b") == ModelRow(2, "b", "y", newest.published, "b", "reload", None, None)
    assert store.changes(Position.START).model == main._replace(card=None)
    assert [row.version for row in store.models(1)] == [2]
    assert [row.version for row in store.models(arm="main")] == [1]
    assert [row.version for row in store.models(arm="main", origins=("reload",))] == []
    assert [row.version for row in store.models(origins=("start", "reload"))] == [2, 1]
    assert store.current_model("c") is None


def test_lease_has_one_holder(store: EventStore) -> None:
    assert store.take_lease("x", "a", 60).result(WAIT)
    assert store.take_lease("x", "a", 60).result(WAIT)  # renewed
    assert not store.take_lease("x", "b", 60).result(WAIT)
    assert store.take_lease("y", "b", 60).result(WAIT)
    assert not store.release_lease("x", "b").result(WAIT)
    held = store.lease("x")
    assert held is not None
    assert held[0] == "a"
    assert store.release_lease("x", "a").result(WAIT)
    assert store.lease("x") is None
    assert store.take_lease("x", "b", 60).result(WAIT)


def test_lease_runs_out(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    began = statements.now()
    assert store.take_lease("x", "a", 5).result(WAIT)
    for seconds, taken in ((3, False), (20, True)):
        monkeypatch.setattr("dgcf.serve.events.refreshes.now", lambda at=began + seconds * 10**6: at)
        assert store.take_lease("x", "b", 5).result(WAIT) is taken


def test_one_of_many_takes_the_lease(where: Where) -> None:
    stores = [EventStore.open(where) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        begun = list(
            threads.map(lambda n: stores[n].begin_refresh(f"holder {n}", "schedule", 60).result(WAIT), range(4))
        )
    assert sorted(map(str, begun)) == ["1", "None", "None", "None"]
    assert [row.holder for row in stores[0].refreshes(9)] == [f"holder {begun.index(1)}"]
    for store in stores:
        store.close()


def test_refresh_publishes_and_ends_in_one(store: EventStore) -> None:
    number = store.begin_refresh("a", "admin", 60).result(WAIT)
    assert number == 1
    assert store.renew_refresh(number, "a", "update", 60).result(WAIT)
    (running,) = store.refreshes()
    assert (running.step, running.ended, running.cause, running.holder) == ("update", None, "admin", "a")
    assert not store.renew_refresh(number, "b", "check", 60).result(WAIT)
    model = NewModel("a", "x", "refresh", "{}", 12)
    assert store.end_refresh(number, "b", "published", "by another", model).result(WAIT) is None
    assert store.models() == []
    assert store.end_refresh(number, "a", "published", "better", model).result(WAIT) == 1
    (ended,), (published,) = store.refreshes(), store.models()
    assert (ended.result, ended.detail, ended.version, ended.step) == ("published", "better", 1, None)
    assert ended.ended is not None
    assert (published.origin, published.learned, published.card) == ("refresh", 12, "{}")
    assert store.end_refresh(number, "a", "failed", "again").result(WAIT) is None
    assert store.lease("refresh") is None


def test_refresh_of_a_dead_holder_is_failed_and_publishes_nothing(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = store.begin_refresh("a", "schedule", 5).result(WAIT)
    assert number is not None
    later = statements.now() + 20 * 10**6
    monkeypatch.setattr("dgcf.serve.events.refreshes.now", lambda: later)
    model = NewModel("a", "x", "refresh")
    assert store.end_refresh(number, "a", "published", "late", model).result(WAIT) is None
    assert store.models() == []
    assert store.begin_refresh("b", "schedule", 5).result(WAIT) == number + 1
    newest, dead = store.refreshes(2)
    assert (newest.result, dead.result) == (None, "failed")
    assert dead.detail is not None
    assert "lease ran out" in dead.detail


def test_refresh_begins_only_if_no_other_one_was_begun_since(store: EventStore) -> None:
    first = store.begin_refresh("a", "schedule", 60, newest=0).result(WAIT)
    assert first is not None
    assert store.end_refresh(first, "a", "unchanged", "nothing").result(WAIT) == 0
    assert store.begin_refresh("b", "schedule", 60, newest=0).result(WAIT) is None
    assert store.lease("refresh") is None
    assert store.begin_refresh("b", "schedule", 60, newest=first).result(WAIT) == first + 1


def test_refresh_does_not_publish_over_a_model_that_came_meanwhile(store: EventStore) -> None:
    base = store.publish_model("a", "x", origin="start").result(WAIT)
    number = store.begin_refresh("a", "admin", 60).result(WAIT)
    assert number is not None
    store.publish_model("c", "z", arm="other").result(WAIT)
    store.publish_model("b", "y", origin="rollback").result(WAIT)
    model = NewModel("d", "x", "refresh", after=base)
    assert store.end_refresh(number, "a", "published", "better", model).result(WAIT) == 0
    (row,) = store.refreshes()
    assert (row.result, row.version) == ("refused", None)
    assert row.detail == "model 3 was published while model 1 was updated; the newer one stays."
    current = store.current_model()
    assert current is not None
    assert current.sha256 == "b"
