"""Servers that share a PostgreSQL database: what one stores, the others see, also if one or the database dies."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from dgcf.serve.events.store import EventStore
from tests import postgres
from tests.serve.service import Service, wait_for
from tests.serve.stores import new_schema
from tests.serve.test_server_durability import Sender

VISIBLE_SECONDS = 1.0
SECONDS = 3.0


@pytest.fixture
def url(database: postgres.Server) -> str:
    return new_schema(database.dsn)


@pytest.fixture
def own() -> Iterator[postgres.Server]:
    """A PostgreSQL server that a test may stop."""
    with postgres.server() as server:
        yield server


def serving(model: Path, data: Path, url: str, *words: str, **options: Any) -> Service:
    return Service(model, data, *words, environment={"DGCF_EVENTS_URL": url}, **options)


def keys_of(url: str) -> list[str]:
    with EventStore.open(url) as store:
        return [event.key for page in store.iterate() for event in page]


class Asker:
    """Asks for lists without a pause; remembers each answer that is not 200, and the longest time."""

    def __init__(self, service: Service) -> None:
        self.problems: list[str] = []
        self.answers, self.slowest = 0, 0.0
        self._service, self._end = service, threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        users = itertools.cycle(f"u{number:05d}" for number in range(150))
        with httpx.Client(base_url=self._service.url, timeout=10, trust_env=False) as http:
            while not self._end.is_set():
                began = time.monotonic()
                try:
                    reply = http.get(f"/v1/recommend/{next(users)}")
                    if reply.status_code != 200:
                        self.problems.append(reply.text)
                except httpx.HTTPError as problem:
                    self.problems.append(repr(problem))
                self.answers += 1
                self.slowest = max(self.slowest, time.monotonic() - began)

    def finish(self) -> None:
        self._end.set()
        self._thread.join()


def seconds_until_visible(sender: Service, reader: Service, number: int) -> float:
    """Return the time from the acknowledgement of an event by one server until another one's answer has it."""
    user = f"visitor {number}"
    with httpx.Client(base_url=reader.url, timeout=10, trust_env=False) as http:
        assert http.get(f"/v1/recommend/{user}").json()["source"] == "popular"
        event = {"user": user, "item": "i00001", "key": f"visible-{number}"}
        assert sender.request("POST", "/v1/events", json=event).status_code == 201
        began = time.monotonic()
        while http.get(f"/v1/recommend/{user}").json()["source"] != "events":
            assert time.monotonic() - began < 20
        return time.monotonic() - began


def test_server_sees_its_own_events_at_once_and_those_of_others_within_a_second(
    model_file: Path, tmp_path: Path, url: str
) -> None:
    with (
        serving(model_file, tmp_path / "a", url, "--workers", "2") as first,
        serving(model_file, tmp_path / "b", url) as second,
    ):
        assert "geheim" not in Path(f"/proc/{first.pid}/cmdline").read_text()
        for pid in first.workers():
            assert "geheim" not in Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/environ").read_text()
        with first.client() as one:  # each request is a connection, so both workers answer
            for number in range(10):
                one.send_event(f"own {number}", "i00001")
                assert first.get(f"/v1/recommend/own {number}").json()["source"] == "events"
        times = [seconds_until_visible(first, second, number) for number in range(8)]
        print(f"\nseen by another server after at most {max(times):.3f} s")
        assert max(times) < VISIBLE_SECONDS
        assert first.get("/v1/operations").json()["events"]["stored"] == 18
        assert first.get("/v1/operations").json()["events"]["store_bytes"] > 0
        assert second.request("DELETE", "/v1/users/own 0").json()["events"] == 1
        wait_for(lambda: first.get("/v1/recommend/own 0").json()["source"] == "popular", VISIBLE_SECONDS)
        assert "geheim" not in first.log_file.read_text() + second.log_file.read_text()


