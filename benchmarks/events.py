"""Durable events a second: the event store in PostgreSQL beside the one in a file, in one run.

    python -m benchmarks.events [--seconds 5] [--rounds 3] [--url postgresql://…]

Each call stores ten events, and is done when they are on disk. ``waiting`` calls are made before the first one is
done, as by so many clients at once. Without ``--url``, a PostgreSQL server of this machine is started, with fsync, on
the same disk as the file. Both alternate in each round.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from tests import postgres

from benchmarks.measure import hardware, markdown, median
from dgcf.serve.events.records import Event
from dgcf.serve.events.store import EventStore

BATCH = 10
WAITING = (1, 8, 64)
_keys = itertools.count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, _database(args.url) as url:
        rates: dict[tuple[str, int], list[float]] = {}
        with EventStore.open(Path(name) / "events.sqlite3") as file, EventStore.open(url) as database:
            for _, waiting in itertools.product(range(args.rounds), WAITING):
                for label, store in (("file", file), ("PostgreSQL", database)):
                    rates.setdefault((label, waiting), []).append(rate(store, args.seconds, waiting))
    rows = []
    for waiting in WAITING:
        pairs = list(zip(rates["PostgreSQL", waiting], rates["file", waiting], strict=True))
        ratio = median([one / other for one, other in pairs])
        values = [median(rates[label, waiting]) for label in ("file", "PostgreSQL")]
        rows.append([str(waiting), *(f"{value:,.0f}" for value in values), f"{ratio:.2f}"])
    print(f"durable events a second, {BATCH} in a call; {hardware()}\n")
    print(markdown(["waiting calls", "SQLite", "PostgreSQL", "PostgreSQL ÷ SQLite"], rows))


@contextlib.contextmanager
def _database(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    postgres.SETTINGS["fsync"] = "on"
    with postgres.server() as server:
        yield server.dsn


def rate(store: EventStore, seconds: float, waiting: int) -> float:
    """Return the events that are stored in a second, with so many calls at once."""
    calls: deque[Future[list[bool]]] = deque()
    began, stored = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        while len(calls) < waiting:
            number = next(_keys)
            calls.append(store.submit([_event(number, place) for place in range(BATCH)]))
        stored += sum(calls.popleft().result(60))
    while calls:
        stored += sum(calls.popleft().result(60))
    return stored / (time.perf_counter() - began)


def _event(number: int, place: int) -> Event:
    return Event(f"user {number % 10_000}", f"item {(number * 7 + place) % 5_000}", key=f"{number}-{place}")


if __name__ == "__main__":
    main()
