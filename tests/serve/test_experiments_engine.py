"""An engine with several arms: who is answered by which model, exposures, and shadows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dgcf.errors import ConfigError
from dgcf.ids import RawId
from dgcf.recommend import Recommender
from dgcf.serve.engine.engine import Engine
from dgcf.serve.errors import RequestError, UnknownError
from dgcf.serve.events.records import POSITIVE, Exposure
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.assignment import Assignment
from dgcf.serve.experiments.shadow import MOST_WAITING, Shadow, overlap
from dgcf.serve.experiments.split import SplitEngine
from dgcf.serve.experiments.tally import ArmField
from dgcf.serve.settings import Arms
from tests.serve.engines import Running, items_of, trained

MODELS = {"main": "dgcf", "b": "ease", "c": "popularity"}
WEIGHTS = {"main": 0.5, "b": 0.3, "c": 0.2}
K = 7


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the artefact of a model."""
    folder = tmp_path_factory.mktemp("arms")

    def save(name: str) -> Path:
        path = folder / f"{name}.dgcf"
        if not path.exists():
            trained(name).save(path)
        return path

    return save


@pytest.fixture
def running(saved: Callable[[str], Path], tmp_path: Path) -> Iterator[Running]:
    """Three arms, of which two also have shadows, for all lists."""
    models = {"b": saved("ease"), "c": saved("popularity"), "shade": saved("ease")}
    more = Arms("spring", WEIGHTS, models, ("shade",), 1.0)
    with Running(saved("dgcf"), tmp_path / "data", more=more) as running:
        yield running


def users() -> list[RawId]:
    names = trained("dgcf").snapshot.users
    return [names.id_of(index) for index in range(len(names))]


def arm_of(user: RawId) -> str:
    return Assignment("spring", WEIGHTS).arm_of(user)


def recommender(user: RawId) -> Recommender:
    return trained(MODELS[arm_of(user)])


def listed(rec: Recommender, user: RawId) -> list[RawId]:
    return [row["item"] for row in rec.recommend(user, K)]


def split(running: Running) -> SplitEngine:
    assert isinstance(running.engine, SplitEngine)
    return running.engine


def counts(store: EventStore) -> dict[str, tuple[int, int, int]]:
    return {row.arm: row[1:4] for row in store.experiment_counts("spring", POSITIVE)}


def flush(running: Running) -> None:
    exposures = split(running)._exposures
    assert exposures is not None
    running(exposures.flush())


def test_every_answer_for_a_user_is_that_of_the_users_arm(running: Running) -> None:
    version_of = {arm: running(running.engine.of(arm).model())["version"] for arm in MODELS}
    assert sorted(version_of.values()) != [version_of["main"]] * 3
    item = trained("dgcf").snapshot.items.id_of(3)
    single = {}
    for user in users():
        own, arm = recommender(user), arm_of(user)
        single[user] = answer = running.recommend(user, k=K)
        assert items_of(answer) == listed(own, user)
        assert (answer["arm"], answer["model"]) == (arm, version_of[arm])
        assert running.recommend(user, k=K) == answer  # that is kept now
        shown = running(running.engine.user(user))
        assert (shown["arm"], shown["model"]) == (arm, version_of[arm])
        if arm == "c":  # the popularity of items explains nothing, and has no similar users
            continue
        explained = running(running.engine.explain(user, item))
        assert explained["score"] == pytest.approx(own.explain(user, item).score)
        assert (explained["arm"], explained["model"]) == (arm, version_of[arm])
    together = running(running.engine.recommend_users(users(), k=K))["users"]
    assert together == list(single.values())


def test_new_users_are_answered_by_the_arm_of_user_or_visitor_and_by_the_main_one_without(running: Running) -> None:
    items = [trained("dgcf").snapshot.items.id_of(index) for index in (3, 5, 8)]
    names = [f"visitor {number}" for number in range(30)]
    assert {arm_of(name) for name in names} == set(WEIGHTS)
    for name in names:
        visited = running.recommend_for(items, visitor=name, k=K)
        assert visited["arm"] == arm_of(name)
        assert visited["user"] is None
        assert items_of(visited) == items_of(running.recommend_for(items, user=name, k=K))
        explained = running(running.engine.explain_for(items, [], items_of(visited)[0], visitor=name))
        assert explained["arm"] == arm_of(name)
        assert explained["score"] == pytest.approx(visited["recommendations"][0]["score"])
    assert running.recommend_for(items, k=K)["arm"] == "main"


