"""Lists of the engine against the recommender, and against scores written out with dense arrays."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgcf.errors import DgcfError
from dgcf.ids import RawId
from dgcf.recommend import Recommender
from dgcf.serve.engine.view import NEGATIVE_WEIGHT
from dgcf.serve.errors import RequestError, UnknownError
from tests.serve.engines import (
    LEARNING,
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
    """An engine of each model; every test takes users of its own."""
    folder = tmp_path_factory.mktemp(request.param)
    rec = trained(request.param)
    rec.save(folder / "model.dgcf")
    with Running(folder / "model.dgcf", folder / "data") as running:
        running.rec, running.name = rec, request.param  # type: ignore[attr-defined]
        yield running


def rec_of(running: Running) -> Recommender:
    rec: Recommender = running.rec  # type: ignore[attr-defined]
    return rec


def user_at(running: Running, index: int) -> RawId:
    return rec_of(running).snapshot.users.id_of(index)


def unseen(rec: Recommender, user: RawId, n: int) -> list[RawId]:
    """The n items that come last for a user as trained, so that they change the list."""
    return best(rec, dense_scores(rec, [], user), seen(rec, user), 1000)[-n:]


def learns(running: Running) -> bool:
    return running.name in LEARNING  # type: ignore[attr-defined]


def test_known_user_without_events_gets_the_list_of_the_recommender(running: Running) -> None:
    rec = rec_of(running)
    for user in [user_at(running, index) for index in (0, 7, 20)]:
        for more in ({"k": 10}, {"k": 25, "seen": True}, {"k": 500}, {"k": 10}):
            answer = running.recommend(user, **more)
            table = rec.recommend(user, more["k"], exclude_seen=not more.get("seen"))
            assert items_of(answer) == table["item"]
            assert scores_of(answer) == table["score"]
            assert [row["rank"] for row in answer["recommendations"]] == table["rank"]
            assert answer["user"] == user
            assert type(answer["user"]) is type(user)
            assert (answer["known"], answer["source"], answer["model"]) == (True, "model", 1)
            assert bool(answer["notes"]) == (more["k"] == 500)
        hidden = seen(rec, user)
        assert items_of(running.recommend(user)) == best(rec, dense_scores(rec, [], user), hidden, 10)


def test_text_of_an_integer_id_is_the_same_user(running: Running) -> None:
    user = user_at(running, 1)
    assert running.recommend(str(user)) == running.recommend(user)


def test_known_user_with_events_is_folded_in_with_all_items(running: Running) -> None:
    rec, user = rec_of(running), user_at(running, 2)
    before = running.recommend(user)
    new = unseen(rec, user, 2)
    running.add(user, *new)
    answer = running.recommend(user)
    assert answer["known"]
    if not learns(running):
        assert answer["source"] == "model"
        assert "cannot learn from new items" in answer["notes"][0]
        assert items_of(answer) == items_of(before)  # the new items came last
        return
    assert (answer["source"], answer["notes"]) == ("events", [])
    table = rec.recommend_for(new, 10, user=user)
    assert items_of(answer) == table["item"]
    assert scores_of(answer) == table["score"]
    scores = dense_scores(rec, new, user)
    assert items_of(answer) == best(rec, scores, [*seen(rec, user), *new], 10)
    index = [rec.snapshot.items.index_of(item) for item in items_of(answer)]
    np.testing.assert_allclose(scores_of(answer), scores[index], rtol=1e-6, atol=1e-7)


def test_new_user_is_folded_in(running: Running) -> None:
    rec = rec_of(running)
    new = [rec.snapshot.items.id_of(index) for index in (3, 11, 40)]
    running.add("a new user", *new)
    by_events, by_items = running.recommend("a new user"), running.recommend_for(new)
    assert items_of(by_events) == items_of(by_items)
    assert not by_events["known"]
    assert by_items["user"] is None
    if learns(running):
        assert by_events["source"] == "events"
        assert items_of(by_events) == best(rec, dense_scores(rec, new), new, 10) == rec.recommend_for(new, 10)["item"]
    else:
        assert by_events["source"] == "popular"
        assert "cannot learn" in by_events["notes"][0]


def test_unknown_user_gets_popular_items(running: Running) -> None:
    rec = rec_of(running)
    answer = running.recommend("nobody knows me", k=12)
    assert (answer["known"], answer["source"]) == (False, "popular")
    degrees = rec.snapshot.train.item_degrees.astype(float)
    assert items_of(answer) == best(rec, degrees, [], 12)
    assert "popular items" in answer["notes"][0]
    explained = running.recommend("nobody knows me", k=2, why=True)
    assert f"{int(max(degrees))} users have it" in explained["recommendations"][0]["why"]


def test_unknown_items_are_ignored_with_a_note(running: Running) -> None:
    rec = rec_of(running)
    item = rec.snapshot.items.id_of(5)
    answer = running.recommend_for([item, "no such item"], ["nor this"])
    assert items_of(answer) == items_of(running.recommend_for([item]))
    assert [note for note in answer["notes"] if "no such item" in note]
    assert [note for note in answer["notes"] if "nor this" in note]


def test_disliked_and_hidden_items_are_left_out(running: Running) -> None:
    rec, user = rec_of(running), user_at(running, 4)
    first = items_of(running.recommend(user))
    running.add(user, first[0], kind="dislike")
    running.add(user, first[3], kind="hide")
    answer = running.recommend(user)
    assert items_of(answer)[:8] == [item for item in first if item not in (first[0], first[3])]
    assert answer["source"] == "model"
    assert not {first[0], first[3]} & set(items_of(running.recommend(user, seen=True, k=500)))
    # The newest event of an item counts.
    keys = running.add(user, first[0], kind="click")
    if learns(running):
        hidden = [*seen(rec, user), first[0], first[3]]
        assert items_of(running.recommend(user)) == best(rec, dense_scores(rec, first[:1], user), hidden, 10)
    assert running.store.remove(keys[0]).result(10)
    assert running.recommend(user) == answer


def test_deleting_an_event_undoes_it_exactly(running: Running) -> None:
    rec, user = rec_of(running), user_at(running, 5)
    before = running.recommend(user)
    keys = running.add(user, *unseen(rec, user, 2))
    assert not learns(running) or running.recommend(user) != before
    for key in keys:
        assert running.store.remove(key).result(10)
    assert running.recommend(user) == before


def test_negative_items_lower_what_resembles_them(running: Running) -> None:
    rec, items = rec_of(running), rec_of(running).snapshot.items
    liked, avoided = [items.id_of(index) for index in (1, 8)], [items.id_of(index) for index in (13, 30)]
    user = user_at(running, 6)
    for whom in (None, user):
        answer = running.recommend_for(liked, avoided, user=whom, k=12, why=True)
        assert [row["item"] for row in answer["negative"]] == avoided
        if not learns(running):
            assert any("cannot score the items to avoid" in note for note in answer["notes"])
            assert not {*avoided} & set(items_of(answer))
            continue
        scores = dense_scores(rec, liked, whom) - NEGATIVE_WEIGHT * dense_scores(rec, avoided)
        hidden = [*liked, *avoided, *([] if whom is None else seen(rec, whom))]
        index = [items.index_of(item) for item in items_of(answer)]
        np.testing.assert_allclose(scores_of(answer), scores[index], rtol=1e-5, atol=1e-6)
        expected = np.sort(scores[[items.index_of(item) for item in best(rec, scores, hidden, 12)]])[::-1]
        np.testing.assert_allclose(scores_of(answer), expected, rtol=1e-5, atol=1e-6)
        for row in answer["recommendations"][:4]:
            found = running(running.engine.explain_for(liked, avoided, row["item"], user=whom, top=0))
            total = sum(part["value"] for part in found["parts"])
            scale = max(1.0, abs(row["score"]))
            assert total == pytest.approx(row["score"], abs=1e-5 * scale)
            assert found["score"] == pytest.approx(row["score"], abs=1e-5 * scale)
            parts = [(part["id"], part["title"]) for part in found["parts"] if part["kind"] == "negative"]
            named = {*avoided} if rec.model != "popularity" else set()  # the latter counts all users
            assert {raw_id for raw_id, _ in parts if raw_id is not None} == named
            assert len(parts) == len(set(parts)) > 0


def test_rules_equal_filtering_by_hand(running: Running) -> None:
    rec, user = rec_of(running), user_at(running, 9)
    every = items_of(running.recommend(user, k=500))
    only, excluded = every[::3], every[6:12]
    for index, item in enumerate(rec.snapshot.items):
        running.put(item, attributes={"genre": index % 5} if index % 7 else {})
    genre = {item: index % 5 if index % 7 else None for index, item in enumerate(rec.snapshot.items)}

    async def lists(**rules: Any) -> dict[str, Any]:
        return await running.engine.recommend_users([user], k=8, **rules)

    def answer(**rules: Any) -> list[RawId]:
        return items_of(running(lists(**rules))["users"][0])

    assert answer() == every[:8]
    assert answer(only=only) == only[:8]
    assert answer(exclude=excluded) == [item for item in every if item not in excluded][:8]
    ruled = running(lists(only=[*only, "unknown"], exclude=[*only[:2], "unheard of"]))["users"][0]
    assert items_of(ruled) == only[2:10]
    assert [note for note in ruled["notes"] if "unknown and ignored" in note] == [
        "1 item in exclude is unknown and ignored: 'unheard of'.",
        "1 item in only is unknown and ignored: 'unknown'.",
    ]
    limited: list[RawId] = []
    for item in every:
        kind = genre[item]
        if kind is None or sum(genre[other] == kind for other in limited) < 2:
            limited.append(item)
    assert answer(max_per={"genre": 2}) == limited[:8]
    with pytest.raises(RequestError, match="no item has the attribute 'colour'"):
        answer(max_per={"colour": 1})


def test_hidden_item_is_nowhere_recommended(running: Running) -> None:
    user, other = user_at(running, 10), user_at(running, 11)
    before = items_of(running.recommend(user))
    liked = items_of(running.recommend(other))[-1]
    running.put(before[0], hidden=True)
    running.add("hidden", liked)
    for answer in (
        running.recommend(user),
        running.recommend(user, seen=True, k=500),
        running.recommend("unknown to all", k=500),
        running.recommend("hidden", k=500),
        running.recommend_for([liked], [before[4]], k=500),
        running(running.engine.recommend_users([user], k=500, max_per={}, only=before))["users"][0],
    ):
        assert before[0] not in items_of(answer)
    assert items_of(running.recommend(user))[:9] == before[1:]
    running.put(before[0], hidden=False)
    assert items_of(running.recommend(user)) == before


def test_many_hidden_items_are_nowhere_recommended(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.serve.engine.view._FEW_HIDDEN", 2)
    user = user_at(running, 12)
    before = items_of(running.recommend(user, k=30))
    for item in before[:5]:
        running.put(item, hidden=True)
    assert items_of(running.recommend(user, k=25)) == before[5:]
    for item in before[:5]:
        running.put(item)
    assert items_of(running.recommend(user, k=30)) == before


def test_lists_together_equal_lists_alone(running: Running) -> None:
    rec = rec_of(running)
    users = [user_at(running, index) for index in range(30, 50)]
    for user in users[::3]:
        running.add(user, *unseen(rec, user, 3))
    running.add("another new user", rec.snapshot.items.id_of(2))
    users += ["another new user", "unknown again"]
    alone = [running.recommend(user, k=7 + place % 4) for place, user in enumerate(users)]
    running.engine._view._lists._kept.clear()  # type: ignore[union-attr]

    async def together() -> list[dict[str, Any]]:
        return await asyncio.gather(
            *[running.engine.recommend(user, k=7 + place % 4) for place, user in enumerate(users)]
        )

    assert running(together()) == alone
    batch = running(running.engine.recommend_users(users, k=9))
    assert batch["users"] == [running.recommend(user, k=9) for user in users]
    assert running(running.engine.recommend_users([users[0], users[0]]))["users"] == [running.recommend(users[0])]


def test_reasons_are_the_largest_parts(running: Running) -> None:
    rec, user = rec_of(running), user_at(running, 13)
    for new in ([], unseen(rec, user, 2)):
        running.add(user, *new)
        answer = running.recommend(user, why=True, k=3)
        assert items_of(answer) == items_of(running.recommend(user, k=3))
        for row in answer["recommendations"]:
            found = running(running.engine.explain(user, row["item"], top=0))
            assert sum(part["value"] for part in found["parts"]) == pytest.approx(row["score"], rel=1e-5, abs=1e-5)
            assert row["why"]
            assert 1 <= len(row["reasons"]) <= 5
            sizes = [abs(reason["value"]) for reason in row["reasons"]]
            assert sizes == sorted(sizes, reverse=True)
            short = running(running.engine.explain(user, row["item"], top=1))
            assert sum(part["value"] for part in short["parts"]) == pytest.approx(row["score"], rel=1e-5, abs=1e-5)


def test_forgotten_user_is_unknown(running: Running) -> None:
    user, other = user_at(running, 14), user_at(running, 15)
    keys = running.add(user, items_of(running.recommend(user))[0])
    assert running(running.engine.forget(user)) == {"user": user, "events": len(keys)}
    answer = running.recommend(user)
    assert (answer["known"], answer["source"]) == (False, "popular")
    for call in (running.engine.user(user), running.engine.similar("user", user), running.engine.forget(user)):
        with pytest.raises(UnknownError):
            running(call)
    assert running.recommend(other)["known"]
    # What the user does later is of a new user.
    item = rec_of(running).snapshot.items.id_of(9)
    running.add(user, item)
    later = running.recommend(user)
    assert not later["known"]
    assert items_of(later) == items_of(running.recommend_for([item]))


def test_similar_nodes_equal_those_of_the_recommender(running: Running) -> None:
    rec = rec_of(running)
    item = rec.snapshot.items.id_of(17)
    for side, name in (("item", item), ("user", user_at(running, 16))):
        find = rec.similar_items if side == "item" else rec.similar_users
        try:
            expected = find(name, 5)
        except DgcfError:
            with pytest.raises(DgcfError):
                running(running.engine.similar(side, name, k=5))  # type: ignore[arg-type]
            continue
        answer = running(running.engine.similar(side, name, k=5))  # type: ignore[arg-type]
        if side == "item":  # a user may have been forgotten by another test
            assert [row[side] for row in answer["similar"]] == expected[side]
            assert [row["score"] for row in answer["similar"]] == expected["score"]
        assert [row["rank"] for row in answer["similar"]] == expected["rank"]


def test_hidden_items_and_forgotten_users_are_similar_to_none(running: Running) -> None:
    rec = rec_of(running)
    for side, name in (("item", rec.snapshot.items.id_of(21)), ("user", user_at(running, 22))):
        try:
            before = running(running.engine.similar(side, name, k=6))["similar"]  # type: ignore[arg-type]
        except DgcfError:
            continue
        gone = before[0][side]
        if side == "item":
            running.put(gone, hidden=True)
        else:
            running(running.engine.forget(gone))
        after = running(running.engine.similar(side, name, k=5))["similar"]  # type: ignore[arg-type]
        assert [row[side] for row in after][: len(before) - 1] == [row[side] for row in before[1:]]
        running.put(gone)


def test_history_and_records(running: Running) -> None:
    rec, user = rec_of(running), user_at(running, 18)
    item = items_of(running.recommend(user))[0]
    running.add(user, item)
    found = running(running.engine.user(user, 5))
    assert found["known"]
    assert [row["item"] for row in found["history"]] == seen(rec, user)[:5]
    assert found["history_size"] == len(seen(rec, user))
    assert [(row["item"], row["kind"]) for row in found["events"]] == [(str(item), "like")]
    running.put(item, title="A new <title>", attributes={"year": 1999})
    record = running(running.engine.item(item))
    assert (record["item"], record["title"], record["attributes"]) == (item, "A new <title>", {"year": 1999})
    assert record["users"] == rec.snapshot.train.item_degrees[rec.snapshot.items.index_of(item)]
    assert running(running.engine.items("new title"))["items"][0]["item"] == item
    with pytest.raises(UnknownError):
        running(running.engine.item("no such item"))


def test_all_items_are_paged(running: Running) -> None:
    rec = rec_of(running)
    found, cursor = [], None
    while True:
        page = running(running.engine.items("", cursor, 13))
        found += [row["item"] for row in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    known = [item for item in found if item in rec.snapshot.items]
    assert sorted(map(str, known)) == sorted(rec.snapshot.items.texts)
    degrees = [rec.snapshot.train.item_degrees[rec.snapshot.items.index_of(item)] for item in known]
    assert degrees == sorted(degrees, reverse=True)
    for wrong in ("%", "LTE", "!!!!", "9" * 30):
        with pytest.raises(RequestError, match="cursor"):
            running(running.engine.items("", wrong, 5))


_WITHOUT_TORCH = """
import asyncio, sys
from pathlib import Path
from dgcf.serve.engine import Engine
from dgcf.serve.events.store import EventStore
from dgcf.serve.settings import Settings

async def main(folder):
    with EventStore.open(folder / "events.sqlite3") as store:
        engine = Engine(Settings(folder / "model.dgcf", folder), store)
        await engine.start()
        await engine.recommend("u00001", why=True)
        await engine.recommend_for(["i00001"], ["i00002"])
        await engine.similar("item", "i00003")
        await engine.charts()
        await engine.close()

asyncio.run(main(Path(sys.argv[1])))
assert "torch" not in sys.modules
"""


def test_answers_need_no_torch(tmp_path: Path) -> None:
    trained("composed").save(tmp_path / "model.dgcf")
    words = [sys.executable, "-c", _WITHOUT_TORCH, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
