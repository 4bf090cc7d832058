"""Requests, retries and errors of the client, against a server that answers by a script; both clients behave alike."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgcf
from dgcf.client import AccessError, AnswerError, NotFoundError, RefusedError, Retries, ServiceError, UnavailableError
from dgcf.client import calls as client_calls
from dgcf.errors import ConfigError
from tests.serve.flaky import CLOSE, SILENCE, Answer, FlakyServer

FAST = Retries(attempts=3, first=0.01)
PARQUET = b"PAR1" + bytes(200_000) + b"PAR1"
Ask = Callable[..., Any]


def ask_sync(url: str, method: str, *arguments: Any, options: dict[str, Any] | None = None, **named: Any) -> Any:
    with dgcf.Client(url, **{"retries": FAST, **(options or {})}) as client:
        return getattr(client, method)(*arguments, **named)


def ask_async(url: str, method: str, *arguments: Any, options: dict[str, Any] | None = None, **named: Any) -> Any:
    async def run() -> Any:
        async with dgcf.AsyncClient(url, **{"retries": FAST, **(options or {})}) as client:
            return await getattr(client, method)(*arguments, **named)

    return asyncio.run(run())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Call a method of a new client of one of the two kinds."""
    monkeypatch.delenv("DGCF_TOKEN", raising=False)
    found: Ask = request.param
    return found


def problem(status: int, kind: str, **more: Any) -> Answer:
    document = {"type": f"/problems/{kind}", "title": "T", "status": status, "detail": f"it is {kind}.", **more}
    return Answer(status, document, {"content-type": "application/problem+json", "x-request-id": "r-1"})


# -- retries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [CLOSE, problem(503, "not-ready"), problem(429, "rate"), Answer(502, b"<html>"), Answer(200, {"a": 1}, cut=3)],
    ids=["closed", "503", "429", "502", "cut"],
)
def test_call_is_repeated_until_it_succeeds(ask: Ask, failure: Answer | str) -> None:
    with FlakyServer([failure, failure, Answer(body={"user": "a"})]) as server:
        assert ask(server.url, "recommend", "a") == {"user": "a"}
    assert len(server.requests) == 3


def test_call_is_repeated_after_silence(ask: Ask) -> None:
    with FlakyServer([SILENCE, Answer(body={"user": "a"})]) as server:
        assert ask(server.url, "recommend", "a", options={"timeout": 0.2}) == {"user": "a"}


def test_attempts_are_limited(ask: Ask) -> None:
    with FlakyServer([problem(503, "store-full")]) as server, pytest.raises(UnavailableError) as caught:
        ask(server.url, "send_event", "a", "b")
    assert len(server.requests) == 3
    assert (caught.value.status, caught.value.kind) == (503, "store-full")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_refusal_is_not_repeated(ask: Ask, status: int) -> None:
    with FlakyServer([problem(status, "kind")]) as server, pytest.raises(ServiceError) as caught:
        ask(server.url, "recommend", "a")
    assert len(server.requests) == 1
    assert caught.value.status == status


def test_reload_is_not_repeated(ask: Ask) -> None:
    with FlakyServer([CLOSE]) as server, pytest.raises(UnavailableError):
        ask(server.url, "reload")
    assert len(server.requests) == 1


def test_repeated_events_have_the_same_keys(ask: Ask) -> None:
    script = [CLOSE, problem(503, "not-ready"), Answer(201, {"stored": 2, "duplicates": 0, "keys": ["a", "b"]})]
    events = [{"user": "a", "item": "1"}, {"user": "a", "item": "2", "key": "mine"}, {"user": "b", "item": np.int64(3)}]
    with FlakyServer(script) as server:
        ask(server.url, "send_events", events)
        ask(server.url, "send_events", events)
    bodies = [request.body for request in server.requests]
    assert bodies[0] == bodies[1] == bodies[2] != bodies[3]
    sent = json.loads(bodies[0])["events"]
    assert sent[1]["key"] == "mine"
    assert sent[2]["item"] == 3
    assert len({event["key"] for body in bodies for event in json.loads(body)["events"]}) == 5


def test_attempts_of_a_call_have_one_request_id(ask: Ask) -> None:
    with FlakyServer([CLOSE, CLOSE, Answer()]) as server:
        ask(server.url, "model")
        ask(server.url, "model")
    ids = [request.headers["x-request-id"] for request in server.requests]
    assert ids[0] == ids[1] == ids[2] != ids[3]