def test_an_exposure_is_stored_for_each_user_once_and_never_for_visitors(running: Running) -> None:
    expected = Counter(arm_of(user) for user in users())
    for _ in range(2):
        for user in users():
            running.recommend(user, k=K)
    running.recommend_for([trained("dgcf").snapshot.items.id_of(3)], visitor="passing")
    running(running.engine.recommend_users(["new one", "new two"], k=K))
    flush(running)
    expected.update(arm_of(user) for user in ("new one", "new two"))
    assert {arm: row[0] for arm, row in counts(running.store).items()} == expected
    assert {arm: running.tally.total(arm, ArmField.EXPOSURES) for arm in WEIGHTS} == expected
    assert sum(running.tally.total(arm, ArmField.REQUESTS) for arm in WEIGHTS) == 2 * len(users()) + 3


def test_a_conversion_is_a_positive_event_after_the_first_list(running: Running) -> None:
    one, two, three = users()[:3]
    running.add(one, "i00001")
    for user in (one, two, three):
        running.recommend(user)
    flush(running)
    running.add(two, "i00001", "i00002")
    running.add(two, "i00003", kind="view")
    running.add(three, "i00001", kind="hide")
    running.add("somebody else", "i00001")
    totals = [sum(row[place] for row in counts(running.store).values()) for place in range(3)]
    assert totals == [3, 1, 3]
    likes = running.store.experiment_counts("spring", ["like"])
    assert (sum(row.conversions for row in likes), sum(row.events for row in likes)) == (1, 2)
    assert running.store.experiment_counts("another", POSITIVE) == []


def test_a_user_who_is_forgotten_before_an_exposure_is_written_has_none(running: Running) -> None:
    user = users()[0]
    running.recommend(user)
    running.store.forget(str(user)).result(10)  # as another process does
    flush(running)
    assert counts(running.store) == {}
    running.recommend(user)  # a new user from now on
    flush(running)
    assert {row[0] for row in counts(running.store).values()} == {1}


def test_forgetting_deletes_exposures_also_of_users_who_only_got_a_list(running: Running) -> None:
    known, unknown = users()[0], "nobody knows me"
    for user in (known, unknown):
        running.recommend(user)
    assert running(running.engine.forget(known)) == {"user": known, "events": 0}
    assert running(running.engine.forget(unknown)) == {"user": unknown, "events": 0}
    flush(running)
    assert counts(running.store) == {}
    assert str(known).encode() not in running.settings.events_file.read_bytes()
    with pytest.raises(UnknownError):
        running(running.engine.forget("never seen"))


