"""What is refused: a problem document for every error, with the place of each invalid value."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Scope

from dgcf.errors import NotEnoughMemoryError
from dgcf.serve.errors import ModelRefusedError, StoreFullError
from dgcf.serve.server.refusal import Refusal
from tests.serve.in_process import LIMITS, InProcess, Reply

JSON = {"content-type": "application/json"}
LONG = "x" * (LIMITS.id_bytes + 1)


def places(reply: Reply) -> list[tuple[str, str]]:
    """Return where the invalid values of a request are."""
    assert reply.status == 422, reply.json
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["type"] == "/problems/invalid"
    assert reply.json["instance"] == "test-1"
    assert all(error["detail"].endswith((".", "?")) for error in reply.json["errors"])
    return [(error["in"], error["at"]) for error in reply.json["errors"]]


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("k=0", ["k"]),
        ("k=51", ["k"]),
        ("k=-1", ["k"]),
        ("k=1.0", ["k"]),
        ("k=", ["k"]),
        ("k", ["k"]),
        ("k=%31%30x", ["k"]),
        ("k=1_0", ["k"]),
        ("k=%C2%B2", ["k"]),
        ("k=99999999999999999999999", ["k"]),
        ("seen=1", ["seen"]),
        ("seen=True", ["seen"]),
        ("why=", ["why"]),
        ("k=5&k=5", ["k"]),
        ("kk=5", ["kk"]),
        ("k=%FF", ["k"]),
        ("%FF=1", ["%FF"]),
        ("k=0&seen=2&x=1", ["k", "seen", "x"]),
        ("=1", [""]),
    ],
)
def test_options_of_the_query_are_checked(service: InProcess, query: str, wrong: list[str]) -> None:
    assert places(service.get(f"/v1/recommend/u00001?{query}")) == [("query", name) for name in wrong]


@pytest.mark.parametrize("query", ["", "&", "k=5", "&k=5&", "k=%35", "%6B=5", "k=007"])
def test_ways_to_write_a_query_that_are_valid(service: InProcess, query: str) -> None:
    assert service.get(f"/v1/recommend/u00001?{query}").status == 200


@pytest.mark.parametrize(
    "target",
    [
        *("/v1/similar/items/i00001?k=51", "/v1/similar/users/u00001?k=0", "/v1/explain/u00001/i00001?top=-1"),
        *("/v1/items?limit=11", f"/v1/items?q={LONG}", f"/v1/items?cursor={LONG}", "/v1/users/u00001?limit=21"),
        *("/v1/events/export?since=-1", "/v1/events/export?kinds=like,like", "/v1/events/export?kinds="),
        *("/v1/model?x=1", "/v1/model/charts?x=1", "/v1/operations?x=1", "/healthz?x=1", "/readyz?x=1"),
        *("/metrics?x=1", "/?x=1", "/page/app.js?x=1", "/docs?x=1", "/openapi.json?x=1", "/v1/items/i00001?x=1"),
    ],
)
def test_every_route_checks_its_query(service: InProcess, target: str) -> None:
    assert len(places(service.get(target))) == 1


def test_a_cursor_that_is_none_is_refused(service: InProcess) -> None:
    for cursor in ("x", "%2D1", "////", "AAAA"):
        assert service.get(f"/v1/items?cursor={cursor}").status == 422


@pytest.mark.parametrize(
    "target",
    [
        *("/v1/similar/items/none", "/v1/similar/users/none", "/v1/explain/none/i00001", "/v1/explain/u00001/none"),
        *("/v1/items/none", "/v1/users/none", "/page/none.js", "/page/..%2Fsettings.py", "/page/app.js%00", "/page/"),
        *("/none", "/v1", "/v1/", "/v1/recommend/", "/v1/recommend/a/b", "//v1/model", "/v1/model/", "/docs/"),
        *("/v1/explain/u00001/", "/v1/explain//i00001", "/page/__init__.py", "/V1/model", ""),
    ],
)
def test_what_is_not_there(service: InProcess, target: str) -> None:
    reply = service.get(target)
    assert (reply.status, reply.json["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("PATCH", "/v1/items/a", "DELETE, GET, HEAD, PUT"),
        ("DELETE", "/v1/recommend", "POST"),
        ("GET", "/v1/events", "POST"),
        ("HEAD", "/v1/events", "POST"),
        ("OPTIONS", "/", "GET, HEAD"),
        ("GET", "/v1/events/a", "DELETE"),
    ],
)
def test_a_method_that_a_path_does_not_take(service: InProcess, method: str, target: str, allowed: str) -> None:
    reply = service.request(method, target)
    assert reply.status == 405
    assert reply.headers["allow"] == allowed


WRONG_BODIES: list[tuple[str, Any, list[str]]] = [
    ("/v1/recommend", [], [""]),
    ("/v1/recommend", None, [""]),
    ("/v1/recommend", "text", [""]),
    ("/v1/recommend", {}, [""]),
    ("/v1/recommend", {"user": "u00001", "k": 3}, [""]),
    ("/v1/recommend", {"itmes": ["i00001"]}, ["/items", "/itmes"]),
    ("/v1/recommend", {"items": "i1"}, ["/items"]),
    ("/v1/recommend", {"items": [1.5, True, None, "", LONG, [], {}, 2**63]}, [f"/items/{n}" for n in range(8)]),
    ("/v1/recommend", {"items": ["é" * 33]}, ["/items/0"]),
    ("/v1/recommend", {"items": [0] * 21}, ["/items"]),
    ("/v1/recommend", {"users": [0] * 6}, ["/users"]),
    ("/v1/recommend", {"users": [], "items": []}, [""]),
    ("/v1/recommend", {"items": [], "k": "5", "seen": 1, "why": None}, ["/k", "/seen", "/why"]),
    ("/v1/recommend", {"items": [], "k": True}, ["/k"]),
    ("/v1/recommend", {"items": [], "k": 51}, ["/k"]),
    ("/v1/recommend", {"items": [], "k": 0}, ["/k"]),
    (
        "/v1/recommend",
        {"items": [], "max_per": {"": 1, "a": 0, "b/~c": 1.5}},
        ["/max_per/", "/max_per/a", "/max_per/b~1~0c"],
    ),
    ("/v1/recommend", {"items": [], "max_per": {str(n): 1 for n in range(17)}}, ["/max_per"]),
    ("/v1/recommend", {"items": [], "wy": 1, "x" * 200: 1}, ["/wy", "/" + "x" * 80]),
    ("/v1/explain", {"items": []}, ["/item"]),
    ("/v1/explain", {"items": [], "item": None, "top": -1}, ["/item", "/top"]),
    ("/v1/events", {}, [""]),
    ("/v1/events", {"user": 1}, ["/item"]),
    ("/v1/events", {"events": []}, ["/events"]),
    ("/v1/events", {"events": [{"user": 1, "item": 2}] * 9}, ["/events"]),
    ("/v1/events", {"events": {}}, ["/events"]),
    ("/v1/events", {"events": [{"user": 1, "item": 2}, {"user": 1}, 5]}, ["/events/1/item", "/events/2"]),
    ("/v1/events", {"user": 1, "item": 2, "kind": "lik"}, ["/kind"]),
    ("/v1/events", {"user": 1, "item": 2, "weight": 0}, ["/weight"]),
    ("/v1/events", {"user": 1, "item": 2, "weight": True}, ["/weight"]),
    ("/v1/events", {"user": 1, "item": 2, "weight": 1e7}, ["/weight"]),
    ("/v1/events", {"user": 1, "item": 2, "time": "2026-05-01T12:00:00"}, ["/time"]),
    ("/v1/events", {"user": 1, "item": 2, "time": "yesterday"}, ["/time"]),
    ("/v1/events", {"user": 1, "item": 2, "time": "0001-01-01T00:00:00+23:00"}, [""]),
    ("/v1/events", {"user": 1, "item": 2, "time": True}, ["/time"]),
    ("/v1/events", {"user": 1, "item": 2, "time": 1e14}, [""]),
    ("/v1/events", {"user": "a\nb", "item": 2}, [""]),
    ("/v1/events", {"events": [{"user": 1, "item": 2}, {"user": "\u0000", "item": 2}]}, ["/events/1"]),
    ("/v1/events", {"user": 1, "item": 2, "key": ""}, ["/key"]),
    ("/v1/events", {"user": 1, "item": 2, "key": "k" * 129}, ["/key"]),
    ("/v1/events", {"user": 1, "item": 2, "key": 5}, ["/key"]),
]


@pytest.mark.parametrize(("target", "body", "wrong"), WRONG_BODIES)
def test_bodies_are_checked(service: InProcess, target: str, body: Any, wrong: list[str]) -> None:
    content = b"null" if body is None else body
    reply = service.post(target, content, headers=JSON)
    assert places(reply) == [("body", at) for at in wrong]


@pytest.mark.parametrize(
    ("target", "body", "sentence"),
    [
        ("/v1/recommend", {"k": 3}, "the request has neither users nor items; add one of them."),
        ("/v1/recommend", {"users": [1], "items": [2]}, "the request has both users and items; send one of them."),
        ("/v1/recommend", {"itmes": [1]}, "did you mean 'items'?"),
        ("/v1/events", {"item": 1}, "the request has neither events nor user; add one of them."),
        ("/v1/events", {"user": 1, "item": 2, "rating": 4}, "; it takes user, item, kind, weight, time, key."),
    ],
)
def test_what_a_body_takes_is_said(service: InProcess, target: str, body: Any, sentence: str) -> None:
    assert any(sentence in error["detail"] for error in service.post(target, body).json["errors"])


def test_a_body_with_thousands_of_errors_is_refused_with_one_sentence(service: InProcess) -> None:
    reply = service.post("/v1/recommend", {"items": [], **{str(number): 1 for number in range(1500)}})
    assert places(reply) == [("body", "")]
    assert "1,500 fields and values" in reply.json["detail"]


def test_nothing_of_a_refused_body_is_stored(service: InProcess) -> None:
    before = service.store.count()
    good, bad = {"user": "partly", "item": "i00001"}, {"user": "partly", "item": "i\n"}
    assert service.post("/v1/events", {"events": [good, bad]}).status == 422
    assert service.store.count() == before


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({"title": ""}, "/title"),
        ({"title": 5}, "/title"),
        ({"title": "x" * 1001}, "/title"),
        ({"attributes": {"a": None}}, "/attributes/a"),
        ({"attributes": {"a": [1]}}, "/attributes/a"),
        ({"hidden": 1}, "/hidden"),
        ({"tilte": "x"}, "/tilte"),
    ],
)
def test_records_of_items_are_checked(service: InProcess, body: Any, at: str) -> None:
    assert places(service.request("PUT", "/v1/items/i00001", body)) == [("body", at)]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b'{"items": [1}', b"NaN", b'{"items": [Infinity]}', b"\xff", b'"\xff"', b'"\\ud800"', b"{} {}"),
        *(b"[" * 9000, b'{"a":' * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"\x00", b"1" * 5000, b"'a'"),
        "{}".encode("utf-16"),
    ],
)
@pytest.mark.parametrize("target", ["/v1/recommend", "/v1/explain", "/v1/events"])
def test_a_body_that_is_not_json_is_refused(service: InProcess, target: str, content: bytes) -> None:
    reply = service.post(target, content, headers=JSON)
    assert (reply.status, reply.json["type"]) == (400, "/problems/bad-request")
    assert len(reply.body) < 1000


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "text/plain",
        "application/jsonx",
        "application/json; charset=latin-1",
        "multipart/form-data; boundary=x",
    ],
)
def test_other_media_types_are_refused(service: InProcess, given: str | None) -> None:
    headers = {} if given is None else {"content-type": given}
    reply = service.post("/v1/events", b'{"user": 1, "item": 2}', headers=headers)
    assert (reply.status, reply.json["type"]) == (415, "/problems/media-type")


@pytest.mark.parametrize("given", ["application/json;charset=utf-8", "Application/JSON; Charset=UTF-8"])
def test_ways_to_name_json(service: InProcess, given: str) -> None:
    assert service.post("/v1/recommend", b'{"items": []}', headers={"content-type": given}).status == 200


def test_a_body_above_the_limit_is_refused(service: InProcess) -> None:
    reply = service.post("/v1/recommend", b'{"items": []}' + b" " * LIMITS.body_bytes, headers=JSON)
    assert (reply.status, reply.json["type"]) == (413, "/problems/body-too-large")


def test_lists_that_take_long_are_refused(service: InProcess) -> None:
    several = {"users": [1, 2, 3, 4, 5]}
    assert service.post("/v1/recommend", {**several, "k": 40}).status == 200
    assert service.post("/v1/recommend", {**several, "k": 8, "why": True}).status == 200
    assert service.post("/v1/recommend", {"items": ["i00001"], "k": 40, "why": True}).status == 200
    assert service.get("/v1/recommend/u00001?k=40&why=true").status == 200
    for reply, words in (
        (service.post("/v1/recommend", {**several, "k": 41}), "205 items were requested, expected at most 200"),
        (service.post("/v1/recommend", {**several, "k": 9, "why": True}), "45 items with reasons"),
        (service.post("/v1/recommend", {"items": [], "k": 41, "why": True}), "41 items with reasons"),
        (service.get("/v1/recommend/u00001?k=41&why=true"), "41 items with reasons"),
    ):
        assert reply.status == 422
        assert words in reply.json["detail"]


def test_an_attribute_that_no_item_has(service: InProcess) -> None:
    reply = service.post("/v1/recommend", {"items": ["i00001"], "max_per": {"colour": 1}})
    assert reply.status == 422
    assert "'colour'" in reply.json["detail"]


def test_a_score_that_cannot_be_explained(service: InProcess) -> None:
    reply = service.post("/v1/explain", {"items": [], "item": "i00001"})
    assert reply.status == 422
    assert "nothing is known" in reply.json["detail"]


# -- failures of the service ------------------------------------------------------------------------------------------


def failing(problem: BaseException) -> Callable[..., Future[Any]]:
    """Return a method of the store whose future raises an error."""

    def method(*arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(problem)
        return future

    return method


@pytest.mark.parametrize(
    ("method", "target", "body", "name"),
    [
        ("POST", "/v1/events", {"user": 1, "item": 2}, "submit"),
        ("DELETE", "/v1/events/k", None, "remove"),
        ("PUT", "/v1/items/i00001", {}, "put_item"),
        ("DELETE", "/v1/items/i00001", None, "delete_item"),
        ("DELETE", "/v1/users/u00001", None, "forget"),
    ],
)
def test_a_store_that_cannot_write_refuses_for_now(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, method: str, target: str, body: Any, name: str
) -> None:
    monkeypatch.setattr(service.store, name, failing(StoreFullError("cannot write: the disk is full; free space.")))
    reply = service.request(method, target, body)
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert reply.json["type"] == "/problems/store-full"
    assert reply.json["detail"] == "cannot write: the disk is full; free space."


def test_an_unexpected_error_is_logged_and_not_leaked(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service.store, "submit", failing(KeyError("the secret path /etc/x")))
    with caplog.at_level(logging.ERROR, "dgcf.serve"):
        reply = service.post("/v1/events", {"user": 1, "item": 2})
    assert (reply.status, reply.json["type"]) == (500, "/problems/internal")
    assert b"secret" not in reply.body
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert "/v1/events" in record.getMessage()


@pytest.mark.parametrize(
    ("problem", "status", "kind"),
    [
        (OSError(5, "Input/output error", "/secret/file"), 503, "unavailable"),
        (NotEnoughMemoryError("not enough memory for this list; ask for less."), 503, "unavailable"),
        (ModelRefusedError("no."), 409, "model-refused"),
        (RecursionError("deep"), 500, "internal"),
        (MemoryError(), 503, "unavailable"),
    ],
)
def test_errors_have_their_status(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, problem: Exception, status: int, kind: str
) -> None:
    async def fail(*arguments: Any, **options: Any) -> Any:
        raise problem

    monkeypatch.setattr(service.engine, "reload", fail)
    reply = service.request("POST", "/v1/admin/reload")
    assert (reply.status, reply.json["type"]) == (status, f"/problems/{kind}")
    assert b"secret" not in reply.body
    assert ("retry-after" in reply.headers) == (status == 503)


def test_a_broken_model_is_refused_and_the_old_one_stays(tmp_path: Path, model_file: Path) -> None:
    model = tmp_path / "model.dgcf"
    model.write_bytes(model_file.read_bytes())
    with InProcess(model, tmp_path / "data") as service:
        before = service.get("/v1/model").json
        model.write_bytes(b"PK\x03\x04 broken")
        reply = service.request("POST", "/v1/admin/reload")
        assert (reply.status, reply.json["type"]) == (409, "/problems/model-refused")
        assert service.get("/v1/model").json == before


def test_a_refusal_of_the_server_is_left_to_the_server(service: InProcess) -> None:
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/events",
        "raw_path": b"/v1/events",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "state": {},
    }
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def refuse() -> Message:
        raise Refusal(408, "the body came too slowly; send it faster.")

    with pytest.raises(Refusal, match="too slowly"):
        service.run(service.app(scope, refuse, send))

    async def leave() -> Message:
        return {"type": "http.disconnect"}

    service.run(service.app(scope, leave, send))
    assert sent == []
