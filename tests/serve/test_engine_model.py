"""New items, new models and several workers: what an engine takes over, and what it refuses."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgcf.ids import RawId
from dgcf.serve.engine import engine as engine_module
from dgcf.serve.engine.lists import Lists
from dgcf.serve.errors import ModelRefusedError, NotReadyError, RequestError, UnknownError
from tests.serve.engines import (
    EXTENDING,
    INTEGER,
    MODELS,
    Running,
    best,
    dense_scores,
    items_of,
    scores_of,
    seen,
    trained,
)


@pytest.fixture(scope="module", params=MODELS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp(request.param)
    rec = trained(request.param)
    rec.save(folder / "model.dgcf")
    with Running(folder / "model.dgcf", folder / "data") as running:
        running.rec, running.name = rec, request.param  # type: ignore[attr-defined]
        yield running


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Running]:
    """An engine of the composed model, with a folder of its own."""
    trained("composed").save(tmp_path / "model.dgcf")
    with Running(tmp_path / "model.dgcf", tmp_path / "data") as running:
        yield running


# New items


def test_new_item_is_folded_in_from_its_users(running: Running) -> None:
    rec, name = running.rec, running.name  # type: ignore[attr-defined]
    users = [rec.snapshot.users.id_of(index) for index in (3, 5, 8)]
    reader = rec.snapshot.users.id_of(20)
    new = "100000" if name in INTEGER else "a new item"
    raw: RawId = int(new) if name in INTEGER else new
    before = running.recommend(reader, k=500)
    for user in users:
        running.add(user, new)
    after = running.recommend(reader, k=500)
    if name not in EXTENDING:
        assert after == before
        with pytest.raises(UnknownError, match="has no score"):
            running(running.engine.similar("item", new))
        assert running(running.engine.item(new))["users"] == 3
        return
    row = rec.folding.fold("item", np.array([3, 5, 8])).ranked
    expected = float(row.astype(np.float64) @ rec.snapshot.user_rows[20].astype(np.float64))
    found = dict(zip(items_of(after), scores_of(after), strict=True))
    assert found.pop(raw) == pytest.approx(expected, rel=1e-6)
    assert found == dict(zip(items_of(before), scores_of(before), strict=True))  # no other score changes
    assert raw not in items_of(running.recommend(users[0], k=500))  # who likes it has it already
    similar = running(running.engine.similar("item", raw, k=5))
    assert len(similar["similar"]) == 5
    assert any(
        raw in [row["item"] for row in running(running.engine.similar("item", near["item"], k=500))["similar"]]
        for near in similar["similar"]
    )
    for user in (reader, users[0]):
        explained = running(running.engine.explain(user, raw, top=0))
        assert sum(part["value"] for part in explained["parts"]) == pytest.approx(explained["score"], abs=1e-5)
    assert running(running.engine.explain(reader, raw))["score"] == pytest.approx(expected, abs=1e-5)
    assert (running(running.engine.item(new))["known"], running(running.engine.item(new))["users"]) == (False, 3)
    running.put(new, hidden=True)
    assert raw not in items_of(running.recommend(reader, k=500))
    running.put(new, title="Its title")
    assert {"item": raw, "title": "Its title"}.items() <= next(
        row.items() for row in running.recommend(reader, k=500)["recommendations"] if row["item"] == raw
    )
    assert running(running.engine.items("its title"))["items"][0]["item"] == raw


def test_new_item_of_new_users_alone_has_no_score(one: Running) -> None:
    before = one.recommend("u00001", k=500)
    view = one.engine._view
    one.add("a new user", "a new item")
    assert one.recommend("u00001", k=500) == before
    assert one.engine._view is view  # nothing had to be computed anew
    assert one.recommend("a new user")["source"] == "popular"
    with pytest.raises(UnknownError, match="no event of a known user yet"):
        one(one.engine.explain("u00001", "a new item"))
    assert [row["item"] for row in one(one.engine.items("a new"))["items"]] == ["a new item"]


def test_item_without_users_any_more_is_gone(one: Running) -> None:
    before = one.recommend("u00001", k=500)
    keys = one.add("u00002", "a new item")
    assert "a new item" in items_of(one.recommend("u00001", k=500))
    one.store.remove(keys[0]).result(10)
    assert one.recommend("u00001", k=500) == before
    assert not one(one.engine.items("a new item"))["items"]


@pytest.mark.parametrize("item", ["007", "--5", "1e3", "٣", "x", "9" * 30])
def test_new_item_that_is_no_integer_is_not_recommended_among_integers(item: str, tmp_path: Path) -> None:
    trained("lightgcn").save(tmp_path / "model.dgcf")
    with Running(tmp_path / "model.dgcf", tmp_path / "data") as running:
        users = [trained("lightgcn").snapshot.users.id_of(index) for index in (1, 2)]
        before = running.recommend(users[1], k=500)
        running.add(users[0], item)
        assert running.recommend(users[1], k=500) == before
        assert running(running.engine.item(item))["item"] == item
        assert running(running.engine.user(users[0]))["events"][0]["item"] == item


# Several workers


def test_workers_see_the_events_of_each_other_in_the_next_answer(tmp_path: Path) -> None:
    trained("composed").save(tmp_path / "model.dgcf")
    with (
        Running(tmp_path / "model.dgcf", tmp_path / "data") as first,
        Running(tmp_path / "model.dgcf", tmp_path / "data", fresh=False) as second,
    ):
        for number in range(10):
            user = f"u000{number + 10}"
            a, b = (first, second) if number % 2 else (second, first)
            before = b.recommend(user)
            assert a.recommend(user) == before
            keys = a.add(user, items_of(before)[1])
            answer = b.recommend(user)
            assert items_of(before)[1] not in items_of(answer)
            assert answer == a.recommend(user)
            assert answer["source"] == "events"
            b.store.remove(keys[0]).result(10)
            assert a.recommend(user) == b.recommend(user) == before
        first.put(items_of(before)[0], hidden=True)
        assert items_of(before)[0] not in items_of(second.recommend(user))


def test_other_workers_follow_a_published_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WATCH_SECONDS", 0.05)
    trained("composed").save(tmp_path / "model.dgcf")
    with (
        Running(tmp_path / "model.dgcf", tmp_path / "data") as first,
        Running(tmp_path / "model.dgcf", tmp_path / "data", fresh=False) as second,
    ):
        assert second.engine.model_version == 1
        trained("composed", 1).save(tmp_path / "model.dgcf", overwrite=True)
        assert first(first.engine.reload())["version"] == 2
        until = time.monotonic() + 20
        while second.engine.model_version == 1 and time.monotonic() < until:
            second(asyncio.sleep(0.02))  # no request comes
        assert second.engine.model_version == 2
        assert second.recommend("u00003") == first.recommend("u00003")
        assert items_of(second.recommend("u00003")) == trained("composed", 1).recommend("u00003", 10)["item"]


# New models


def test_reload_swaps_and_no_answer_mixes_two_models(one: Running) -> None:
    path = one.settings.model
    recs = [trained("composed", seed) for seed in (0, 1)]
    users = [f"u000{number:02d}" for number in range(40)]
    expected = [{user: rec.recommend(user, 10) for user in users} for rec in recs]

    async def ask(stop: asyncio.Event, answers: list[dict[str, Any]], place: int) -> None:
        while not stop.is_set():
            answers.append(await one.engine.recommend(users[(len(answers) * 7 + place) % 40]))
            if place == 0:
                batch = await one.engine.recommend_users(users[:5])
                assert {answer["model"] for answer in batch["users"]} == {batch["model"]}
            await asyncio.sleep(0)

    async def swapping() -> list[dict[str, Any]]:
        stop, answers = asyncio.Event(), list[dict[str, Any]]()
        asking = [asyncio.ensure_future(ask(stop, answers, place)) for place in range(4)]
        for version in range(2, 6):
            recs[(version - 1) % 2].save(path, overwrite=True)
            assert (await one.engine.reload())["version"] == version
            assert (await one.engine.recommend("u00000"))["model"] == version
        stop.set()
        await asyncio.gather(*asking)
        return answers

    answers = one(swapping())
    assert {answer["model"] for answer in answers} >= {1, 5}
    for answer in answers:
        table = expected[(answer["model"] - 1) % 2][answer["user"]]
        assert items_of(answer) == table["item"]
        assert scores_of(answer) == table["score"]


def test_events_stay_when_the_model_is_swapped(one: Running) -> None:
    one.add("u00001", "i00002", "brand new")
    one.put("i00003", hidden=True)
    trained("composed", 1).save(one.settings.model, overwrite=True)
    one(one.engine.reload())
    rec = trained("composed", 1)
    answer = one.recommend("u00001", k=500)
    hidden = [*seen(rec, "u00001"), "i00002", "i00003"]
    assert items_of(answer) == best(rec, dense_scores(rec, ["i00002"], "u00001"), hidden, 500)
    assert "brand new" in items_of(one.recommend("u00009", k=500))


def test_same_model_is_not_published_again(one: Running) -> None:
    assert one(one.engine.reload())["version"] == 1
    assert one.engine.model_version == 1
    current = one.store.current_model()
    assert current is not None
    assert current.version == 1


def test_broken_artefact_is_refused_and_the_present_one_stays(one: Running) -> None:
    path = one.settings.model
    good, before = path.read_bytes(), one.recommend("u00001")
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :]
    for broken in (good[:100], good[:-1], flipped, b"", b"not a model"):
        path.write_bytes(broken)
        with pytest.raises(ModelRefusedError) as problem:
            one(one.engine.reload())
        assert "\n" not in str(problem.value)
        assert one.recommend("u00001") == before
    path.unlink()
    with pytest.raises(ModelRefusedError):
        one(one.engine.reload())
    assert one.engine.model_version == 1
    assert len(list(one.settings.models_folder.glob("*.dgcf"))) == 1
    path.write_bytes(good)
    assert one(one.engine.reload())["version"] == 1


def test_model_with_scores_that_are_no_numbers_is_refused(one: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(prepared: object) -> None:
        raise ModelRefusedError("the model gives scores that are not numbers; train it again.")

    trained("composed", 1).save(one.settings.model, overwrite=True)
    before = one.recommend("u00001")
    monkeypatch.setattr("dgcf.serve.engine.served.warm_up", refuse)
    with pytest.raises(ModelRefusedError, match="not numbers"):
        one(one.engine.reload())
    assert one.recommend("u00001") == before
    assert len(list(one.settings.models_folder.glob("*.dgcf"))) == 1  # the refused copy is deleted


def test_worker_that_starts_again_loads_the_published_model(tmp_path: Path) -> None:
    path, data = tmp_path / "model.dgcf", tmp_path / "data"
    trained("composed").save(path)
    with Running(path, data) as running:
        before = running.recommend("u00001")
    path.write_bytes(b"half of a model that is being written")
    with Running(path, data, fresh=False) as again:
        assert again.recommend("u00001") == before
    with pytest.raises(ModelRefusedError):
        Running(path, data).__enter__()
    trained("composed", 1).save(path, overwrite=True)
    with Running(path, data) as fresh:
        assert fresh.recommend("u00001")["model"] == 2


def test_only_the_newest_copies_are_kept(one: Running) -> None:
    for seed in (1, 2, 0, 1, 2):
        trained("composed", seed % 3).save(one.settings.model, overwrite=True)
        one(one.engine.reload())
    current = one.store.current_model()
    assert current is not None
    kept = {path.stem for path in one.settings.models_folder.glob("*.dgcf")}
    assert current.sha256 in kept
    assert len(kept) <= 3


def test_second_reload_at_once_is_refused(one: Running) -> None:
    async def both() -> list[Any]:
        return await asyncio.gather(one.engine.reload(), one.engine.reload(), return_exceptions=True)

    first, second = one(both())
    assert first["version"] == 1
    assert isinstance(second, ModelRefusedError)


def test_engine_answers_what_waits_when_it_closes(tmp_path: Path) -> None:
    trained("composed").save(tmp_path / "model.dgcf")
    running = Running(tmp_path / "model.dgcf", tmp_path / "data")
    running(running.engine.start())

    async def closing() -> tuple[list[Any], Any]:
        waiting = [asyncio.ensure_future(running.engine.recommend_for([f"i000{place + 10}"])) for place in range(20)]
        await asyncio.sleep(0)
        await running.engine.close()
        answers = await asyncio.gather(*waiting)
        try:
            return answers, await running.engine.recommend("u00001")
        except NotReadyError as problem:
            return answers, problem

    answers, late = running(closing())
    assert len(answers) == 20
    assert isinstance(late, NotReadyError)
    running.store.close()
    running.loop.close()


def test_failing_request_harms_no_other(one: Running) -> None:
    async def together() -> list[Any]:
        wrong = one.engine.recommend_for(["i00001"], max_per={"none": 1})
        good = [one.engine.recommend(f"u000{number}") for number in range(10, 20)]
        return await asyncio.gather(good[0], wrong, *good[1:], return_exceptions=True)

    answers = one(together())
    assert isinstance(answers.pop(1), RequestError)
    assert [answer["user"] for answer in answers] == [f"u000{number}" for number in range(10, 20)]


def test_description_and_charts(running: Running) -> None:
    rec = running.rec  # type: ignore[attr-defined]
    about = running(running.engine.model())
    assert (about["users"], about["items"], about["version"]) == (60, 70, 1)
    assert about["pairs"] == len(rec.snapshot.train)
    charts = running(running.engine.charts())
    assert (charts["gates"] is not None) == (rec.snapshot.model == "dgcf")
    assert (charts["oscillation"] is not None) == (rec.snapshot.rule is not None)
    assert (charts["blend"] is not None) == (running.name == "composed")  # type: ignore[attr-defined]
    if charts["oscillation"]:
        assert all(gap >= 0 for gaps in charts["oscillation"]["gaps"].values() for gap in gaps)


# Memory


def test_views_and_models_are_freed_without_the_collector(one: Running) -> None:
    def exercise() -> list[weakref.ref[Any]]:
        one.recommend("u00001", why=True)
        one.recommend_for(["i00001"], ["i00002"], why=True)
        one(one.engine.similar("item", "i00003"))
        one(one.engine.similar("user", "u00003"))
        one(one.engine.explain("u00001", "i00005"))
        one(one.engine.items("a"))
        one(one.engine.charts())
        view = one.engine._view
        assert view is not None
        return [weakref.ref(thing) for thing in (view, view.prepared, view.snapshot, view.snapshot.ranking)]

    gc.collect()
    gc.disable()
    try:
        of_training = exercise()
        one.add("u00002", "a new item")
        extended = exercise()
        one.add("u00004", "a new item")
        exercise()
        assert not any(ref() for ref in extended)
        assert of_training[0]() is None
        trained("composed", 1).save(one.settings.model, overwrite=True)
        one(one.engine.reload())
        exercise()
        assert not any(ref() for ref in of_training)
    finally:
        gc.enable()


def test_kept_lists_are_bounded() -> None:
    lists = Lists(10_000)
    for user in range(1_000):
        lists.put(user, 20, False, (list(range(20)), [0.5] * 20))
        lists.put(user, 20, False, (list(range(20)), [0.25] * 20))
        assert lists.get(user, 20, False) == (list(range(20)), [0.25] * 20)
        assert lists.get(0, 20, False) is not None  # used, so it is kept
    assert lists._bytes <= 10_000
    assert 10 < len(lists) < 40
    assert lists.get(1, 20, False) is None


def test_events_that_are_removed_leave_the_memory(one: Running) -> None:
    one.add("u00001", "i00001")
    one.recommend("u00001")
    for number in range(30):
        keys = one.add(f"user {number}", f"item {number}", "i00005")
        one.recommend("u00001")
        if number % 2:
            one.store.forget(f"user {number}").result(10)
        else:
            for key in keys:
                one.store.remove(key).result(10)
    one.recommend("u00001")
    overlay, view = one.engine._overlay, one.engine._view
    assert view is not None
    assert list(overlay.users) == ["u00001"]
    assert list(overlay._users_of) == ["i00001"]
    assert not view.new_items