def test_exposures_wait_for_a_store_that_cannot_write(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    file, aside = running.settings.events_file, running.settings.events_file.with_suffix(".aside")
    running.recommend(users()[0])
    file.rename(aside)
    try:
        for user in users()[1:4]:
            flush(running)
            running.recommend(user)
        flush(running)
    finally:
        aside.rename(file)
    assert [record.getMessage() for record in caplog.records if "exposures" in record.getMessage()] == [
        "exposures cannot be stored: events.sqlite3 was moved or deleted while it was in use; restart the service."
    ]
    flush(running)
    assert sum(row[0] for row in counts(running.store).values()) == 4


def test_a_restart_keeps_arms_and_exposures(saved: Callable[[str], Path], tmp_path: Path) -> None:
    more = Arms("spring", {"main": 0.5, "b": 0.5}, {"b": saved("ease")})
    before: dict[RawId, Any] = {}
    for fresh in (True, True, False):
        with Running(saved("dgcf"), tmp_path / "data", fresh=fresh, more=more) as running:
            answers = {user: running.recommend(user) for user in users()}
        assert answers == (before or answers)
        before = answers
        with EventStore.open(running.settings.events_file) as store:
            assert sum(row[0] for row in counts(store).values()) == len(users())


def test_a_shadow_overlaps_as_direct_calls_of_both_recommenders_do(running: Running) -> None:
    shade = trained("ease")
    for user in users():
        running.recommend(user, k=K)
    items = [trained("dgcf").snapshot.items.id_of(index) for index in (3, 5, 8)]
    folded = items_of(running.recommend_for(items, k=K))
    expected = [overlap(listed(recommender(user), user), listed(shade, user)) for user in users()]
    expected.append(overlap(folded, [row["item"] for row in shade.recommend_for(items, K)]))
    assert 0.05 < sum(expected) / len(expected) < 0.95
    _await(running, len(expected))
    tally = running.tally
    assert tally.total("shade", ArmField.OVERLAP) == pytest.approx(1e6 * sum(expected), abs=len(expected))
    assert tally.total("shade", ArmField.NANOSECONDS) > 0
    assert tally.total("shade", ArmField.REQUESTS) == tally.total("shade", ArmField.EXPOSURES) == 0


def _await(running: Running, answers: int) -> None:
    async def wait() -> None:
        while running.tally.total("shade", ArmField.ANSWERS) < answers:
            await asyncio.sleep(0.01)

    running(wait())


@pytest.mark.parametrize(
    ("served", "other", "share"), [("abc", "abc", 1), ("abcd", "xcay", 0.5), ("", "", 1), ("ab", "", 0)]
)
def test_overlap_is_the_share_of_the_longer_list(served: str, other: str, share: float) -> None:
    assert overlap(list(served), list(other)) == share == overlap(list(other), list(served))


def test_a_shadow_takes_its_share_and_drops_what_is_too_much(running: Running) -> None:
    engine = running.engine.of("shade")
    answer = running.recommend(users()[0])
    shadow = Shadow(engine, 0.25, running.tally)
    for _ in range(4 * MOST_WAITING + 40):
        shadow.offer(None, answer)  # type: ignore[arg-type]
    assert shadow._waiting.qsize() == MOST_WAITING
    assert running.tally.total("shade", ArmField.DROPPED) == 10


def test_arms_are_loaded_anew_one_by_one(running: Running) -> None:
    before = {arm: running(running.engine.of(arm).model())["version"] for arm in MODELS}
    trained("ease", 1).save(running.engine.of("b").path, overwrite=True)
    try:
        assert running(running.engine.of("b").reload())["version"] > max(before.values())
    finally:
        trained("ease").save(running.engine.of("b").path, overwrite=True)
    after = {arm: running(running.engine.of(arm).model())["version"] for arm in MODELS}
    assert {arm for arm in MODELS if after[arm] != before[arm]} == {"b"}
    with pytest.raises(RequestError, match=r"no arm 'x'.* main, b, c, shade"):
        running.engine.of("x")


def test_an_engine_without_arms_names_none(saved: Callable[[str], Path], tmp_path: Path) -> None:
    with Running(saved("dgcf"), tmp_path / "data") as running:
        assert type(running.engine) is Engine
        assert "arm" not in running.recommend(users()[0])
        with pytest.raises(RequestError, match="the arm main only"):
            running.engine.of("b")


def test_arms_of_other_data_are_refused(saved: Callable[[str], Path], tmp_path: Path) -> None:
    more = Arms("spring", {"main": 0.5, "b": 0.5}, {"b": saved("item-knn")})
    running = Running(saved("dgcf"), tmp_path / "data", more=more)
    with pytest.raises(ConfigError, match=r"arm b.*other data.*train both on the same"):
        running(running.engine.start())
    running.__exit__()
    running = Running(saved("dgcf"), tmp_path / "data", more=more)
    running.store.add_exposures("spring", [Exposure("anna", "b", 1.0)], 0).result(10)  # it has begun before a reload
    with running:
        assert {running.recommend(user)["arm"] for user in users()} == {"main", "b"}