@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
def test_retry_after_is_honoured(ask: Ask, as_date: bool) -> None:
    # A date has whole seconds, so that one two seconds ahead is at least one second ahead.
    value = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True) if as_date else "1"
    with FlakyServer([Answer(429, {}, {"retry-after": value}), Answer()]) as server:
        began = time.monotonic()
        ask(server.url, "model")
        assert 0.9 < time.monotonic() - began < 5


def test_retry_after_beyond_the_longest_pause_fails_at_once(ask: Ask) -> None:
    with (
        FlakyServer([Answer(503, {}, {"retry-after": "3600"}), Answer()]) as server,
        pytest.raises(UnavailableError) as caught,
    ):
        ask(server.url, "model")
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


@given(attempt=st.integers(1, 200), first=st.floats(0.001, 1), longest=st.floats(1, 60), after=st.floats(0, 60))
def test_pauses_double_within_their_bounds(attempt: int, first: float, longest: float, after: float) -> None:
    retries = Retries(attempts=150, first=first, longest=longest)
    pause = retries.pause(attempt, after)
    if attempt >= 150 or after > longest:
        assert pause is None
    else:
        backoff = min(first * 2.0 ** (attempt - 1), longest)
        assert pause is not None
        assert after + backoff / 2 <= pause <= after + backoff


def test_pauses_differ() -> None:
    assert len({Retries().pause(1, None) for _ in range(20)}) == 20


@pytest.mark.parametrize("method", ["remove_event", "delete_item", "forget_user"])
def test_deletion_whose_answer_was_lost_succeeds(ask: Ask, method: str) -> None:
    with FlakyServer([CLOSE, problem(404, "not-found")]) as server:
        found = ask(server.url, method, "a")
    assert found == ({"user": "a", "events": None} if method == "forget_user" else None)
    with FlakyServer([problem(503, "not-ready"), problem(404, "not-found")]) as server, pytest.raises(NotFoundError):
        ask(server.url, method, "a")


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AccessError), (403, AccessError), (404, NotFoundError), (409, RefusedError), (422, RefusedError),
     (500, UnavailableError), (301, AnswerError)],
)  # fmt: skip
def test_error_has_what_the_problem_document_says(ask: Ask, status: int, kind: type[ServiceError]) -> None:
    faults = [{"field": "k", "detail": "too large"}]
    with FlakyServer([problem(status, "some-kind", errors=faults)]) as server, pytest.raises(kind) as caught:
        ask(server.url, "recommend", "a")
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is kind
    assert (error.status, error.kind, error.detail) == (status, "some-kind", "it is some-kind.")
    assert (error.request_id, error.errors) == ("r-1", faults)
    assert str(error) == f"it is some-kind. (status {status}, kind some-kind, request r-1)"


def test_unreachable_service_is_named(ask: Ask) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=url) as caught:
            ask(url, "model")
    assert (caught.value.status, caught.value.kind) == (None, "connection")
    assert caught.value.request_id is not None


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b"", b"\xff"])
def test_answer_of_another_service_is_refused(ask: Ask, body: bytes) -> None:
    with FlakyServer([Answer(200, body)]) as server, pytest.raises(AnswerError, match="no JSON object"):
        ask(server.url, "recommend", "a")


def test_redirection_is_named_and_not_followed(ask: Ask) -> None:
    moved = Answer(308, b"", {"location": "https://elsewhere.test/"})
    with FlakyServer([moved]) as server, pytest.raises(AnswerError, match=r"redirection to https://elsewhere\.test/"):
        ask(server.url, "model", options={"token": "t" * 16})
    assert len(server.requests) == 1


def test_service_that_is_not_ready_is_no_error(ask: Ask) -> None:
    with FlakyServer([problem(503, "not-ready")]) as server:
        assert ask(server.url, "health") == {"ready": False, "detail": "it is not-ready."}
    with FlakyServer([Answer()]) as server:
        assert ask(server.url, "health") == {"ready": True, "detail": None}


# -- the token --------------------------------------------------------------------------------------------------------


