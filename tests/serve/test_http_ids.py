"""Raw ids of any unicode, in paths and in bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_from_bytes

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgcf.client.calls import segment
from dgcf.data import Dataset, Pairs, Vocabulary
from dgcf.recommend import artifact
from tests.recommend.conftest import random_dataset, untrained
from tests.serve.in_process import LIMITS, InProcess

HOSTILE = (
    *(
        "a/b",
        "a%2Fb",
        "%",
        "%25",
        "..",
        ".",
        "/",
        "//",
        "?",
        "#",
        "a?b=c",
        "a#b",
        "a b",
        "a+b",
        "+",
        "&",
        "=",
        ";",
        ":",
    ),
    *(
        "Ünal, Ş.",
        "日本語",
        "👩‍🚀",
        "é",
        "e\u0301",
        "\u202eabc",
        "\ufeff",
        "\u00a0",
        "\u2028",
        '"',
        "'",
        "\\",
        "<script>",
    ),
    *("None", "null", "true", "0", "-1", "01", "1e5", "export", "items", "v1", "{user}", "x" * 64, "é" * 32),
)
ids = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[chr(code) for code in (*range(32), 127)]), min_size=1
).filter(lambda text: len(text.encode()) <= LIMITS.id_bytes)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A service whose users and items have hostile ids."""
    names = sorted(HOSTILE)
    dataset = random_dataset(len(names), len(names), users=names, items=names, kind="text")
    path = tmp_path_factory.mktemp("hostile") / "model.dgcf"
    artifact.save(untrained(dataset), path)
    with InProcess(path, tmp_path_factory.mktemp("data")) as service:
        yield service


@pytest.mark.parametrize("name", HOSTILE)
def test_an_id_of_the_model_is_known_in_paths_and_bodies(hostile: InProcess, name: str) -> None:
    for encoded in {
        segment(name),
        quote_from_bytes(name.encode(), safe=""),
        "".join(f"%{b:02x}" for b in name.encode()),
    }:
        answer = hostile.get(f"/v1/recommend/{encoded}?k=2").json
        assert (answer["user"], answer["known"]) == (name, True)
        assert hostile.get(f"/v1/items/{encoded}").json["item"] == name
        assert hostile.get(f"/v1/users/{encoded}").json["user"] == name
        assert hostile.get(f"/v1/explain/{encoded}/{encoded}").json["item"] == name
        assert hostile.get(f"/v1/similar/items/{encoded}?k=1").json["item"] == name
    answer = hostile.post("/v1/recommend", {"users": [name], "k": 1}).json["users"][0]
    assert (answer["user"], answer["known"]) == (name, True)
    found = hostile.get(f"/v1/items?q={quote(name, safe='')}&limit=10").json["items"]
    assert name in [row["item"] for row in found] or len(found) == 10


@settings(max_examples=40)
@given(user=ids, item=ids, key=ids)
@example("a/../b", "%2e%2e", "a/b")
@example("export", "export", "export")
def test_an_event_of_any_ids_is_stored_shown_and_removed(service: InProcess, user: str, item: str, key: str) -> None:
    event = {"user": user, "item": item, "key": key}
    sent = service.post("/v1/events", event)
    assert sent.json["keys"] == [key]
    if sent.json["stored"]:  # a removed key is not accepted again
        events = service.get(f"/v1/users/{segment(user)}").json["events"]
        assert (item, key) in [(one["item"], one["key"]) for one in events]
        assert service.request("DELETE", f"/v1/events/{segment(key)}").status == 204
    assert service.request("DELETE", f"/v1/events/{segment(key)}").status == 404


@settings(max_examples=40)
@given(item=ids, title=ids)
def test_a_record_of_any_item_is_shown(service: InProcess, item: str, title: str) -> None:
    path = f"/v1/items/{segment(item)}"
    assert service.request("PUT", path, {"title": title}).status in (200, 201)
    answer = service.get(path).json
    assert (answer["item"], answer["title"]) == (item, title)
    assert service.request("DELETE", path).status == 204


@settings(max_examples=150)
@given(raw=st.binary(min_size=1, max_size=80))
@example(b"%")
@example(b"%zz")
@example(b"%ff")
@example(b"%c3%28")
@example(b"\xc3\xbc")
@example(b"\xff")
@example(b"%00")
@example(b"%0a")
@example(b"%ED%A0%80")
def test_no_bytes_in_a_path_break_the_service(service: InProcess, raw: bytes) -> None:
    target = b"/v1/recommend/" + raw.replace(b"?", b"").replace(b"\n", b"")
    reply = service.get(target)
    assert reply.status in (200, 404, 422)
    if reply.status == 422:
        assert reply.json["errors"][0]["in"] == "path"


@settings(max_examples=150)
@given(query=st.binary(max_size=60))
def test_no_bytes_in_a_query_break_the_service(service: InProcess, query: bytes) -> None:
    assert service.get(b"/v1/items?" + query).status in (200, 422)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("i00001"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["items", "users", "user", "item", "k", "events", "kind", "time", "x"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(value=json_values, target=st.sampled_from(["/v1/recommend", "/v1/explain", "/v1/events"]))
def test_no_json_breaks_the_service(service: InProcess, value: object, target: str) -> None:
    reply = service.post(target, json.dumps(value).encode(), headers={"content-type": "application/json"})
    assert reply.status in (200, 201, 400, 404, 422)


@pytest.mark.parametrize("encoded", ["x" * 65, "%C3%BC" * 33, "%F0%9F%98%80" * 17])
def test_an_id_above_the_limit_is_refused(service: InProcess, encoded: str) -> None:
    reply = service.get(f"/v1/recommend/{encoded}")
    assert reply.status == 422
    assert "expected at most 64" in reply.json["detail"]


def test_ids_of_an_integer_dataset(tmp_path: Path) -> None:
    users = Vocabulary.from_ids("user", [-5, 7, 196, 10**18], "integer")
    items = Vocabulary.from_ids("item", [50, 181, 10**18], "integer")
    train = Pairs.from_indices(np.array([0, 1, 2, 2, 3]), np.array([0, 1, 1, 2, 2]), 4, 3)
    empty = Pairs.empty(4, 3)
    path = tmp_path / "model.dgcf"
    artifact.save(untrained(Dataset("numbers", users, items, train, empty, empty)), path)
    with InProcess(path, tmp_path / "data") as service:
        for user in (-5, 7, 196, 10**18):
            assert service.get(f"/v1/recommend/{user}").json["user"] == user
            for given_id in (user, str(user)):
                answer = service.post("/v1/recommend", {"users": [given_id], "k": 3, "seen": True}).json["users"][0]
                assert (answer["user"], answer["known"]) == (user, True)
                assert {row["item"] for row in answer["recommendations"]} == {50, 181, 10**18}
        assert service.get("/v1/recommend/007").json["known"] is False
        assert service.post("/v1/events", {"user": 7, "item": 50}).status == 201
        assert service.request("DELETE", f"/v1/users/{10**18}").json == {"user": 10**18, "events": 0}
        assert service.get("/v1/users/7").json["events"][0]["item"] in ("50", 50)
        assert service.post("/v1/recommend", {"items": [50, "181"]}).json["items"] == [
            {"item": 50, "title": None},
            {"item": 181, "title": None},
        ]
