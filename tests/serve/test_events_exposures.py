"""Exposures and what users did since, in a file and in PostgreSQL, against counts by hand."""

from __future__ import annotations

import time
from collections import defaultdict

import numpy as np

from dgcf.serve.events.records import KINDS, POSITIVE, ArmCounts, Event, Exposure, Position
from dgcf.serve.events.store import EventStore
from tests.serve.stores import Where

ARMS = ("b", "main", "z")
USERS = ["anna", "Ünal, Ş.", "a 'quoted\" one", *(f"user {number}" for number in range(40))]
SECONDS = 10


def change(store: EventStore) -> int:
    return store.changes(Position.START).position.change


def expected(
    exposures: dict[str, Exposure], events: dict[str, list[tuple[float, str]]], kinds: tuple[str, ...]
) -> list[ArmCounts]:
    rows = []
    for arm in ARMS:
        mine = [exposure for exposure in exposures.values() if exposure.arm == arm]
        counts = [sum(at >= first and kind in kinds for at, kind in events.get(user, ())) for user, _, first in mine]
        if mine:
            since = min(first for _, _, first in mine)
            rows.append(ArmCounts(arm, len(mine), sum(count > 0 for count in counts), sum(counts), since))
    return rows


def test_counts_are_those_by_hand(where: Where) -> None:
    rng = np.random.default_rng(5)
    exposures: dict[str, Exposure] = {}
    events: dict[str, list[tuple[float, str]]] = defaultdict(list)
    with EventStore.open(where) as store:
        for _ in range(60):
            new = []
            for _ in range(rng.integers(4)):
                user, arm, first = USERS[rng.integers(len(USERS))], ARMS[rng.integers(3)], float(rng.integers(100))
                new.append(Exposure(user, arm, first))
            new = list({exposure.user: exposure for exposure in new}.values())
            fresh = [exposure for exposure in new if exposure.user not in exposures]
            added = store.add_exposures("spring", new, change(store)).result(SECONDS)
            assert sum(added.values()) == len(fresh)
            exposures |= {exposure.user: exposure for exposure in fresh}
            user, at, kind = USERS[rng.integers(len(USERS))], float(rng.integers(120)), KINDS[rng.integers(len(KINDS))]
            store.submit([Event(user, "item", kind, time=at)]).result(SECONDS)
            events[user].append((at, kind))
        assert {exposure.arm for exposure in exposures.values()} == set(ARMS)
        for kinds in (POSITIVE, ("like",), ("like", "purchase"), KINDS):
            assert store.experiment_counts("spring", kinds) == expected(exposures, events, kinds)
        assert store.experiment_counts("autumn", POSITIVE) == []
        assert all(store.is_exposed(user) == (user in exposures) for user in USERS)


def test_an_event_at_the_moment_of_the_exposure_counts_and_one_before_does_not(where: Where) -> None:
    with EventStore.open(where) as store:
        store.add_exposures("spring", [Exposure("anna", "b", 5.000001)], 0).result(SECONDS)
        store.submit([Event("anna", "i", time=5.0)]).result(SECONDS)
        assert store.experiment_counts("spring", POSITIVE) == [ArmCounts("b", 1, 0, 0, 5.000001)]
        store.submit([Event("anna", "i", time=5.000001)]).result(SECONDS)
        assert store.experiment_counts("spring", POSITIVE) == [ArmCounts("b", 1, 1, 1, 5.000001)]


def test_forgetting_deletes_exposures_and_refuses_those_noted_before(where: Where) -> None:
    both = [Exposure("anna", "b", 5.0), Exposure("bert", "b", 6.0)]
    with EventStore.open(where) as store, EventStore.open(where) as other:
        noted = change(store)
        store.add_exposures("spring", both, noted).result(SECONDS)
        store.add_exposures("autumn", both, noted).result(SECONDS)
        other.forget("anna").result(SECONDS)
        for experiment in ("spring", "autumn"):
            assert store.experiment_counts(experiment, POSITIVE) == [ArmCounts("b", 1, 0, 0, 6.0)]
        assert not store.is_exposed("anna")
        assert store.add_exposures("spring", both, noted).result(SECONDS) == {"b": 0}
        later = change(store)
        assert store.add_exposures("spring", both, later).result(SECONDS) == {"b": 1}  # a new user of this name
        other.forget("anna").result(SECONDS)
        assert store.add_exposures("spring", both, later).result(SECONDS) == {"b": 0}


def test_exposures_are_deleted_with_events_of_their_time(where: Where) -> None:
    now = time.time()
    with EventStore.open(where, retention_seconds=3_600.0) as store:
        old = [Exposure(f"user {number}", "b", now - 7_200 + number) for number in range(700)]
        store.add_exposures("spring", [*old, Exposure("anna", "main", now)], 0).result(SECONDS)
        until = time.monotonic() + 60
        while store.is_exposed("user 699") and time.monotonic() < until:
            time.sleep(0.1)
            store._writer._due = 0.0  # the next time is now
            store.submit([]).result(SECONDS)
        assert [row[:2] for row in store.experiment_counts("spring", POSITIVE)] == [("main", 1)]
