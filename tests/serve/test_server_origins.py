"""The guard: rates of tokens and clients, pages of other origins, and names of other hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dgcf.serve.server.headers import check_origin
from tests.serve.guarding import ALL_TOKENS, Bench
from tests.serve.service import READ, WRITE

SHOP = "https://shop.example"


Make = Callable[..., Bench]


# -- rates ------------------------------------------------------------------------------------------------------------


def test_rate_is_kept_for_each_token(bench: Make) -> None:
    guard = bench(tokens=ALL_TOKENS, rate=3.0)
    first = [guard.ask("GET", "/v1/model", token=READ).status for _ in range(5)]
    assert first == [200] * 3 + [429] * 2
    assert guard.ask("GET", "/v1/model", token=WRITE).status == 200
    refused = guard.ask("GET", "/v1/model", token=READ)
    assert refused.problem()["type"] == "/problems/too-many-requests"
    assert int(refused.headers["retry-after"]) == 1


def test_guesses_of_tokens_count_towards_the_rate_of_the_client(bench: Make) -> None:
    guard = bench(tokens=ALL_TOKENS, rate=3.0)
    guesses = [guard.ask("GET", "/v1/model", token=f"guess-number-{number:04d}").status for number in range(5)]
    assert guesses == [401] * 3 + [429] * 2
    assert guard.ask("GET", "/v1/model", client="192.0.2.8").status == 401


def test_addresses_of_one_network_of_ipv6_share_a_rate(bench: Make) -> None:
    guard = bench(rate=2.0)
    statuses = [guard.ask("GET", "/v1/model", client=f"2001:db8::{number}").status for number in range(1, 5)]
    assert statuses == [200, 200, 429, 429]
    assert guard.ask("GET", "/v1/model", client="2001:db8:0:1::1").status == 200


# -- other origins and hosts ------------------------------------------------------------------------------------------


def test_cors_is_closed_by_default(bench: Make) -> None:
    guard = bench()
    reply = guard.ask("GET", "/v1/model", headers={"origin": SHOP})
    assert not [name for name in reply.headers if name.startswith("access-control")]
    asked = {"origin": SHOP, "access-control-request-method": "POST"}
    assert guard.ask("OPTIONS", "/v1/events", headers=asked).status == 405


def test_page_of_another_origin_may_not_write(bench: Make) -> None:
    guard = bench()
    for origin in (SHOP, "null", "http://127.0.0.1:9000"):
        assert guard.ask("POST", "/v1/events", headers={"origin": origin}).status == 403
    assert guard.ask("POST", "/v1/events", headers={"origin": "http://127.0.0.1:8000"}).status == 200


def test_allowed_origin_may_read_and_write(bench: Make) -> None:
    guard = bench(origins=(SHOP,))
    reply = guard.ask("POST", "/v1/events", headers={"origin": SHOP})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, SHOP)
    preflight = guard.ask("OPTIONS", "/v1/events", headers={"origin": SHOP, "access-control-request-method": "POST"})
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    other = guard.ask("GET", "/v1/model", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers
    assert other.headers["vary"] == "origin"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LOCALHOST", "127.0.0.2"])
def test_names_of_this_machine_are_answered(bench: Make, host: str) -> None:
    assert bench().ask("GET", "/v1/model", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "a/b", "[::1", "::1::"]
)
def test_name_that_was_made_to_resolve_here_is_refused(bench: Make, host: str) -> None:
    guard = bench()
    assert guard.ask("GET", "/v1/model", headers={"host": host}).problem()["status"] == 421
    assert bench(tokens=ALL_TOKENS).ask("GET", "/v1/model", headers={"host": host}, token=READ).status == 200
    assert bench(host="0.0.0.0").ask("GET", "/v1/model", headers={"host": host}).status == 200


@pytest.mark.parametrize("text", ["*", "shop.example", "https://", "https://a.example/path", "https://u@a.example", ""])
def test_origin_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="--origin is"):
        check_origin(text)


def test_origin_is_compared_without_case_and_slash() -> None:
    assert check_origin("HTTPS://Shop.Example/") == SHOP
