"""What the service reports of itself: the answer of ``/v1/operations`` and the metrics of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dgcf.serve.errors import StoreDownError
from dgcf.serve.events.records import MAIN, Result
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.tally import ArmField
from dgcf.serve.refresh.schedule import Present
from dgcf.serve.server.board import (
    BUCKETS,
    CLASSES,
    EDGES,
    METHODS,
    TEMPLATES,
    Board,
    Field,
    Sample,
    State,
    Words,
    quantile,
)
from dgcf.serve.settings import Arms
from dgcf.version import __version__

INTERVAL, INTERVALS = 10, 60
"""Seconds of an interval of the history, and the number of intervals."""
_SHOWN = [index for index, edge in enumerate(EDGES) if f"{edge:e}"[:3] in ("1.0", "2.5", "5.0")]


ARM_METRICS = (
    ("dgcf_arm_requests", "Lists that were answered by the arm.", ArmField.REQUESTS, 1),
    ("dgcf_arm_exposures", "Users who got their first list of the experiment.", ArmField.EXPOSURES, 1),
    ("dgcf_shadow_answers", "Lists that the shadow ranked too.", ArmField.ANSWERS, 1),
    ("dgcf_shadow_overlap", "Sum of the shares of items in both lists.", ArmField.OVERLAP, 1e-6),
    ("dgcf_shadow_seconds", "Seconds until the shadow had its lists.", ArmField.NANOSECONDS, 1e-9),
    ("dgcf_shadow_dropped", "Lists that the shadow left out.", ArmField.DROPPED, 1),
)
"""Name, description, counter and unit of the metrics of arms; the last four are those of shadows."""


class Metrics:
    """Reads the counters of all workers; ``model``: version and time of loading of this worker's model."""

    def __init__(
        self,
        board: Board,
        store_bytes: Callable[[], int],
        count_events: Callable[[], int],
        model: Callable[[], tuple[int, str]],
        more: Arms | None = None,
        store: EventStore | None = None,
    ) -> None:
        self._board, self._store_bytes = board, store_bytes
        self._count_events, self._model = count_events, model
        self._more, self._store = more or Arms(), store
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    # -- /v1/operations -----------------------------------------------------------------------------------------------

    def operations(self) -> dict[str, Any]:
        """Return the answer of ``/v1/operations``; ``errors`` are answers with a status of 500 or more."""
        board = self._board
        counts, latency = board.requests(), board.latency()[:, :BUCKETS]
        now = Sample(
            time.monotonic(),
            time.time(),
            int(counts.sum()),
            int(counts[:, :, 3].sum()),
            board.total(Field.EVENTS_STORED),
            latency.sum(axis=0),
        )
        samples = board.samples()
        before = _at(samples, now.time - INTERVAL)
        elapsed = now.time - before.time if before else max(now.wall - board.started, 1e-3)
        version, loaded = self._model()
        states = board.values(Field.STATE)
        return {
            "model": version,
            "model_loaded": loaded,
            "uptime_seconds": round(now.wall - board.started, 3),
            "workers": board.workers,
            "ready_workers": states.count(State.READY),
            "requests": {
                "total": now.requests,
                "per_second": round((now.requests - (before.requests if before else 0)) / elapsed, 2),
                "by_route": _by_route(counts, latency),
                "by_status": {name: int(counts[:, :, kind].sum()) for kind, name in enumerate(CLASSES)},
            },
            "latency_ms": {f"p{share}": _ms(now.latency, share / 100) for share in (50, 90, 99)},
            "history": _history(samples),
            "events": {
                "stored": self._count_events(),
                "last_minute": now.events - _events_at(samples, now.time - 60),
                "duplicates": board.total(Field.EVENTS_DUPLICATE),
                "store_bytes": self._store_bytes(),
            },
            "memory_bytes": board.total(Field.MEMORY),
            "dgcf": __version__,
        }

    # -- Prometheus ---------------------------------------------------------------------------------------------------

    def prometheus(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by ``generate_latest``."""
        yield from self._requests()
        board = self._board
        numbers: list[tuple[str, str, float]] = [
            ("dgcf_requests_in_flight", "Requests that are being answered.", board.total(Field.IN_FLIGHT)),
            ("dgcf_connections", "Open connections.", board.total(Field.CONNECTIONS)),
            ("dgcf_events", "Events in the store.", self._count_events()),
            ("dgcf_store_bytes", "Size of the event store with its log.", self._store_bytes()),
            ("dgcf_workers", "Workers that there should be.", board.workers),
            ("dgcf_workers_ready", "Workers that answer.", board.values(Field.STATE).count(State.READY)),
            ("dgcf_start_time_seconds", "When the service was started, since 1970.", board.started),
        ]
        for name, text, value in numbers:
            yield GaugeMetricFamily(name, text, value=value)
        counters = [
            ("dgcf_events_stored", "New events since the start.", board.total(Field.EVENTS_STORED)),
            ("dgcf_events_duplicate", "Events that were known since the start.", board.total(Field.EVENTS_DUPLICATE)),
            ("dgcf_worker_restarts", "Workers that were started again.", board.restarts),
            ("dgcf_log_lines_dropped", "Log lines that were not written.", board.total(Field.LOG_DROPPED)),
        ]
        for name, text, value in counters:
            yield CounterMetricFamily(name, text, value=value)
        info = GaugeMetricFamily("dgcf_info", "The version of dgcf.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        yield from self._workers()
        yield from self._arms()
        yield from self._refreshes()

    def _refreshes(self) -> Iterator[Metric]:
        """Yield the metrics of refreshes, the same of all services that share the store."""
        if self._store is None:
            return
        refreshes = CounterMetricFamily("dgcf_refreshes", "Refreshes of the model by result.", labels=["result"])
        try:
            counts, present = self._store.refresh_counts(), Present.read(self._store)
        except StoreDownError:
            return
        for result in get_args(Result):
            refreshes.add_metric([result], counts.get(result, 0))
        yield refreshes
        last = present.before if present.running else present.newest
        if last is not None and last.ended is not None:
            text = "How long the last refresh took."
            yield GaugeMetricFamily("dgcf_refresh_seconds", text, value=last.ended - last.started)
        if present.model is not None:
            age = max(0.0, time.time() - present.model.published)
            yield GaugeMetricFamily("dgcf_model_age_seconds", "Time since the served model was published.", value=age)

    def _arms(self) -> Iterator[Metric]:
        """Yield the metrics of arms and shadows, if there are some."""
        places = {arm: place for place, arm in enumerate((MAIN, *self._more.models))}
        for name, text, field, scale in ARM_METRICS:
            shadow = field >= ArmField.ANSWERS
            arms = self._more.shadows if shadow else tuple(self._more.weights) if self._more.models else ()
            metric = CounterMetricFamily(name, text, labels=["arm"])
            for arm in arms:
                metric.add_metric([arm], self._board.of_arm(places[arm], field) * scale)
            if arms:
                yield metric

    def _requests(self) -> Iterator[Metric]:
        counts, latency = self._board.requests(), self._board.latency()
        requests = CounterMetricFamily(
            "dgcf_requests", "Requests by route, method and class of the status.", labels=["route", "method", "status"]
        )
        for route, method, kind in zip(*counts.nonzero(), strict=True):
            requests.add_metric([TEMPLATES[route], METHODS[method], CLASSES[kind]], int(counts[route, method, kind]))
        yield requests
        seconds = HistogramMetricFamily("dgcf_request_seconds", "Seconds until the answer was sent.", labels=["route"])
        for route in latency[:, :BUCKETS].sum(axis=1).nonzero()[0]:
            below = latency[route, :BUCKETS].cumsum()
            buckets = [(f"{EDGES[index]:.6g}", float(below[index])) for index in _SHOWN]
            buckets.append(("+Inf", float(below[-1])))
            seconds.add_metric([TEMPLATES[route]], buckets, float(latency[route, BUCKETS]) / 1e9)
        yield seconds

    def _workers(self) -> Iterator[Metric]:
        """Yield the metrics of each worker."""
        rows: list[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, Field, float]] = [
            (GaugeMetricFamily, "dgcf_model_version", "Version of the model that the worker serves.", Field.MODEL, 1),
            (GaugeMetricFamily, "dgcf_memory_bytes", "Resident memory of the worker.", Field.MEMORY, 1),
            (CounterMetricFamily, "dgcf_cpu_seconds", "Processor time of the worker.", Field.CPU, 1e-6),
            (GaugeMetricFamily, "dgcf_open_files", "Open file descriptors of the worker.", Field.FILES, 1),
        ]
        for family, name, text, field, scale in rows:
            metric = family(name, text, labels=["worker"])
            for number, value in enumerate(self._board.values(field)):
                metric.add_metric([str(number)], value * scale)
            yield metric


def _at(samples: Sequence[Sample], time: float) -> Sample | None:
    """Return the newest sample that is not newer than ``time``."""
    return next((sample for sample in reversed(samples) if sample.time <= time), None)


def _events_at(samples: Sequence[Sample], time: float) -> int:
    sample = _at(samples, time)
    return 0 if sample is None else sample.events


def _by_route(counts: Words, latency: Words) -> list[dict[str, Any]]:
    """Return the routes that had a request, the most frequent first."""
    totals = counts.sum(axis=(1, 2))
    return [
        {
            "route": TEMPLATES[route],
            "requests": int(totals[route]),
            "errors": int(counts[route, :, 3].sum()),
            "p50_ms": _ms(latency[route], 0.5),
            "p99_ms": _ms(latency[route], 0.99),
        }
        for route in sorted(totals.nonzero()[0].tolist(), key=lambda route: -int(totals[route]))
    ]


def _history(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Return the last intervals of ten seconds, the oldest first."""
    ends = samples[::-1][::INTERVAL][: INTERVALS + 1][::-1]
    return [
        {
            "time": datetime.fromtimestamp(end.wall, UTC).isoformat(timespec="seconds"),
            "requests_per_second": round((end.requests - start.requests) / max(end.time - start.time, 1e-3), 2),
            "p50_ms": _ms(end.latency - start.latency, 0.5),
            "p99_ms": _ms(end.latency - start.latency, 0.99),
            "errors": end.errors - start.errors,
        }
        for start, end in pairwise(ends)
    ]


def _ms(counts: Words, share: float) -> float | None:
    seconds = quantile(counts.tolist(), share)
    return None if seconds is None else round(seconds * 1000, 3)
