"""The guard: access, limits, headers and the log of single requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dgcf.serve.server.board import ROUTE_INDEX, Field
from dgcf.serve.server.guard import BrokenAnswerError
from tests.serve.guarding import ALL_TOKENS, Bench
from tests.serve.service import ADMIN, READ, WRITE

SHOP = "https://shop.example"


Make = Callable[..., Bench]


def test_answer_has_the_headers_of_security_and_a_request_id(bench: Make) -> None:
    reply = bench().ask("GET", "/v1/model")
    assert reply.status == 200
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cross-origin-opener-policy"] == "same-origin"
    assert reply.headers["content-type"] == "text/plain"
    assert "server" not in reply.headers


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1.2_Z", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ("a\nb", False)]
)
def test_request_id_of_the_client_is_kept_if_it_is_sane(bench: Make, given: str, kept: bool) -> None:
    guard = bench()
    reply = guard.ask("GET", "/v1/model", headers={"x-request-id": given})
    assert (reply.headers["x-request-id"] == given) is kept
    assert guard.lines()[-1]["id"] == reply.headers["x-request-id"]


def test_log_line_has_the_template_and_nothing_of_the_request(bench: Make) -> None:
    guard = bench(tokens={"write": (WRITE,)})
    guard.ask("POST", "/v1/events", parts=[b'{"user": "anna-secret"}'], token=WRITE)
    guard.ask("GET", "/v1/recommend/anna-secret")
    guard.ask("GET", "/secret/path")
    events, recommend, unknown = guard.lines()
    assert (events["route"], events["status"], events["scope"]) == ("/v1/events", 200, "write")
    assert (recommend["route"], recommend["method"]) == ("/v1/recommend/{user}", "GET")
    assert (unknown["route"], unknown["status"]) == ("unmatched", 404)
    assert not any(word in json.dumps([events, recommend, unknown]) for word in ("secret", WRITE, "192.0.2.7"))


def test_unknown_paths_and_methods_are_refused_before_the_application(bench: Make) -> None:
    guard = bench()
    for path in ("/v1/nothing", "/v1/recommend/", "/v1//", "//", "/page/../x", "/v1/recommend/a/b"):
        assert guard.ask("GET", path).problem()["status"] == 404
    wrong = guard.ask("DELETE", "/v1/recommend/anna")
    assert wrong.problem()["status"] == 405
    assert wrong.headers["allow"] == "GET, HEAD"
    assert guard.app.seen == []


ROUTES_BY_SCOPE = [("GET", "/v1/model", 1), ("GET", "/metrics", 1), ("POST", "/v1/events", 2)]
ROUTES_BY_SCOPE += [("POST", "/v1/admin/reload", 3), ("GET", "/v1/events/export", 3), ("DELETE", "/v1/users/u", 2)]


@pytest.mark.parametrize(("method", "path", "rank"), ROUTES_BY_SCOPE)
def test_token_needs_the_scope_of_the_route(bench: Make, method: str, path: str, rank: int) -> None:
    guard = bench(tokens=ALL_TOKENS)
    statuses = [guard.ask(method, path, token=token).status for token in (None, "x" * 20, READ, WRITE, ADMIN)]
    assert statuses == [401, 401, *(200 if held >= rank else 403 for held in (1, 2, 3))]
    assert len(guard.app.seen) == 4 - rank


def test_without_tokens_all_but_admin_is_open(bench: Make) -> None:
    guard = bench()
    statuses = {path: guard.ask(method, path).status for method, path, _ in ROUTES_BY_SCOPE}
    assert [path for path, status in statuses.items() if status == 403] == ["/v1/admin/reload", "/v1/events/export"]
    assert set(statuses.values()) == {200, 403}


def test_with_a_write_token_reading_is_open_and_writing_is_not(bench: Make) -> None:
    guard = bench(tokens={"write": (WRITE,)})
    assert guard.ask("GET", "/v1/model").status == 200
    refused = guard.ask("POST", "/v1/events")
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    off = guard.ask("POST", "/v1/admin/reload", token=WRITE)
    assert (off.status, "www-authenticate" in off.headers) == (403, False)  # no other token helps


def test_refusal_names_the_scope_that_is_needed(bench: Make) -> None:
    refused = bench(tokens=ALL_TOKENS).ask("POST", "/v1/events", token=READ)
    assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="write"'


def test_open_routes_need_no_token_and_count_towards_no_rate(bench: Make) -> None:
    guard = bench(tokens=ALL_TOKENS, rate=1.0)
    for path in ("/", "/healthz", "/readyz", "/page/app.js"):
        assert [guard.ask("GET", path).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("headers", [{"content-length": "1001"}, {}], ids=["declared", "chunked"])
def test_large_body_is_refused(bench: Make, headers: dict[str, str]) -> None:
    guard = bench()
    reply = guard.ask("POST", "/v1/events", headers=headers, parts=[b"x" * 600] * 2)
    assert reply.problem()["status"] == 413
    assert reply.headers["connection"] == "close"
    assert guard.app.seen == []


def test_body_of_the_largest_size_arrives_whole(bench: Make) -> None:
    guard = bench()
    reply = guard.ask("POST", "/v1/events", parts=[b"x" * 400, b"y" * 600])
    assert (reply.status, reply.body) == (200, b"x" * 400 + b"y" * 600)


def test_slow_body_is_refused(bench: Make) -> None:
    guard = bench()
    reply = guard.ask("POST", "/v1/events", parts=[b"x", 0.15, b"y", 0.15, b"z"])
    assert reply.problem()["status"] == 408
    assert guard.app.seen == []


def test_slow_answer_is_given_up(bench: Make) -> None:
    guard = bench()

    async def sleep(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(10)

    guard.app.act = sleep
    reply = guard.ask("GET", "/v1/model")
    assert reply.problem()["status"] == 503
    assert reply.headers["retry-after"] == "5"


def test_admin_routes_may_take_longer(bench: Make) -> None:
    guard = bench(tokens=ALL_TOKENS)

    async def sleep(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    guard.app.act = sleep
    assert guard.ask("POST", "/v1/admin/reload", token=ADMIN).status == 200
    assert guard.ask("GET", "/v1/model", token=ADMIN).status == 503


def test_stream_may_take_longer_than_one_answer_but_not_stall(bench: Make) -> None:
    guard = bench()

    def stream(*pauses: float) -> Any:
        async def act(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for pause in pauses:
                await asyncio.sleep(pause)
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        return act

    guard.app.act = stream(*[0.1] * 5)
    assert guard.ask("GET", "/v1/model").body == b"xxxxx"
    guard.app.act = stream(0.0, 10.0)
    with pytest.raises(BrokenAnswerError):
        guard.ask("GET", "/v1/model")
    assert guard.lines()[-1]["status"] == 503


def test_failure_of_the_application_is_logged_and_shows_nothing_to_the_client(bench: Make) -> None:
    guard = bench()

    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("a detail of the inside")

    guard.app.act = fail
    reply = guard.ask("GET", "/v1/model")
    assert reply.problem()["status"] == 500
    assert b"inside" not in reply.body
    failure, line = guard.lines()
    assert failure["id"] == line["id"] == reply.headers["x-request-id"]
    assert "a detail of the inside" in failure["traceback"]


def test_time_out_of_the_application_itself_is_a_failure(bench: Make) -> None:
    guard = bench()

    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise TimeoutError

    guard.app.act = fail
    assert guard.ask("GET", "/v1/model").problem()["status"] == 500


def test_client_that_leaves_while_it_sends_is_counted(bench: Make) -> None:
    guard = bench()
    scope = {"type": "http", "method": "POST", "path": "/v1/events", "headers": [(b"transfer-encoding", b"chunked")]}

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    asyncio.run(guard.guard(scope, receive, send))
    assert guard.lines()[-1]["status"] == 499
    assert guard.board.total(Field.IN_FLIGHT) == 0


# -- counters ---------------------------------------------------------------------------------------------------------


def test_requests_are_counted_by_template_and_class(bench: Make) -> None:
    guard = bench()
    for user in ("a", "b", "c"):
        guard.ask("GET", f"/v1/recommend/{user}")
    guard.ask("PATCH", "/v1/recommend/a")
    counts = guard.board.requests()
    row = counts[ROUTE_INDEX["/v1/recommend/{user}"]]
    assert row.sum(axis=0).tolist() == [3, 0, 1, 0]
    assert counts.sum() == 4
    assert guard.board.latency()[ROUTE_INDEX["/v1/recommend/{user}"], :-1].sum() == 4
