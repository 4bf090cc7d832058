"""Events that were acknowledged survive kills, a full disk and a clock that goes back."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from dgcf.serve.events.store import EventStore
from tests.serve.service import Service, wait_for

SENDERS = 4


class Sender:
    """Sends events from several threads, three in a call; remembers which keys were sent, and which acknowledged.

    Events of ``again`` are sent first: those of an earlier service that may have got them or not.
    """

    def __init__(self, service: Service, name: str, again: Collection[str] = ()) -> None:
        self.acknowledged: set[str] = set()
        self.sent: set[str] = set()
        self.end = threading.Event()
        self._service, self._name = service, name
        self._numbers = itertools.count()
        self._again = sorted(again)
        self._pool = ThreadPoolExecutor(SENDERS)
        self._running = [self._pool.submit(self._send, number) for number in range(SENDERS)]

    def _send(self, number: int) -> None:
        """Send until an answer is missing for a while."""
        again = self._again[number::SENDERS]
        failures = 0
        with httpx.Client(base_url=self._service.url, timeout=10, trust_env=False) as http:
            while not self.end.is_set() and failures < 100:
                keys, again = again[:3], again[3:]
                keys = keys or [f"{self._name}-{next(self._numbers)}" for _ in range(3)]
                events = [{"user": f"user-{key[-1]}", "item": "i00001", "key": key} for key in keys]
                self.sent.update(keys)
                try:
                    reply = http.post("/v1/events", json={"events": events})
                except httpx.HTTPError:
                    failures += 1
                    time.sleep(0.02)
                    continue
                failures = 0
                if reply.status_code in (200, 201):
                    assert reply.json()["keys"] == keys
                    self.acknowledged.update(keys)

    def finish(self) -> None:
        self.end.set()
        for one in self._running:
            one.result(40)
        self._pool.shutdown()


def stored_keys(data: Path) -> list[str]:
    """Return the keys of all events in the order of their storage, by the library."""
    with EventStore.open(data / "events.sqlite3") as store:
        return [event.key for page in store.iterate() for event in page]


def check(data: Path, acknowledged: set[str], sent: set[str]) -> None:
    keys = stored_keys(data)
    assert len(keys) == len(set(keys))
    assert acknowledged <= set(keys) <= sent


KILLS = [2, pytest.param(10, marks=pytest.mark.slow)]


@pytest.mark.parametrize("kills", KILLS)
def test_acknowledged_events_survive_kills_of_the_whole_service(model_file: Path, tmp_path: Path, kills: int) -> None:
    """Each service continues with the events of the one before, and gets what that did not acknowledge once more."""
    draw = random.Random(kills)
    acknowledged: set[str] = set()
    sent: set[str] = set()
    workers = "2" if kills > 2 else "1"
    for kill in range(kills):
        with Service(model_file, tmp_path / "data", "--workers", workers) as service:
            assert service.get("/v1/operations").json()["events"]["stored"] >= len(acknowledged)
            repeated = sent - acknowledged
            sender = Sender(service, f"of-{kill}", repeated)
            wait_for(lambda sender=sender, repeated=repeated: len(sender.acknowledged) > len(repeated) + 10)
            time.sleep(draw.uniform(0.0, 0.5))
            service.kill()
            sender.finish()
        assert repeated <= sender.acknowledged
        acknowledged |= sender.acknowledged
        sent |= sender.sent
        check(tmp_path / "data", acknowledged, sent)


@pytest.mark.parametrize("kills", KILLS)
def test_acknowledged_events_survive_kills_of_workers(model_file: Path, tmp_path: Path, kills: int) -> None:
    draw = random.Random(100 + kills)
    with Service(model_file, tmp_path / "data", "--workers", "2") as service:
        sender = Sender(service, "of-all")
        for _ in range(kills):
            seen = len(sender.acknowledged)
            wait_for(lambda seen=seen: len(sender.acknowledged) > seen + 10, 60)
            time.sleep(draw.uniform(0.0, 0.5))
            os.kill(draw.choice(service.workers()), signal.SIGKILL)
        wait_for(lambda: len(service.workers()) == 2, 60)
        sender.finish()
        check(tmp_path / "data", sender.acknowledged, sender.sent)
        stored = len(stored_keys(tmp_path / "data"))
        assert service.get("/v1/operations").json()["events"]["stored"] >= stored


# -- a full disk ------------------------------------------------------------------------------------------------------


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 3 MB; skipped where a disk cannot be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(disk)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("needs permission to mount")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=20)


def fill(service: Service) -> httpx.Response:
    """Send events until one is refused, and return the refusal."""
    with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as http:
        for number in range(2_000):
            events = [
                {"user": f"{'u' * 200}{number}", "item": "i" * 200, "key": f"{number}-{part}"} for part in range(200)
            ]
            reply = http.post("/v1/events", json={"events": events})
            if reply.status_code != 201:
                return reply
    raise AssertionError("the disk did not fill up")


def check_full(service: Service) -> None:
    """Check that writing is refused with a problem and that reading goes on."""
    refusal = fill(service)
    problem: dict[str, Any] = refusal.json()
    assert refusal.status_code == 503
    assert problem["type"] == "/problems/store-full"
    assert "disk" in problem["detail"]
    assert int(refusal.headers["retry-after"]) > 0
    for path in ("/v1/recommend/u00001", "/v1/items?q=the", "/v1/operations", "/readyz", "/metrics"):
        assert service.get(path).status_code == 200, path
    assert not [line for line in service.log() if "traceback" in line]
    assert len(service.workers()) == 1


def test_full_disk_refuses_events_and_answers_reads_until_there_is_room(model_file: Path, small_disk: Path) -> None:
    service = Service(model_file, small_disk / "data")
    service.log_file = small_disk.parent / "service.log"
    (small_disk / "ballast").write_bytes(b"x" * 500_000)
    with service:
        check_full(service)
        (small_disk / "ballast").unlink()
        event = {"user": "u00001", "item": "i00001", "key": "after"}
        wait_for(lambda: service.request("POST", "/v1/events", json=event).status_code in (200, 201))
        assert service.request("DELETE", "/v1/events/after").status_code == 204


def test_limit_of_file_size_is_a_full_disk(model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", before=small_files) as service:
        check_full(service)


# -- a clock that goes back -------------------------------------------------------------------------------------------


FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def test_times_that_go_back_do_not_change_the_order_of_events(model_file: Path, tmp_path: Path) -> None:
    """The event of a user for an item that was received last counts, whatever its time says."""
    with Service(model_file, tmp_path / "data") as service, service.client() as one:

        def listed() -> list[Any]:
            return [row["item"] for row in one.recommend("u00001", k=160, seen=True)["recommendations"]]

        item = listed()[0]
        one.send_event("u00001", item, "dislike", time=2_000_000_000.0, key="later")
        assert item not in listed()
        one.send_event("u00001", item, "like", time=1_000_000_000.0, key="earlier")
        assert item in listed()
    assert stored_keys(tmp_path / "data") == ["later", "earlier"]


@pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime")
def test_service_that_is_started_with_a_clock_in_the_past_goes_on(model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data") as service, service.client() as one:
        one.send_event("new", "i00001", key="a")
        before = one.recommend("new")["recommendations"]
    past = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "-40d", "DONT_FAKE_MONOTONIC": "1"}
    with (
        Service(model_file, tmp_path / "data", "--retention", "30d", environment=past) as service,
        service.client() as one,
    ):
        assert one.recommend("new")["recommendations"] == before
        one.send_event("new", "i00002", key="b")
        assert one.recommend("new")["recommendations"] != before
        assert service.get("/v1/operations").json()["uptime_seconds"] < 60
    assert stored_keys(tmp_path / "data") == ["a", "b"]
