"""The processes of the service: starting, stopping under load, reloading under load, and workers that die."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from dgcf import client
from dgcf.recommend import load
from tests.serve.models import small_model
from tests.serve.service import ADMIN, Service, tokens_file, wait_for

CLIENTS = 8


@pytest.fixture(scope="module")
def second_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("second") / "films.dgcf", seed=1)


@pytest.fixture
def served(model_file: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be replaced by a test."""
    return Path(shutil.copy(model_file, tmp_path / "served.dgcf"))


class Load:
    """Requests from several threads, each with a connection of its own, until it is stopped."""

    def __init__(self, service: Service, call: Callable[[httpx.Client, int], httpx.Response]) -> None:
        self.replies: list[httpx.Response] = []
        self.errors: list[Exception] = []
        self.end = threading.Event()
        self._service, self._call = service, call
        self._pool = ThreadPoolExecutor(CLIENTS)

    def _ask(self, number: int) -> None:
        with httpx.Client(base_url=self._service.url, timeout=30, trust_env=False) as http:
            place = number
            while not self.end.is_set():
                try:
                    self.replies.append(self._call(http, place))
                except httpx.HTTPError as problem:
                    self.errors.append(problem)
                    time.sleep(0.02)
                place += CLIENTS

    def __enter__(self) -> Load:
        self._running = [self._pool.submit(self._ask, number) for number in range(CLIENTS)]
        wait_for(lambda: len(self.replies) > 3 * CLIENTS)
        return self

    def __exit__(self, *problem: object) -> None:
        self.end.set()
        for one in self._running:
            one.result(40)
        self._pool.shutdown()


def recommend(http: httpx.Client, place: int) -> httpx.Response:
    return http.get(f"/v1/recommend/u{place % 150:05d}", params={"k": 5})


def ids(reply: httpx.Response) -> list[str]:
    return [row["item"] for row in reply.json()["recommendations"]]


# -- reloading --------------------------------------------------------------------------------------------------------


def lists_of(path: Path) -> dict[str, list[str]]:
    """Return the list of each user, by a recommender without a service."""
    rec = load(path)
    return {user: [row["item"] for row in rec.recommend(user, 5)] for user in (f"u{n:05d}" for n in range(150))}


def test_reloads_under_load_fail_no_request_and_mix_no_models(
    served: Path, model_file: Path, second_model: Path, tmp_path: Path
) -> None:
    expected = [lists_of(model_file), lists_of(second_model)]
    assert expected[0] != expected[1]
    tokens = tokens_file(tmp_path, "admin")
    with Service(served, tmp_path / "data", "--workers", "2", "--tokens", str(tokens)) as service:
        admin = service.client(ADMIN)
        with Load(service, recommend) as load:
            for number, source in enumerate((second_model, model_file, second_model), 2):
                shutil.copy(source, served.with_suffix(".new"))
                served.with_suffix(".new").replace(served)
                assert admin.reload()["version"] == number
                seen = len(load.replies)
                wait_for(lambda seen=seen: len(load.replies) > seen + 50)
        admin.close()
        assert load.errors == []
        assert {reply.status_code for reply in load.replies} == {200}
        versions = set()
        for reply in load.replies:
            answer = reply.json()
            versions.add(answer["model"])
            assert ids(reply) == expected[(answer["model"] - 1) % 2][answer["user"]]
        assert versions == {1, 2, 3, 4}


def test_hangup_reloads_the_model_in_all_workers_and_refuses_a_broken_one(
    served: Path, second_model: Path, tmp_path: Path
) -> None:
    with Service(served, tmp_path / "data", "--workers", "2") as service:
        shutil.copy(second_model, served)
        service.signal(signal.SIGHUP)
        service.logged("model reloaded")
        wait_for(lambda: {service.get("/v1/model").json()["version"] for _ in range(8)} == {2})
        served.write_bytes(b"broken")
        service.signal(signal.SIGHUP)
        (line,) = service.logged("model refused")
        assert "model" in line["error"]
        assert {service.get("/v1/model").json()["version"] for _ in range(8)} == {2}


