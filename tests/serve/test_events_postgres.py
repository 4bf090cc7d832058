"""The event store in PostgreSQL: what it creates and refuses, its connections, and what it says of failures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dgcf.errors import ConfigError, DgcfError
from dgcf.serve.errors import StoreDownError, StoreFullError
from dgcf.serve.events.address import VARIABLE, Address, parse
from dgcf.serve.events.commits import Commits
from dgcf.serve.events.postgres import follower, link, schema
from dgcf.serve.events.postgres.link import connect
from dgcf.serve.events.records import Event, Position
from dgcf.serve.events.store import EventStore
from dgcf.serve.server.sharing import FILE_VARIABLE, events_url
from tests import postgres
from tests.serve.stores import blocked, new_schema, session

WAIT = 10


@pytest.fixture
def url(database: postgres.Server) -> str:
    return new_schema(database.dsn)


def run(url: str, *statements: str) -> None:
    """Run statements with the schema of the URL as their place."""
    con = connect(parse(url))
    with con.raw:
        for statement in statements:
            con.raw.execute(statement)  # type: ignore[call-overload]


# The schema


def test_servers_that_start_at_once_create_the_tables_once(url: str) -> None:
    with ThreadPoolExecutor(6) as threads:
        stores = list(threads.map(EventStore.open, [url] * 6))
    for number, store in enumerate(stores):
        assert store.submit([Event("anna", "item", key=str(number))]).result(WAIT) == [True]
    for store in stores:
        assert store.count() == 6
        store.close()


def test_schemas_are_separate(database: postgres.Server) -> None:
    with EventStore.open(new_schema(database.dsn)) as one, EventStore.open(new_schema(database.dsn)) as other:
        assert one.submit([Event("anna", "item", key="k")]).result(WAIT) == [True]
        assert other.count() == 0
        assert other.submit([Event("anna", "item", key="k")]).result(WAIT) == [True]


@pytest.mark.parametrize(
    ("statements", "sentence"),
    [
        (["CREATE SCHEMA {name}", "CREATE TABLE {name}.orders (id integer)"], "tables of another program \\(orders\\)"),
        (["{create}", "UPDATE {name}.dgcf_events SET version = 9"], "version 9, expected at most"),
        (["{create}", "DROP TABLE {name}.exposures"], "lacks the tables exposures"),
    ],
    ids=["other program", "newer", "no table"],
)
def test_schema_that_is_not_of_this_version_is_refused(url: str, statements: list[str], sentence: str) -> None:
    name = parse(url).schema
    if "{create}" in statements:
        EventStore.open(url).close()
    run(url, *(text.format(name=name) for text in statements if text != "{create}"))
    with pytest.raises(DgcfError, match=sentence) as problem:
        EventStore.open(url)
    assert postgres.PASSWORD not in str(problem.value)


def test_older_schema_is_migrated_in_one_transaction(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with EventStore.open(url) as store:
        store.submit([Event("anna", "item", key="k")]).result(WAIT)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with monkeypatch.context() as patch:
        patch.setitem(schema.MIGRATIONS, schema.VERSION - 1, "CREATE TABLE more (x integer); SELECT nothing_of_it;")
        with pytest.raises(DgcfError, match="nothing_of_it"):
            EventStore.open(url)
    monkeypatch.setitem(schema.MIGRATIONS, schema.VERSION - 1, "CREATE TABLE more (x integer);")
    for _ in range(2):  # the second time it is of this version
        with EventStore.open(url) as store:
            assert store.count() == 1
    monkeypatch.undo()
    with pytest.raises(DgcfError, match="expected at most"):
        EventStore.open(url)


def test_role_needs_no_right_but_that_of_its_schema(database: postgres.Server, url: str) -> None:
    name = parse(url).schema
    run(url, f"CREATE ROLE {name} LOGIN PASSWORD 'p@ss/word'")
    own = url.replace(f"postgres:{postgres.PASSWORD}", f"{name}:p%40ss%2Fword")
    with pytest.raises(DgcfError, match="permission denied"):
        EventStore.open(own)
    run(url, f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    with EventStore.open(own) as store:
        assert store.submit([Event("anna", "item")]).result(WAIT) == [True]
        assert store.forget("anna").result(WAIT) == 1


# Order


def test_position_skips_no_event_of_a_transaction_that_ends_late(url: str) -> None:
    """A second writer waits for the first one, so its event is not read before that of the first one."""
    with EventStore.open(url) as store, EventStore.open(url) as other:
        position = store.changes(Position.START).position
        with session(url) as con:
            con.execute("BEGIN")
            con.execute("UPDATE counters SET value = value + 1 WHERE name = 'commits'")
            con.execute(
                'INSERT INTO events (digest, key, "user", item, kind, weight, time, received) '
                "VALUES ('a', 'early', 'anna', 'item', 'like', 1, 0, 0)"
            )
            late = other.submit([Event("anna", "item", key="late")])
            time.sleep(0.5)
            assert not late.done()
            assert store.changes(position).events == []
            con.execute("COMMIT")
        assert late.result(WAIT) == [True]
        time.sleep(1.0)
        assert [event.key for event in store.changes(position).events] == ["early", "late"]


def test_writer_that_hangs_is_ended(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(link.SETTINGS, "idle_in_transaction_session_timeout", "500ms")
    with EventStore.open(url) as store, session(url) as con:
        con.execute("BEGIN")
        con.execute("UPDATE counters SET value = value + 1 WHERE name = 'commits'")
        assert store.submit([Event("anna", "item")]).result(WAIT) == [True]


def test_lock_that_is_held_too_long_is_a_refusal(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(link.SETTINGS, "lock_timeout", "300ms")
    with EventStore.open(url) as store:
        with blocked(url), pytest.raises(StoreFullError, match="another server holds its lock"):
            store.submit([Event("anna", "item", key="k")]).result(WAIT)
        assert store.submit([Event("anna", "item", key="k")]).result(WAIT) == [True]


# Failures


def ended_sessions(url: str) -> None:
    """End all other connections to the server."""
    run(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'postgres'",
    )


def test_connections_that_were_ended_are_opened_again(url: str) -> None:
    with EventStore.open(url) as store:
        position = store.changes(Position.START).position
        store.submit([Event("anna", "first")]).result(WAIT)
        time.sleep(link.CHECK_SECONDS + 0.2)
        ended_sessions(url)
        assert store.submit([Event("anna", "second")]).result(WAIT) == [True]
        assert store.count() == 2
        until = time.monotonic() + WAIT
        seen: list[str] = []
        while len(seen) < 2 and time.monotonic() < until:
            try:
                changes = store.changes(position)
            except StoreDownError:
                continue
            seen += [event.item for event in changes.events]
            position = changes.position
        assert seen == ["first", "second"]


def test_database_that_does_not_answer_is_told_apart(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "START_SECONDS", 0.5)
    nobody = "postgresql://dgcf@127.0.0.1:1/dgcf?connect_timeout=1"
    began = time.monotonic()
    with pytest.raises(StoreDownError, match=r"dgcf at 127\.0\.0\.1 port 1 does not answer") as problem:
        EventStore.open(nobody)
    assert time.monotonic() - began < 10
    assert "\n" not in str(problem.value)


def test_wrong_password_is_refused_without_showing_it(database: postgres.Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(schema, "START_SECONDS", 0.0)
    with pytest.raises(DgcfError, match="password authentication failed") as problem:
        EventStore.open(database.dsn.replace(postgres.PASSWORD, "not-the-password"))
    assert "not-the-password" not in str(problem.value)


def test_requests_do_not_wait_again_and_again_for_a_database_that_hangs(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(follower, "FRESH_SECONDS", 0.5)
    commits = Commits()
    with EventStore.open(url, commits=commits) as store, EventStore.open(url) as other:
        position = store.changes(Position.START).position
        other.submit([Event("anna", "item")]).result(WAIT)
        position = wait_for_events(store, position)
        with session(url) as con:
            con.execute("BEGIN")
            con.execute("LOCK TABLE counters IN ACCESS EXCLUSIVE MODE")
            commits.note(store.version() + 1)  # as another process of this server does
            times = []
            for _ in range(10):
                began = time.monotonic()
                with pytest.raises(StoreDownError):
                    store.changes(position)
                times.append(time.monotonic() - began)
            con.execute("ROLLBACK")
        assert times[0] >= 0.4
        assert sum(times[1:]) < 0.4
        other.submit([Event("anna", "another")]).result(WAIT)
        wait_for_events(store, position)


def test_commits_that_the_database_has_lost_do_not_delay_requests(url: str, caplog: pytest.LogCaptureFixture) -> None:
    commits = Commits()
    with EventStore.open(url, commits=commits) as store:
        position = store.changes(Position.START).position
        commits.note(10**6)
        began = time.monotonic()
        for _ in range(3):
            assert store.changes(position).events == []
        assert time.monotonic() - began < 1.0
    assert "has lost what was committed" in caplog.text


def wait_for_events(store: EventStore, position: Position) -> Position:
    """Wait until there are events after a position, and return the position after them."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        try:
            changes = store.changes(position)
        except StoreDownError:
            time.sleep(0.05)
            continue
        if changes.events:
            return changes.position
        time.sleep(0.05)
    raise AssertionError("no events came")


