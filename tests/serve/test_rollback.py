"""Rollback to earlier models, what a start does to refreshed models, cards, and which copies are kept."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dgcf.recommend import Recommender
from dgcf.recommend.card import model_card
from dgcf.serve.errors import ModelRefusedError, UnknownError
from tests.serve.engines import Running, trained
from tests.serve.in_process import InProcess

USERS = ("u00000", "u00007", "u00033")


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Running]:
    trained("composed").save(tmp_path / "model.dgcf")
    with Running(tmp_path / "model.dgcf", tmp_path / "data") as running:
        yield running


def reload(running: Running, seed: int) -> int:
    """Load the model of another seed, and return its version."""
    trained("composed", seed).save(running.settings.model, overwrite=True)
    return int(running(running.engine.reload())["version"])


def publish(running: Running, seed: int, **more: Any) -> int:
    """Publish the model of another seed as a refresh does, and let the engine follow."""
    beside = running.settings.data / "update.dgcf"
    trained("composed", seed).save(beside, overwrite=True)
    from dgcf.recommend.container import hash_of

    sha256 = hash_of(beside)
    assert sha256 is not None
    running.engine.publishing.take(beside, sha256)
    version = running.store.publish_model(sha256, "", origin="refresh", learned=3, **more).result(10)
    running(following(running, version))
    return version


async def following(running: Running, version: int) -> None:
    """Wait until the engine serves a version that was published elsewhere."""
    while running.engine.model_version != version:
        await asyncio.sleep(0.05)


def answers(running: Running) -> list[Any]:
    """Return lists and an explanation, without the version of the model."""
    got = [running.recommend(user, k=50) for user in USERS] + [running.recommend_for(["i00004", "i00009"], k=50)]
    got.append(running(running.engine.explain(USERS[0], got[0]["recommendations"][0]["item"])))
    return [{**answer, "model": None} for answer in got]


def test_rollback_restores_the_answers_to_the_bit(one: Running) -> None:
    one.add(USERS[1], "i00003", "a new item")
    before, version = answers(one), one.engine.model_version
    assert publish(one, 1) == 2
    assert answers(one) != before
    model = one(one.engine.rollback())
    assert (model["version"], one.engine.model_version, version) == (3, 3, 1)
    assert answers(one) == before
    newest = one.store.current_model()
    assert newest is not None
    first = one.store.models()[-1]
    assert (newest.origin, newest.sha256, newest.card) == ("rollback", first.sha256, first.card)


def test_rollbacks_go_further_back_and_to_a_version(one: Running) -> None:
    assert [reload(one, 1), publish(one, 2)] == [2, 3]
    sha256 = {row.version: row.sha256 for row in one.store.models()}
    for version, of in ((4, 2), (5, 1)):
        assert one(one.engine.rollback())["version"] == version
        assert one(one.engine.model())["sha256"] == sha256[of]
    with pytest.raises(ModelRefusedError, match="no earlier model"):
        one(one.engine.rollback())
    assert one(one.engine.rollback(3))["sha256"] == sha256[3]
    assert one(one.engine.rollback(6))["version"] == 6  # it is served: nothing to publish
    with pytest.raises(UnknownError, match="no model 17"):
        one(one.engine.rollback(17))


def test_rollback_from_a_model_that_was_loaded_twice(one: Running) -> None:
    assert [reload(one, 1), reload(one, 0)] == [2, 3]
    sha256 = {row.version: row.sha256 for row in one.store.models()}
    assert sha256[1] == sha256[3]
    assert one(one.engine.rollback())["sha256"] == sha256[2]
    assert one(one.engine.rollback())["sha256"] == sha256[1]


def test_rollback_takes_the_position_of_the_events_along(one: Running) -> None:
    publish(one, 1)
    reload(one, 2)
    one(one.engine.rollback(2))
    newest = one.store.current_model()
    assert newest is not None
    assert newest.learned == 3


def test_rollback_to_a_deleted_copy_is_refused(one: Running) -> None:
    first = one.store.current_model()
    assert first is not None
    reload(one, 1)
    before = answers(one)
    one.engine.publishing.copy_of(first.sha256).unlink()
    for version in (None, 1):
        with pytest.raises(ModelRefusedError, match=r"copy of model 1 is deleted.*--keep-models") as problem:
            one(one.engine.rollback(version))
        assert problem.value.status == 409
    copy = one.engine.publishing.copy_of(first.sha256)
    copy.write_bytes(b"not the model of that checksum")
    with pytest.raises(ModelRefusedError):
        one(one.engine.rollback())
    assert answers(one) == before
    assert one.engine.model_version == 2


def test_last_models_are_kept_also_after_rollbacks(tmp_path: Path) -> None:
    trained("composed").save(tmp_path / "model.dgcf")
    with Running(tmp_path / "model.dgcf", tmp_path / "data", keep_models=2) as one:
        reload(one, 1)
        one(one.engine.rollback(1))
        reload(one, 2)  # the last two models are those of seeds 2 and 0
        kept = {path.stem for path in one.settings.models_folder.glob("*.dgcf")}
        rows = one.store.models()
        assert kept == {rows[0].sha256, rows[3].sha256}
        with pytest.raises(ModelRefusedError, match="deleted"):
            one(one.engine.rollback(2))
        young, old = (one.settings.models_folder / f"{letter * 64}.dgcf" for letter in "ab")
        for path in (young, old):
            path.write_bytes(b"a copy that is not published")
        os.utime(old, (time.time() - 7200,) * 2)
        one.engine.publishing.clean()
        assert (young.exists(), old.exists()) == (True, False)


def test_start_continues_with_the_refreshed_model(tmp_path: Path) -> None:
    path, data = tmp_path / "model.dgcf", tmp_path / "data"
    trained("composed").save(path)
    with Running(path, data) as one:
        publish(one, 1)
        before = answers(one)
    for _ in range(2):
        with Running(path, data) as again:
            assert answers(again) == before
            assert again.engine.model_version == 2
            assert len(again.store.models()) == 2
    trained("composed", 2).save(path, overwrite=True)  # another model: that is served
    with Running(path, data) as other:
        assert other.engine.model_version == 3
        newest = other.store.current_model()
        assert newest is not None
        assert newest.origin == "start"
        other(other.engine.rollback())
        assert answers(other) == before


def test_start_loads_the_given_model_if_the_refreshed_one_is_lost(tmp_path: Path) -> None:
    path, data = tmp_path / "model.dgcf", tmp_path / "data"
    trained("composed").save(path)
    with Running(path, data) as one:
        before = answers(one)
        publish(one, 1)
    shutil.rmtree(data / "models")
    with Running(path, data) as again:
        assert answers(again) == before
        assert again.engine.model_version == 3


def test_explicit_reload_returns_to_the_given_model(one: Running) -> None:
    before = answers(one)
    publish(one, 1)
    assert one(one.engine.reload())["version"] == 3
    assert answers(one) == before


def test_every_version_has_its_card(one: Running) -> None:
    reload(one, 1)
    one(one.engine.rollback())
    rows = one.store.models()
    assert [row.origin for row in rows] == ["rollback", "reload", "start"]
    for row, seed in zip(rows, (0, 1, 0), strict=True):
        assert row.card is not None
        rec = Recommender.of(trained("composed", seed).snapshot)
        assert json.loads(row.card) == json.loads(json.dumps({**model_card(rec), "refresh": None}))
    assert one(one.engine.model())["card"] == json.loads(str(rows[0].card))


def test_routes_of_models(model_file: Path, tmp_path: Path) -> None:
    with InProcess(model_file, tmp_path / "data") as service:
        (first,) = service.get("/v1/models").json["models"]
        assert (first["version"], first["origin"], first["serving"], first["available"]) == (1, "start", True, True)
        assert first["card"] == service.get("/v1/model").json["card"]
        state = service.get("/v1/admin/refresh").json
        assert state == {"state": "idle", "step": None, "started": None, "last": None, "every": None, "next": None}
        assert service.request("POST", "/v1/admin/rollback").status == 409
        for body, status in (({"version": 9}, 404), ({"version": 0}, 422), ({"versoin": 1}, 422), ([], 422)):
            assert service.request("POST", "/v1/admin/rollback", body).status == status
        assert service.request("POST", "/v1/admin/rollback", {"version": 1}).json["version"] == 1
        assert service.request("POST", "/v1/admin/rollback", {}).status == 409
