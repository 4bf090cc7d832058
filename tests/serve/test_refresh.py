"""Parts of a refresh: when it is due, what it reads of the events, how models are compared, and its options."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dgcf.errors import ConfigError
from dgcf.recommend import Recommender, artifact
from dgcf.serve.engine.publishing import Publishing
from dgcf.serve.events.export import write_liked
from dgcf.serve.events.records import Event, ModelRow, RefreshRow
from dgcf.serve.events.store import EventStore
from dgcf.serve.refresh import check, learn, options
from dgcf.serve.refresh.child import carry_out
from dgcf.serve.refresh.refresher import Refresher, RunningError
from dgcf.serve.refresh.schedule import RETRY_SECONDS, Present
from dgcf.serve.server.log import Log
from dgcf.serve.settings import Settings
from tests.serve.engines import trained
from tests.serve.refreshing import FIRST, Likes, earlier_and_later, earlier_model

MODEL = ModelRow(1, "a", "x", 1000.0, origin="start")
WAIT = 10


def row(started: float, ended: float | None, result: str | None) -> RefreshRow:
    return RefreshRow(7, "holder", "schedule", started, ended, None, result, None, None)


@pytest.mark.parametrize(
    ("newest", "running", "origin", "due"),
    [
        (None, False, "start", 1000 + 3600),
        (row(5000, 5100, "published"), False, "refresh", 5000 + 3600),
        (row(5000, 5100, "refused"), False, "start", 5000 + 3600),
        (row(5000, 5100, "unchanged"), False, "reload", 5000 + 3600),
        (row(5000, 5100, "failed"), False, "start", 5100 + RETRY_SECONDS),
        (row(5000, None, None), True, "start", None),
        (row(5000, 5100, "published"), False, "rollback", None),
    ],
)
def test_when_a_refresh_is_due(newest: RefreshRow | None, running: bool, origin: Any, due: float | None) -> None:
    present = Present(newest, None, MODEL._replace(origin=origin), running)
    assert present.due(3600) == due
    assert present.due(None) is None


def test_state_of_a_dead_refresh_is_failed(tmp_path: Path) -> None:
    with EventStore.open(tmp_path / "events.sqlite3") as store:
        assert Present.read(store).to_dict(None)["last"] is None
        number = store.begin_refresh("a", "admin", 0.3).result(WAIT)
        assert number == 1
        assert store.renew_refresh(1, "a", "update", 0.3).result(WAIT)
        state = Present.read(store).to_dict(60)
        assert (state["state"], state["step"], state["last"], state["next"]) == ("running", "update", None, None)
        time.sleep(0.35)
        state = Present.read(store).to_dict(60)
        assert (state["state"], state["step"], state["last"]["result"]) == ("idle", None, "failed")
        assert state["last"]["detail"].endswith("the served model stays.")


def test_export_has_what_users_like_since(tmp_path: Path) -> None:
    with EventStore.open(tmp_path / "events.sqlite3") as store:
        events = [
            Event("anna", "old", "like", time=FIRST),
            Event("anna", "x", "like", time=FIRST + 1),
            Event("anna", "x", "hide", time=FIRST + 2),
            Event("anna", "y", "dislike", time=FIRST + 3),
            Event("anna", "y", "view", time=FIRST + 4),
            Event("anna", "y", "purchase", time=FIRST + 5),
            Event("bert", "x", "cart", time=FIRST + 6),
        ]
        store.submit(events).result(WAIT)
        store.forget("bert").result(WAIT)
        store.submit([Event("bert", "z", time=FIRST + 8)]).result(WAIT)  # forgotten, and back
        target = tmp_path / "events.parquet"
        last, count = write_liked(store, target, 1)
        with duckdb.connect() as con:
            rows = con.execute(f"SELECT user, item, timestamp, kind FROM '{target}'").fetchall()
        assert rows == [("anna", "y", FIRST + 5, "purchase")]
        assert (last, count) == (8, 1)
        assert write_liked(store, target, last) == (8, 0)


# -- learning ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Likes]:
    dataset, later = earlier_and_later()
    return earlier_model(tmp_path_factory.mktemp("earlier") / "films.dgcf", dataset), later


def learned(base: Path, likes: Likes, folder: Path, forgotten: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what comes of a refresh with these likes, one a second, in this process."""
    with EventStore.open(folder / "events.sqlite3") as store:
        store.submit([Event(user, item, time=FIRST + n) for n, (user, item) in enumerate(likes)]).result(WAIT)
        write_liked(store, folder / "events.parquet", 0)
    orders = learn.Orders(base, folder / "events.parquet", folder / "update.dgcf", forgotten, 0.02)
    return learn.learn(orders, lambda step: None)


def test_update_learns_new_pairs_and_is_loaded_again(earlier: tuple[Path, Likes], tmp_path: Path) -> None:
    base, later = earlier
    before = artifact.load(base)
    likes = [*later[:300], ("u00001", "a new item"), ("u00002", "a new item"), ("a new user", "i00001")]
    outcome = learned(base, likes, tmp_path)
    assert outcome["result"] == "published"
    snapshot = artifact.load(tmp_path / "update.dgcf")
    assert (len(snapshot.train), snapshot.n_users, snapshot.n_items) == (len(before.train) + 303, 151, 161)
    assert outcome["card"] == json.loads(json.dumps(outcome["card"]))
    assert outcome["card"]["refresh"] == snapshot.about["refresh"] == outcome["figures"]
    assert outcome["figures"]["check"]["pairs"] <= round(0.2 * 303)  # of users who had a pair before
    held = "on the newest 6"
    assert held in outcome["detail"]
    rec = Recommender.of(snapshot)
    assert len(rec.recommend("a new user", 5)) == 5


