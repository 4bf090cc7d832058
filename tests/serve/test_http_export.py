"""Export of events as Parquet, and the update of a model with it."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dgcf.serve.events import export as events_export
from dgcf.serve.events.records import Event
from dgcf.serve.http import export
from dgcf.serve.http.call import Call
from dgcf.serve.http.operation import Service
from tests.cli.in_process import invoke
from tests.serve.in_process import InProcess, Reply

COLUMNS = ["user", "item", "timestamp", "kind", "weight", "seq"]


def rows(reply: Reply, folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows of an exported file, after a check of its columns."""
    path = folder / "events.parquet"
    path.write_bytes(reply.body)
    with duckdb.connect() as engine:
        table = engine.execute("SELECT * FROM read_parquet($1)", [str(path)])
        assert [column[0] for column in table.description or ()] == COLUMNS
        return table.fetchall()


@pytest.fixture
def empty(model_file: Path, tmp_path: Path) -> Iterator[InProcess]:
    with InProcess(model_file, tmp_path / "data") as service:
        yield service


def test_an_export_has_every_interaction_in_the_order_of_arrival_and_goes_on_from_the_last(
    empty: InProcess, tmp_path: Path
) -> None:
    names = ["Ünal, Ş.", 'say "hi"', "a/b?c", "👩‍🚀", "NULL", " x ", "1,2", "'"]
    sent = [{"user": name, "item": str(place), "time": place + 0.25} for place, name in enumerate(names)]
    sent[1] |= {"kind": "rating", "weight": 0.1}
    sent[2]["kind"], sent[3]["kind"] = "hide", "dislike"
    assert empty.post("/v1/events", {"events": sent}).status == 201
    reply = empty.get("/v1/events/export")
    assert reply.headers["content-type"] == "application/vnd.apache.parquet"
    assert rows(reply, tmp_path) == [
        (event["user"], event["item"], event["time"], event.get("kind", "like"), event.get("weight", 1.0), place)
        for place, event in enumerate(sent, 1)
        if place not in (3, 4)
    ]
    following = reply.headers["dgcf-next"]
    assert following == "8"
    assert rows(empty.get(f"/v1/events/export?since={following}"), tmp_path) == []
    empty.post("/v1/events", {"user": 1, "item": 2, "kind": "hide"})
    empty.post("/v1/events", {"user": 1, "item": 2, "kind": "cart", "time": 5})
    later = empty.get(f"/v1/events/export?since={following}")
    assert rows(later, tmp_path) == [("1", "2", 5.0, "cart", 1.0, 10)]
    assert later.headers["dgcf-next"] == "10"
    hidden = empty.get("/v1/events/export?kinds=hide,dislike")
    assert [row[3] for row in rows(hidden, tmp_path)] == ["hide", "dislike", "hide"]


def test_removed_events_and_those_of_forgotten_users_are_not_exported(empty: InProcess, tmp_path: Path) -> None:
    empty.post("/v1/events", {"events": [{"user": user, "item": "i00001", "key": user} for user in "abc"]})
    assert empty.request("DELETE", "/v1/events/a").status == 204
    assert empty.request("DELETE", "/v1/users/b").status == 200
    assert [row[0] for row in rows(empty.get("/v1/events/export"), tmp_path)] == ["c"]


def test_many_pages_are_exported_and_no_file_is_left(empty: InProcess, tmp_path: Path) -> None:
    events = [Event(f"u{place}", f"i{place % 7}", time=float(place)) for place in range(20_100)]
    empty.store.submit(events).result(60)
    found = rows(empty.get("/v1/events/export"), tmp_path)
    assert [(row[0], row[1], row[2]) for row in found] == [(event.user, event.item, event.time) for event in events]
    assert sorted(path.name for path in empty.settings.data.iterdir() if path.name.startswith("export")) == []


def test_what_a_killed_process_left_is_removed_by_the_next_export(empty: InProcess) -> None:
    old, new = empty.settings.data / "export-old", empty.settings.data / "export-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "rows.csv").write_text("x")
    os.utime(old, times=(time.time() - 7200,) * 2)
    assert empty.get("/v1/events/export").status == 200
    assert not old.exists()
    assert new.exists()  # another process may be writing it


def test_a_full_disk_refuses_the_export_alone(empty: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(events_export, "_write_rows", full)
    reply = empty.get("/v1/events/export")
    assert reply.status == 503
    assert reply.headers["retry-after"]
    assert "No space left" in reply.json["detail"]
    assert empty.get("/v1/recommend/u00001").status == 200


def test_two_exports_at_a_time_are_written_one_after_the_other(
    empty: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, running, most = events_export.write, [0], [0]

    def slow(*arguments: Any) -> events_export.Export:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.1)
        done = write(*arguments)
        running[0] -= 1
        return done

    monkeypatch.setattr(export, "write", slow)

    async def both() -> list[int]:
        service = Service(empty.engine, empty.store, empty.settings, dict, bytes)
        call = Call({}, {}, {"since": 0, "kinds": None}, None)
        replies = await asyncio.gather(*(export.export(service, call) for _ in range(3)))
        for reply in replies:
            async for _ in reply.body_iterator:  # type: ignore[attr-defined]
                pass
        return [reply.status_code for reply in replies]

    assert empty.run(both()) == [200] * 3
    assert most == [1]


def test_an_export_updates_the_run_that_is_served(tmp_path: Path) -> None:
    lines = [f"u{user},i{item},{1_700_000_000 + user + item}" for user in range(30) for item in range(user % 3, 24, 3)]
    (tmp_path / "old.csv").write_text("user,item,timestamp\n" + "\n".join(lines) + "\n")
    words = ("--set", "dim=8", "--set", "epochs=2", "--no-baselines", "--device", "cpu")
    invoke("train", tmp_path / "old.csv", *words, "--out", tmp_path / "run")
    with InProcess(tmp_path / "run", tmp_path / "data") as service:
        events = [{"user": "u0", "item": "i1"}, {"user": "new one", "item": "i2"}, {"user": "u1", "item": "fresh"}]
        unliked = {"user": "u2", "item": "i0", "kind": "dislike"}
        assert service.post("/v1/events", {"events": [*events, unliked]}).json["stored"] == 4
        exported = tmp_path / "events.parquet"
        exported.write_bytes(service.get("/v1/events/export").body)
    answer = invoke("update", tmp_path / "run", exported, "--held-out", "0", "--out", tmp_path / "next")
    assert (answer["new_pairs"], answer["new_users"], answer["new_items"]) == (3, 1, 1)
    with InProcess(tmp_path / "next", tmp_path / "more") as service:
        assert service.get("/v1/recommend/new%20one").json["known"] is True
        assert service.get("/v1/items/fresh").json["known"] is True
        history = service.get("/v1/users/u2").json["history"]
        assert {row["item"] for row in history} == {f"i{item}" for item in range(2, 24, 3)}