# -- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_stop_under_load_finishes_the_requests_under_way(model_file: Path, tmp_path: Path, workers: int) -> None:
    """Before the stop nothing fails. After it a connection may be refused, but no request is cut."""
    with Service(model_file, tmp_path / "data", "--workers", str(workers)) as service:
        with Load(service, recommend) as load:
            service.signal(signal.SIGTERM)
            assert service.wait() == 0
        assert {reply.status_code for reply in load.replies} == {200}
        cut = [problem for problem in load.errors if not isinstance(problem, httpx.ConnectError)]
        assert cut == []
        assert load.errors
    lines = [line for line in service.log() if line["event"] == "request"]
    assert len(lines) == len(load.replies)
    assert not any(line["level"] == "error" for line in service.log())


def test_stop_waits_for_events_that_are_being_stored(model_file: Path, tmp_path: Path) -> None:
    def send(http: httpx.Client, place: int) -> httpx.Response:
        return http.post("/v1/events", json={"user": "u", "item": "i00001", "key": f"key-{place}"})

    with Service(model_file, tmp_path / "data") as service:
        with Load(service, send) as load:
            service.signal(signal.SIGTERM)
            assert service.wait() == 0
        assert {reply.status_code for reply in load.replies} == {201}
        acknowledged = {reply.json()["keys"][0] for reply in load.replies}
    with Service(model_file, tmp_path / "data") as service:
        user = service.get("/v1/users/u?limit=1000").json()
        assert service.get("/v1/operations").json()["events"]["stored"] == len(acknowledged)
        assert user["events"]


def test_second_signal_ends_at_once(model_file: Path, tmp_path: Path) -> None:
    head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    with (
        Service(model_file, tmp_path / "data") as service,
        socket.create_connection(service.address, timeout=10) as slow,
    ):
        slow.sendall(head)
        wait_for(lambda: "dgcf_requests_in_flight 2.0" in service.get("/metrics").text)
        started = time.monotonic()
        service.signal(signal.SIGTERM)
        time.sleep(1.0)
        assert service.workers()
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        assert time.monotonic() - started < 8


# -- processes that die -----------------------------------------------------------------------------------------------


def test_worker_that_is_killed_is_started_again_and_counters_go_on(model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", "--workers", "2") as service:
        before = service.workers()
        with Load(service, recommend) as load:
            os.kill(before[0], signal.SIGKILL)
            wait_for(lambda: len(service.workers()) == 2 and service.workers() != before)
            wait_for(lambda: service.get("/v1/operations").json()["ready_workers"] == 2)
            seen = len(load.replies)
            wait_for(lambda: len(load.replies) > seen + 50)
        assert before[1] in service.workers()
        assert {reply.status_code for reply in load.replies} == {200}
        assert len(load.errors) <= CLIENTS  # those that it was answering
        (line,) = service.logged("worker ended")
        assert "SIGKILL" in line["how"]
        route = service.get("/v1/operations").json()["requests"]["by_route"][0]
        assert route["route"] == "/v1/recommend/{user}"
        assert len(load.replies) <= route["requests"] <= len(load.replies) + len(load.errors)
        assert "dgcf_worker_restarts_total 1.0" in service.get("/metrics").text


def test_only_worker_is_replaced_while_clients_wait(model_file: Path, tmp_path: Path) -> None:
    """The socket stays open, so a request that comes meanwhile is answered by the new worker."""
    with Service(model_file, tmp_path / "data") as service:
        os.kill(service.workers()[0], signal.SIGKILL)
        with client.Client(service.url, retries=client.Retries(attempts=1), timeout=30, trust_env=False) as one:
            assert one.recommend("u00001")["model"] == 1
        assert service.get("/v1/model").json()["version"] == 1


def test_workers_end_with_their_supervisor(model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", "--workers", "2") as service:
        workers = service.workers()
        os.kill(service.pid, signal.SIGKILL)
        service.wait()
        wait_for(lambda: not any(_is_running(pid) for pid in workers))
    with Service(model_file, tmp_path / "data") as service:
        assert service.get("/readyz").status_code == 200


def _is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except OSError:
        return False


def test_rate_is_shared_by_all_workers(model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", "--workers", "2", "--rate", "2") as service:
        started = time.monotonic()
        statuses = [service.get("/v1/model").status_code for _ in range(40)]
        elapsed = time.monotonic() - started
        assert set(statuses) == {200, 429}
        assert 2 <= statuses.count(200) <= 2 + 2 * elapsed + 1