@pytest.mark.slow
def test_killed_server_loses_nothing_and_the_other_one_answers(model_file: Path, tmp_path: Path, url: str) -> None:
    with serving(model_file, tmp_path / "b", url) as second:
        first = serving(model_file, tmp_path / "a", url).start()
        try:
            asker = Asker(second)
            senders = [Sender(first, "a"), Sender(second, "b")]
            times = [seconds_until_visible(first, second, number) for number in range(10)]
            time.sleep(SECONDS)
            first.kill()
            acknowledged = len(senders[1].acknowledged)
            wait_for(lambda: len(senders[1].acknowledged) > acknowledged + 30)
        finally:
            first.kill()
            asker.finish()
            for sender in senders:
                sender.finish()
        sent = senders[0].acknowledged | senders[1].acknowledged
        stored = keys_of(url)
        assert asker.problems == []
        assert sent <= set(stored)
        assert len(stored) == len(set(stored))
        print(
            f"\n{len(sent)} events acknowledged, {len(sent - set(stored))} lost; {asker.answers} lists of the other "
            f"one, {len(asker.problems)} failed; seen by the other one after at most {max(times):.3f} s"
        )
        assert max(times) < VISIBLE_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_database_that_stops_and_starts_again(
    model_file: Path, tmp_path: Path, own: postgres.Server, mode: str
) -> None:
    url = new_schema(own.dsn)
    with ExitStack() as stack:
        services = [stack.enter_context(serving(model_file, tmp_path / name, url)) for name in "ab"]
        askers, senders = (
            [Asker(one) for one in services],
            [Sender(one, f"s{number}") for number, one in enumerate(services)],
        )
        try:
            time.sleep(SECONDS)
            own.stop(mode)
            for one in services:
                check_down(one)
            time.sleep(SECONDS)
            own.start()
            began = time.monotonic()
            event = {"user": "u00001", "item": "i00001"}
            for one in services:
                wait_for(lambda one=one: one.request("POST", "/v1/events", json=event).status_code == 201)
            back = time.monotonic() - began
            time.sleep(1.0)
        finally:
            for one in [*askers, *senders]:
                one.finish()
        assert [problem for one in askers for problem in one.problems] == []
        acknowledged = set().union(*(sender.acknowledged for sender in senders))
        stored = keys_of(url)
        assert acknowledged <= set(stored)
        assert len(stored) == len(set(stored))
        times = [seconds_until_visible(services[0], services[1], number) for number in range(5)]
        assert max(times) < VISIBLE_SECONDS
        print(
            f"\n{mode}: {len(acknowledged)} events acknowledged, 0 lost; writing again after {back:.2f} s; "
            f"{sum(one.answers for one in askers)} lists, 0 failed, the slowest after "
            f"{max(one.slowest for one in askers):.2f} s"
        )


def check_down(service: Service) -> None:
    """Check that writing is refused, and that reading goes on."""
    event = {"user": "u00001", "item": "i00001"}
    refusal = service.request("POST", "/v1/events", json=event)
    assert refusal.status_code == 503
    assert refusal.json()["type"] == "/problems/store-down"
    assert int(refusal.headers["retry-after"]) > 0
    assert "geheim" not in refusal.text
    for method, path in (("PUT", "/v1/items/i00001"), ("DELETE", "/v1/events/x"), ("GET", "/v1/users/u00001")):
        assert service.request(method, path, json={} if method == "PUT" else None).status_code == 503, path
    for path in ("/v1/recommend/u00001", "/v1/items?q=the", "/v1/operations", "/v1/model", "/readyz", "/metrics"):
        assert service.get(path).status_code == 200, path


@pytest.mark.slow
def test_server_does_not_start_without_the_database(model_file: Path, tmp_path: Path, own: postgres.Server) -> None:
    own.stop()
    words = [sys.executable, "-m", "dgcf", "serve", str(model_file), "--data", str(tmp_path / "data"), "--port", "0"]
    done = subprocess.run(
        words, env={**os.environ, "DGCF_EVENTS_URL": own.dsn}, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(errors) == 1
    assert "does not answer" in errors[0]
    assert "Traceback" not in done.stderr
    assert "geheim" not in done.stderr
