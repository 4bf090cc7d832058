"""Counters that processes share, quantiles, the answer of /v1/operations, and the text for Prometheus."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dgcf.serve.server import board as boards
from dgcf.serve.server.board import BUCKETS, EDGES, ROUTE_INDEX, SAMPLES, Board, Field, State, quantile
from dgcf.serve.server.metrics import Metrics
from tests.serve.service import Service

RECOMMEND = ROUTE_INDEX["/v1/recommend/{user}"]


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.create(3)
    yield made
    made.close()


def metrics_of(board: Board, folder: Path) -> Metrics:
    return Metrics(board, lambda: 0, lambda: 7, lambda: (3, "2026-01-01T00:00:00+00:00"))


# -- the board --------------------------------------------------------------------------------------------------------


def test_counters_of_all_workers_are_summed_and_outlive_them(board: Board) -> None:
    for number in range(3):
        slot = board.slot(number)
        slot.reset(100 + number)
        slot.set(Field.STATE, State.READY)
        slot.count(RECOMMEND, 0, 200, 0.003)
        slot.add(Field.EVENTS_STORED, 10)
    board.set_absent(1)
    assert board.values(Field.STATE) == [State.READY, State.ABSENT, State.READY]
    board.slot(1).reset(999)
    board.slot(1).count(RECOMMEND, 0, 503, 0.2)
    assert board.requests()[RECOMMEND, 0].tolist() == [3, 0, 0, 1]
    assert board.total(Field.EVENTS_STORED) == 30
    assert board.latency()[RECOMMEND, -1] == 3 * 3_000_000 + 200_000_000


def test_another_process_writes_into_the_same_memory(board: Board) -> None:
    code = (
        "import sys\nfrom dgcf.serve.server.board import Board\nboard = Board(int(sys.argv[1]), 3)\n"
        f"for _ in range(500): board.slot(2).count({RECOMMEND}, 0, 200, 0.001)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code.replace("slot(2)", f"slot({number})"), str(board.descriptor)],
            pass_fds=[board.descriptor],
        )
        for number in (0, 2)
    ]
    assert [process.wait(60) for process in running] == [0, 0]
    assert board.requests().sum() == 1_000


@pytest.mark.parametrize(("status", "kind"), [(101, 0), (204, 0), (304, 1), (404, 2), (499, 2), (500, 3), (599, 3)])
def test_status_is_counted_by_its_class(board: Board, status: int, kind: int) -> None:
    board.slot(0).count(RECOMMEND, 0, status, 0.0)
    assert board.requests()[RECOMMEND, 0].argmax() == kind


def test_samples_beyond_their_number_replace_the_oldest(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr(boards.time, "monotonic", lambda: clock[0])
    for _ in range(SAMPLES + 100):
        board.slot(0).count(RECOMMEND, 0, 200, 0.001)
        board.sample()
        clock[0] += 1.0
    samples = board.samples()
    assert samples[-1].requests == SAMPLES + 100
    assert [after.requests - before.requests for before, after in pairwise(samples)] == [1] * (len(samples) - 1)
    assert len(samples) > 610


# -- quantiles --------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(1e-5, 70.0), min_size=1, max_size=300),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_quantile_is_within_the_bucket_of_the_exact_one(seconds: list[float], share: float) -> None:
    counts = np.zeros(BUCKETS, dtype=np.uint64)
    for value in seconds:
        counts[np.searchsorted(EDGES, value)] += 1
    found = quantile(counts.tolist(), share)
    assert found is not None
    exact = sorted(seconds)[math.ceil(share * len(seconds) - 1e-9) - 1]
    index = int(np.searchsorted(EDGES, exact))
    assert (EDGES[index - 1] if index else 0.0) <= found <= EDGES[index] * (1 + 1e-12)


def test_quantile_of_nothing_is_none_and_of_what_is_too_slow_the_last_edge() -> None:
    assert quantile([0] * BUCKETS, 0.5) is None
    assert quantile([0] * (BUCKETS - 1) + [5], 0.5) == EDGES[-1]


# -- /v1/operations ---------------------------------------------------------------------------------------------------


def test_history_has_rates_and_quantiles_of_each_interval(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [5_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    slot = board.slot(0)
    for second in range(41):
        board.sample()
        clock[0] += 1.0
        if second < 20:  # 2 requests a second, then 5 slower ones of which one fails
            for _ in range(2):
                slot.count(RECOMMEND, 0, 200, 0.0009)
        else:
            for status in (200, 200, 200, 200, 500):
                slot.count(RECOMMEND, 0, status, 0.09)
            slot.add(Field.EVENTS_STORED, 3)
    answer = metrics_of(board, tmp_path).operations()
    history = answer["history"]
    assert [point["requests_per_second"] for point in history] == [2.0, 2.0, 5.0, 5.0]
    assert [point["errors"] for point in history] == [0, 0, 10, 10]
    assert 0.8 <= history[0]["p50_ms"] <= 1.0
    assert 80 <= history[3]["p99_ms"] <= 100
    assert answer["requests"]["total"] == 2 * 20 + 5 * 21
    assert answer["requests"]["by_status"] == {"2xx": 40 + 4 * 21, "3xx": 0, "4xx": 0, "5xx": 21}
    (route,) = answer["requests"]["by_route"]
    assert (route["route"], route["requests"], route["errors"]) == ("/v1/recommend/{user}", 145, 21)
    assert answer["events"] == {"stored": 7, "last_minute": 63, "duplicates": 0, "store_bytes": 0}
    assert (answer["model"], answer["workers"]) == (3, 3)


def test_operations_without_any_request(board: Board, tmp_path: Path) -> None:
    answer = metrics_of(board, tmp_path).operations()
    assert answer["history"] == []
    assert answer["latency_ms"] == {"p50": None, "p90": None, "p99": None}
    assert answer["requests"]["by_route"] == []


def test_operations_is_of_all_workers(model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", "--workers", "2") as service:
        for number in range(30):
            service.get(f"/v1/recommend/u{number:05d}")
        event = {"user": "anna", "item": "i00001", "key": "once"}
        assert [service.request("POST", "/v1/events", json=event).json()["stored"] for _ in range(3)] == [1, 0, 0]
        service.get("/v1/nothing")
        for _ in range(6):  # whichever worker answers
            answer = service.get("/v1/operations").json()
            routes = {row["route"]: row["requests"] for row in answer["requests"]["by_route"]}
            assert routes["/v1/recommend/{user}"] == 30
            assert routes["unmatched"] == 1
            assert (answer["workers"], answer["ready_workers"]) == (2, 2)
            assert answer["events"]["stored"] == answer["events"]["last_minute"] == 1
            assert answer["events"]["duplicates"] == 2
            assert answer["memory_bytes"] > 50_000_000
        check_prometheus(service.get("/metrics").text)


def check_prometheus(text: str) -> None:
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples: dict[tuple[str, Any], float] = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }
    recommend = (("method", "GET"), ("route", "/v1/recommend/{user}"), ("status", "2xx"))
    assert samples["dgcf_requests_total", recommend] == 30
    route = (("route", "/v1/recommend/{user}"),)
    assert samples["dgcf_request_seconds_count", route] == 30
    assert 0 < samples["dgcf_request_seconds_sum", route] < 30
    buckets = [
        sample.value
        for sample in families["dgcf_request_seconds"].samples
        if sample.name.endswith("_bucket") and sample.labels["route"] == route[0][1]
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 30
    assert samples["dgcf_events", ()] == samples["dgcf_events_stored_total", ()] == 1
    assert samples["dgcf_events_duplicate_total", ()] == 2
    assert samples["dgcf_workers_ready", ()] == 2
    for worker in ("0", "1"):
        assert samples["dgcf_model_version", (("worker", worker),)] == 1
        assert samples["dgcf_memory_bytes", (("worker", worker),)] > 50_000_000
        assert samples["dgcf_cpu_seconds_total", (("worker", worker),)] > 0
        assert samples["dgcf_open_files", (("worker", worker),)] > 5
    assert samples["dgcf_start_time_seconds", ()] <= time.time()
    assert os.path.basename(sys.executable) not in text  # noqa: PTH119