# The address


def test_address_does_not_show_the_password() -> None:
    address = parse("postgresql://anna:geheim@db.example:6432/shop?schema=mine&sslmode=require&application_name=x")
    assert (address.schema, address.label) == ("mine", "shop at db.example port 6432")
    assert "geheim" not in repr(address) + str(address)
    assert dict(address.parameters)["application_name"] == "x"
    assert address.has_password


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("postgresql://db.example/shop", False),
        ("postgresql://db.example/shop?sslmode=prefer", False),
        ("postgresql://db.example/shop?sslmode=verify-full", True),
        ("postgresql://127.0.0.1/shop", True),
        ("postgresql://[::1]/shop", True),
        ("postgresql:///shop", True),
        ("postgresql:///shop?host=/run/postgresql", True),
        ("postgresql://127.0.0.1,db.example/shop", False),
    ],
)
def test_connection_that_others_may_read_is_warned_of(url: str, private: bool) -> None:
    warnings: list[str] = []
    assert events_url(url, {}, warnings.append) == url
    assert parse(url).is_private == private
    assert len(warnings) == (not private)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://anna:geheim@db:port/shop",
        "postgresql://anna:geheim%zz@db/shop",
        "postgresql://anna:geheim@db/shop?unknown=1",
        "postgresql://anna:geheim@db/shop?schema=A%20B",
        "postgresql://anna:geheim@db/shop?schema=pg_catalog",
        "mysql://anna:geheim@db/shop",
        "geheim",
    ],
)
def test_url_that_cannot_be_read_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError) as problem:
        parse(url)
    assert "geheim" not in str(problem.value)
    assert "\n" not in str(problem.value)


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg.conninfo", None)
    with pytest.raises(ConfigError, match=r"pip install 'dgcf\[postgres\]'"):
        parse("postgresql:///shop")


def test_places_of_the_url(tmp_path: Any) -> None:
    def ignore(text: str) -> None: ...

    secret, open_ = "postgresql://anna:geheim@localhost/shop", "postgresql://anna@localhost/shop"
    file = tmp_path / "url"
    file.write_text(f"{secret}\n")
    assert events_url(None, {}, ignore) is None
    assert events_url(None, {VARIABLE: secret}, ignore) == secret
    assert events_url(None, {FILE_VARIABLE: str(file)}, ignore) == secret
    assert events_url(open_, {VARIABLE: secret}, ignore) == open_
    refused: list[Callable[[], Any]] = [
        lambda: events_url(secret, {}, ignore),
        lambda: events_url(None, {FILE_VARIABLE: str(tmp_path / "none")}, ignore),
    ]
    for call in refused:
        with pytest.raises(ConfigError) as problem:
            call()
        assert "geheim" not in str(problem.value)


def test_statement_is_translated() -> None:
    text = "SELECT a::text, :name, '[]' FROM t WHERE b = ? AND c = :other::json"
    assert link.translated(text) == "SELECT a::text, %(name)s, '[]' FROM t WHERE b = %s AND c = %(other)s::json"
    assert isinstance(parse("postgresql:///x"), Address)