def test_nothing_new_is_unchanged(earlier: tuple[Path, Likes], tmp_path: Path) -> None:
    snapshot = artifact.load(earlier[0])
    known = check.likes_of(snapshot.users, snapshot.items, snapshot.train)[:50]
    assert learned(earlier[0], known, tmp_path) == {"result": "unchanged", "detail": "no new pair in 50 events."}


@pytest.mark.slow
def test_too_few_users_are_not_compared(earlier: tuple[Path, Likes], tmp_path: Path) -> None:
    outcome = learned(earlier[0], earlier[1][:40], tmp_path)
    assert outcome["detail"] == "40 new pairs learned; too few users have new events to compare the models."
    assert outcome["card"]["refresh"]["check"] is None


def test_ids_that_are_no_numbers_do_not_stop_a_refresh(tmp_path: Path) -> None:
    trained("lightgcn").save(tmp_path / "model.dgcf")
    snapshot = artifact.load(tmp_path / "model.dgcf")
    assert snapshot.users.kind == "integer"
    absent = np.setdiff1d(np.arange(snapshot.n_users * snapshot.n_items), snapshot.seen.keys())[:30]
    users, items = snapshot.users.texts, snapshot.items.texts
    likes = [(users[key // snapshot.n_items], items[key % snapshot.n_items]) for key in absent.tolist()]
    odd = [("zoe", items[0]), (users[0], "a film"), (users[0], "9" * 30), ("007", items[0])]
    outcome = learned(tmp_path / "model.dgcf", [*likes, *odd], tmp_path)
    assert outcome["figures"]["new_pairs"] == 30
    (tmp_path / "other").mkdir()
    outcome = learned(tmp_path / "model.dgcf", odd, tmp_path / "other")
    assert outcome["result"] == "unchanged"


def test_comparison_is_of_the_lists_that_the_service_gives(earlier: tuple[Path, Likes], tmp_path: Path) -> None:
    """The same model twice is no worse, and NDCG@20 is that of the lists of an engine with these events."""
    from tests.serve.engines import Running, items_of

    base, later = earlier
    rest, held_out = later[:300], later[300:400]
    snapshot = artifact.load(base)
    same = check.compare(snapshot, snapshot, rest, held_out, 0.0)
    assert same is not None
    assert (same.interval, same.worse, same.served) == ((0.0, 0.0), False, same.candidate)
    values = []
    with Running(base, tmp_path / "data") as running:
        for user, item in rest:
            running.add(user, item)
        for user in sorted({user for user, _ in held_out}):
            relevant = {item for name, item in held_out if name == user}
            gains = [
                1 / np.log2(place + 2)
                for place, item in enumerate(items_of(running.recommend(user, k=20)))
                if item in relevant
            ]
            values.append(sum(gains) / sum(1 / np.log2(place + 2) for place in range(min(20, len(relevant)))))
    assert same.users == len(values)
    assert same.served == pytest.approx(np.mean(values), abs=1e-12)
    worse = replace(same, candidate=same.served / 2, interval=(-0.2, -0.03 * same.served))
    assert [replace(worse, margin=margin).worse for margin in (0.0, 0.02, 0.05)] == [True, True, False]


# -- options ----------------------------------------------------------------------------------------------------------


def test_options_of_refreshes() -> None:
    given = options.refreshing_of("24h", "4GB", "30m", 0.0)
    assert (given.every, given.memory, given.timeout, given.margin) == (86_400, 4 * 10**9, 1800, 0.0)
    assert options.refreshing_of(None, None, None, None).every is None
    for words, named in (
        (("24", None, None, None), "--refresh-every is '24'"),
        (("0h", None, None, None), "--refresh-every is '0h'"),
        ((None, "4", None, None), "--refresh-memory is '4'"),
        ((None, None, "-1s", None), "--refresh-timeout is '-1s'"),
        ((None, None, None, 1.0), "--refresh-margin is 1"),
        ((None, None, None, float("nan")), "--refresh-margin is nan"),
    ):
        with pytest.raises(ConfigError, match=named):
            options.refreshing_of(*words)


def test_without_torch_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.serve.refresh.process.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^--refresh-every: a refresh needs torch, which is not installed here;"):
        options.refreshing_of("24h", None, None, None)
    settings = Settings(tmp_path / "model.dgcf", tmp_path)
    with EventStore.open(settings.events_file) as store:
        refresher = Refresher(settings, store, Publishing(settings, store), Log(2))
        with pytest.raises(RunningError, match="needs torch") as problem:
            asyncio.run(refresher.demand())
        assert problem.value.status == 409
        assert store.refreshes() == []


@pytest.mark.slow
@pytest.mark.parametrize("memory", [20, 60, 100, 200, 320])
def test_too_little_memory_is_a_sentence(earlier: tuple[Path, Likes], tmp_path: Path, memory: int) -> None:
    """However the process ends: by an exception, the C library, the interpreter or a crash of a library."""
    with EventStore.open(tmp_path / "events.sqlite3") as store:
        store.submit([Event(user, item, time=FIRST + n) for n, (user, item) in enumerate(earlier[1][:300])]).result(
            WAIT
        )
        write_liked(store, tmp_path / "events.parquet", 0)
    paths = {name: str(tmp_path / file) for name, file in (("events", "events.parquet"), ("out", "update.dgcf"))}
    orders = {"base": str(earlier[0]), **paths, "forgotten": [], "margin": 0.02}
    carried = carry_out(orders, tmp_path, memory=memory * 10**6, timeout=100, note=lambda step: None)
    outcome = asyncio.run(carried)
    assert outcome["result"] == "refused", outcome
    assert outcome["detail"].endswith("raise --refresh-memory. The served model stays.")
    assert "\n" not in outcome["detail"]
    assert not (tmp_path / "update.dgcf").exists()
