"""Every route of the HTTP application, over a small model; ``InProcess`` holds each answer against its schema."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.serve.in_process import FIGURES, InProcess

USER, ITEM, OTHER = "u00001", "i00001", "i00003"


def test_a_known_user_gets_a_list_of_the_model(service: InProcess) -> None:
    answer = service.get(f"/v1/recommend/{USER}?k=7").json
    assert (answer["user"], answer["known"], answer["source"], answer["model"]) == (USER, True, "model", 1)
    rows = answer["recommendations"]
    assert [row["rank"] for row in rows] == list(range(1, 8))
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(row["title"] and "why" not in row and "reasons" not in row for row in rows)
    history = {row["item"] for row in service.get(f"/v1/users/{USER}").json["history"]}
    assert history.isdisjoint(row["item"] for row in rows)
    assert len(service.get(f"/v1/recommend/{USER}").json["recommendations"]) == 10


def test_options_of_a_list(service: InProcess) -> None:
    history = {row["item"] for row in service.get(f"/v1/users/{USER}").json["history"]}
    seen = service.get(f"/v1/recommend/{USER}?seen=true&k=50").json["recommendations"]
    assert history & {row["item"] for row in seen}
    why = service.get(f"/v1/recommend/{USER}?why=true&k=2").json["recommendations"]
    for row in why:
        assert row["why"].startswith(row["title"])
        assert row["reasons"]


def test_an_unknown_user_gets_popular_items(service: InProcess) -> None:
    answer = service.get("/v1/recommend/nobody").json
    assert (answer["user"], answer["known"], answer["source"]) == ("nobody", False, "popular")
    assert answer["notes"]


def test_several_users_and_rules(service: InProcess) -> None:
    body = {"users": [USER, "nobody", USER], "k": 3, "only": [ITEM, OTHER, "i00005"], "exclude": [OTHER], "seen": True}
    answer = service.post("/v1/recommend", body).json
    assert [of["user"] for of in answer["users"]] == [USER, "nobody"]
    for of in answer["users"]:
        assert {row["item"] for row in of["recommendations"]} == {ITEM, "i00005"}
    assert service.post("/v1/recommend", {"users": []}).json["users"] == []


def test_the_items_of_a_new_user(service: InProcess) -> None:
    answer = service.post("/v1/recommend", {"items": [ITEM, "unheard of"], "negative": [OTHER], "k": 4}).json
    assert (answer["user"], answer["known"], answer["source"]) == (None, False, "events")
    assert [row["item"] for row in answer["items"]] == [ITEM]
    assert [row["item"] for row in answer["negative"]] == [OTHER]
    assert any("unheard of" in note for note in answer["notes"])
    assert {ITEM, OTHER}.isdisjoint(row["item"] for row in answer["recommendations"])
    with_user = service.post("/v1/recommend", {"items": [ITEM], "user": USER}).json
    assert (with_user["user"], with_user["known"], with_user["source"]) == (USER, True, "events")


def test_at_most_so_many_items_share_a_value(service: InProcess) -> None:
    rows = service.get(f"/v1/recommend/{USER}?k=4").json["recommendations"]
    for row in rows:
        service.request("PUT", f"/v1/items/{row['item']}", {"title": row["title"], "attributes": {"shelf": "one"}})
    answer = service.post("/v1/recommend", {"users": [USER], "k": 4, "max_per": {"shelf": 1}}).json["users"][0]
    kept = {row["item"] for row in answer["recommendations"]} & {row["item"] for row in rows}
    assert kept == {rows[0]["item"]}
    for row in rows:
        assert service.request("DELETE", f"/v1/items/{row['item']}").status == 204


def test_similar_items_and_users(service: InProcess) -> None:
    for side, name in (("item", ITEM), ("user", USER)):
        answer = service.get(f"/v1/similar/{side}s/{name}?k=5").json
        assert answer[side] == name
        assert [row["rank"] for row in answer["similar"]] == [1, 2, 3, 4, 5]
        assert name not in [row[side] for row in answer["similar"]]


def test_an_explanation_sums_to_the_score(service: InProcess) -> None:
    row = service.get(f"/v1/recommend/{USER}?k=1").json["recommendations"][0]
    known = service.get(f"/v1/explain/{USER}/{row['item']}?top=0").json
    assert known["score"] == pytest.approx(row["score"], abs=1e-6)
    new = service.post("/v1/explain", {"items": [ITEM], "negative": [OTHER], "item": row["item"], "top": 3}).json
    for answer in (known, new):
        total = sum(part["value"] for part in answer["parts"]) + answer["residual"]
        assert total == pytest.approx(answer["score"], abs=1e-9)
        assert sum(answer["by_kind"].values()) == pytest.approx(answer["score"], abs=1e-6)
    assert any(part["kind"] == "negative" for part in new["parts"])


def test_items_are_searched_by_title_and_id_page_by_page(service: InProcess) -> None:
    found = service.get("/v1/items?q=LANTERN+silent").json
    assert {row["title"] for row in found["items"]} == {
        "The Silent Lantern (Western)",
        "The Silent Lantern 2 (Western)",
    }
    assert found["next"] is None
    items, cursor = [], ""
    for _ in range(20):
        page = service.get(f"/v1/items?q=i000&limit=9{cursor}").json
        items += [row["item"] for row in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(items) == [f"i{number:05}" for number in range(100)]
    users = [row["users"] for row in service.get("/v1/items?limit=10").json["items"]]
    assert users == sorted(users, reverse=True)


def test_what_is_put_for_an_item_is_shown_until_it_is_deleted(service: InProcess) -> None:
    before = service.get(f"/v1/items/{OTHER}")
    attributes = {"genre": "Noir", "year": 1949, "length": 1.5, "new": True}
    body = {"title": "<script>alert(1)</script>", "attributes": attributes, "hidden": True}
    put = service.request("PUT", f"/v1/items/{OTHER}", body)
    assert put.status == 201
    assert service.request("PUT", f"/v1/items/{OTHER}", body).status == 200
    after = service.get(f"/v1/items/{OTHER}")
    assert after.json == put.json == {**before.json, **body}
    assert after.headers["etag"] != before.headers["etag"]
    recommended = service.post("/v1/recommend", {"users": [USER], "k": 50, "seen": True}).json["users"][0]
    assert OTHER not in [row["item"] for row in recommended["recommendations"]]
    assert service.request("DELETE", f"/v1/items/{OTHER}").status == 204
    assert service.request("DELETE", f"/v1/items/{OTHER}").status == 404
    assert service.get(f"/v1/items/{OTHER}").json == before.json


def test_an_item_that_the_model_does_not_have(service: InProcess) -> None:
    assert service.get("/v1/items/brand%20new").status == 404
    assert service.request("PUT", "/v1/items/brand%20new", {}).status == 201
    answer = service.get("/v1/items/brand%20new").json
    assert (answer["item"], answer["title"], answer["known"], answer["users"]) == ("brand new", None, False, 0)


def test_an_event_counts_in_the_next_answer_until_it_is_removed(service: InProcess) -> None:
    user = "u00010"
    first = service.get(f"/v1/recommend/{user}?k=50")
    liked, hidden = (row["item"] for row in first.json["recommendations"][:2])
    events = [{"user": user, "item": liked, "key": "liked"}, {"user": user, "item": hidden, "kind": "hide"}]
    sent = service.post("/v1/events", {"events": events})
    assert (sent.status, sent.json["stored"], sent.json["duplicates"]) == (201, 2, 0)
    assert sent.json["keys"][0] == "liked"
    second = service.get(f"/v1/recommend/{user}?k=50")
    assert {liked, hidden}.isdisjoint(row["item"] for row in second.json["recommendations"])
    assert second.headers["etag"] != first.headers["etag"]
    assert [event["item"] for event in service.get(f"/v1/users/{user}").json["events"]] == [hidden, liked]
    for key in sent.json["keys"]:
        assert service.request("DELETE", f"/v1/events/{key}").status == 204
        assert service.request("DELETE", f"/v1/events/{key}").status == 404
    third = service.get(f"/v1/recommend/{user}?k=50")
    assert third.json["recommendations"] == first.json["recommendations"]


def test_a_repeated_key_counts_once(service: InProcess) -> None:
    event = {"user": "u00011", "item": ITEM, "key": "same"}
    assert service.post("/v1/events", event).status == 201
    again = service.post("/v1/events", {"events": [event, event, {**event, "key": "other"}]})
    assert (again.status, again.json) == (201, {"stored": 1, "duplicates": 2, "keys": ["same", "same", "other"]})
    known = service.post("/v1/events", event)
    assert (known.status, known.json) == (200, {"stored": 0, "duplicates": 1, "keys": ["same"]})
    assert len(service.get("/v1/users/u00011").json["events"]) == 2


@pytest.mark.parametrize(
    ("time_", "shown"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1.5, "1970-01-01T00:00:01.500000+00:00"),
        ("2026-05-01T12:00:00Z", "2026-05-01T12:00:00+00:00"),
        ("2026-05-01T12:00:00.25+02:00", "2026-05-01T10:00:00.250000+00:00"),
    ],
)
def test_times_are_numbers_or_iso_8601(service: InProcess, time_: float | str, shown: str) -> None:
    user = f"at {time_}"
    assert service.post("/v1/events", {"user": user, "item": ITEM, "time": time_}).status == 201
    (event,) = service.get(f"/v1/users/{user.replace(' ', '%20').replace('+', '%2B')}").json["events"]
    assert event["time"] == shown


def test_keys_and_the_time_are_made_when_they_are_not_given(service: InProcess) -> None:
    event = {"user": "keyless", "item": ITEM, "key": None, "time": None}
    keys = service.post("/v1/events", {"events": [event, {**event, "item": OTHER}]}).json["keys"]
    assert len(set(keys)) == 2
    stored = [service.store.event(key) for key in keys]
    assert all(one is not None and abs(one.time - time.time()) < 60 for one in stored)


def test_a_forgotten_user_is_unknown_from_then_on(service: InProcess) -> None:
    user = "u00012"
    service.post("/v1/events", {"user": user, "item": ITEM, "kind": "like"})
    assert service.request("DELETE", f"/v1/users/{user}").json == {"user": user, "events": 1}
    assert service.get(f"/v1/users/{user}").status == 404
    assert service.get(f"/v1/recommend/{user}").json["known"] is False
    assert service.request("DELETE", f"/v1/users/{user}").status == 404


def test_the_model_its_charts_and_its_reload(service: InProcess) -> None:
    model = service.get("/v1/model").json
    assert (model["version"], model["users"], model["items"]) == (1, 150, 160)
    assert service.get("/v1/model/charts").json["gates"]["bins"]
    assert service.request("POST", "/v1/admin/reload").json["sha256"] == model["sha256"]


def test_health_metrics_and_figures(service: InProcess) -> None:
    assert service.get("/healthz").json == {"alive": True}
    assert service.get("/readyz").json == {"ready": True}
    metrics = service.get("/metrics")
    assert (metrics.headers["content-type"], metrics.body) == (
        "text/plain; version=0.0.4; charset=utf-8",
        b"dgcf_up 1\n",
    )
    assert service.get("/v1/operations").json == FIGURES


def test_a_service_that_is_not_ready_says_so(model_file: Path, tmp_path: Path) -> None:
    with InProcess(model_file, tmp_path) as service:
        service.engine.ready = False
        reply = service.get("/readyz")
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert reply.json["type"] == "/problems/not-ready"
        assert service.get("/healthz").status == 200


STABLE = (
    f"/v1/recommend/{USER}",
    f"/v1/similar/items/{ITEM}",
    f"/v1/similar/users/{USER}",
    f"/v1/explain/{USER}/{ITEM}",
    "/v1/items?q=silent",
    f"/v1/items/{ITEM}",
    f"/v1/users/{USER}",
    "/v1/model",
    "/v1/model/charts",
    "/openapi.json",
    "/docs",
    "/",
    "/page/app.js",
)


@pytest.mark.parametrize("target", STABLE)
def test_a_stable_answer_has_an_etag_and_is_not_sent_twice(service: InProcess, target: str) -> None:
    first = service.get(target)
    assert first.status == 200
    assert first.headers["cache-control"] == "private, no-cache"
    etag = first.headers["etag"]
    for given in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = service.get(target, headers={"if-none-match": given})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    assert service.get(target, headers={"if-none-match": '"other"'}).body == first.body


@pytest.mark.parametrize("target", [*STABLE, "/healthz", "/metrics", "/v1/operations"])
def test_head_is_get_without_the_body(service: InProcess, target: str) -> None:
    got, head = service.get(target), service.request("HEAD", target)
    assert (head.status, head.headers, head.body) == (got.status, got.headers, b"")