def test_token_comes_from_argument_or_environment(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with FlakyServer([Answer()]) as server:
        ask(server.url, "model")
        monkeypatch.setenv("DGCF_TOKEN", "of-environment\n")
        ask(server.url, "model")
        ask(server.url, "model", options={"token": "of-argument"})
    tokens = [request.headers.get("authorization") for request in server.requests]
    assert tokens == [None, "Bearer of-environment", "Bearer of-argument"]


@pytest.mark.parametrize("token", ["geheim ☃", "geheim\r\nX-Evil: 1", "geheim geheim"])
def test_malformed_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dgcf.Client("http://127.0.0.1:1", token)
    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(dgcf.Client("http://127.0.0.1:1", "geheim"))


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "ftp://a", "http://", "ftp://me:geheim@a", "http://a?b=c"])
def test_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dgcf.Client(address)
    assert "geheim" not in str(caught.value)


# -- requests ---------------------------------------------------------------------------------------------------------


IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from([".", "..", "...", "a/b", "%2F"])


@given(raw=IDS | st.integers())
def test_id_is_one_segment_of_the_path(raw: str | int) -> None:
    with dgcf.Client("http://h/prefix/") as client:
        request, steps = client._exchange(client_calls.explain(raw, raw))
        steps.close()
    path = request.url.raw_path.decode()
    _, prefix, version, route, *segments = path.split("/")
    assert (prefix, version, route) == ("prefix", "v1", "explain")
    assert [unquote(part, errors="strict") for part in segments] == [str(raw)] * 2


@pytest.mark.parametrize("raw", ["", "\ud800", True, None, 1.5])
def test_what_is_no_id_is_refused(raw: Any) -> None:
    for build in (client_calls.recommend, client_calls.recommend_for):
        if (raw, build) == ("", client_calls.recommend_for):
            continue  # in a body, it is for the service to say
        with pytest.raises(ConfigError):
            build(raw)


def test_one_id_is_a_list_of_one() -> None:
    assert json.loads(client_calls.recommend_for("Toy Story", 3).body or b"") == {
        "items": ["Toy Story"], "negative": [3], "k": 10, "seen": False, "why": False,
    }  # fmt: skip


def test_time_needs_a_zone() -> None:
    with pytest.raises(ConfigError, match="time zone"):
        client_calls.send_event("a", "b", time=datetime(2026, 1, 1))
    body = client_calls.send_event("a", "b", time=datetime(2026, 1, 1, tzinfo=UTC)).body
    assert json.loads(body or b"")["time"] == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize("weight", [float("nan"), np.float32("inf"), object()])
def test_what_json_cannot_hold_is_refused(weight: Any) -> None:
    with pytest.raises(ConfigError, match="JSON"):
        client_calls.send_event("a", "b", weight=weight)
    assert b'"weight": 0.5' in (client_calls.send_event("a", "b", weight=np.float32(0.5)).body or b"")


# -- the export -------------------------------------------------------------------------------------------------------


def test_export_is_written_whole(ask: Ask, tmp_path: Path) -> None:
    target = tmp_path / "events.parquet"
    with FlakyServer([Answer(200, PARQUET, cut=90_000), problem(503, "busy"), Answer(200, PARQUET)]) as server:
        assert ask(server.url, "export_events", target) == target
    assert target.read_bytes() == PARQUET
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("answer", [Answer(200, PARQUET, cut=90_000), Answer(200, PARQUET[:-1]), problem(403, "f")])
def test_failed_export_leaves_the_old_file(ask: Ask, tmp_path: Path, answer: Answer) -> None:
    target = tmp_path / "events.parquet"
    target.write_bytes(b"old")
    with FlakyServer([answer]) as server, pytest.raises(ServiceError):
        ask(server.url, "export_events", str(target))
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


# -- the package ------------------------------------------------------------------------------------------------------


def test_both_clients_have_the_same_methods_with_the_same_signatures() -> None:
    names = {name for name in vars(client_calls) if name in dir(dgcf.Client) and not name.startswith("_")}
    assert len(names) == 25
    for name in names:
        assert getattr(dgcf.Client, name) is getattr(dgcf.AsyncClient, name) is getattr(client_calls, name)
        assert getattr(dgcf.Client, name).__doc__


def in_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_client_is_light() -> None:
    heavy = "{'torch', 'numpy', 'scipy', 'fastapi', 'duckdb'}"
    assert (
        in_new_process(f"import dgcf, sys; dgcf.Client, dgcf.AsyncClient; print({heavy} & set(sys.modules))") == "set()"
    )


def test_missing_httpx_is_named() -> None:
    code = """
import sys
sys.modules["httpx"] = None
import dgcf
from dgcf.errors import ConfigError
from dgcf import *
try:
    dgcf.Client
except ConfigError as error:
    print(error)
"""
    assert "pip install 'dgcf[client]'" in in_new_process(code)
