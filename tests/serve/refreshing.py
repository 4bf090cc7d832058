"""What the tests of refreshes share: a model of earlier likes, later likes to learn, and waiting for a refresh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.client.answers import Event
from dgcf.data import Dataset
from dgcf.data.everything import everything
from dgcf.data.pairs import Pairs
from dgcf.recommend import Recommender
from tests.serve.models import SETTINGS, films
from tests.serve.service import ADMIN, Service

Likes = list[tuple[str, str]]
DAY = 86_400.0
FIRST = 1.75e9
"""The time of the first event, in seconds since 1970."""
STEPS = ("export", "start", "read", "check", "update", "save", "publish")


def earlier_and_later(share: float = 0.5) -> tuple[Dataset, Likes]:
    """Return the films with a part of the likes, and all other likes in a random order; users and items stay."""
    whole, rng = films(), np.random.default_rng(1)
    pairs = everything(whole).train
    later = rng.random(len(pairs)) > share
    kept = pairs.where(~later)
    later &= (kept.user_degrees[pairs.user_idx] > 0) & (kept.item_degrees[pairs.indices] > 0)
    n_users, n_items = len(whole.users), len(whole.items)
    empty = Pairs.empty(n_users, n_items)
    users, items = whole.users.texts, whole.items.texts
    rows = [(users[u], items[i]) for u, i in zip(pairs.user_idx[later], pairs.indices[later], strict=True)]
    order = rng.permutation(len(rows))
    return Dataset("films", whole.users, whole.items, pairs.where(~later), empty, empty), [rows[n] for n in order]


def earlier_model(path: Path, dataset: Dataset) -> Path:
    """Train a model of the earlier likes, and save it."""
    settings: dict[str, Any] = {**SETTINGS, "epochs": 30}
    Recommender("dgcf", preset="plain", device="cpu", **settings).fit(dataset).save(path)
    return path


def noise(dataset: Dataset, count: int) -> Likes:
    """Return random pairs that the dataset does not have."""
    rng, known = np.random.default_rng(2), set(everything(dataset).train.keys().tolist())
    keys = [key for key in rng.permutation(len(dataset.users) * len(dataset.items)).tolist() if key not in known]
    users, items, width = dataset.users.texts, dataset.items.texts, len(dataset.items)
    return [(users[key // width], items[key % width]) for key in keys[:count]]


def post(service: Service, likes: Iterable[tuple[str, str]], start: float = FIRST) -> None:
    """Store likes as events, one a second."""
    rows = [Event(user=user, item=item, time=start + n) for n, (user, item) in enumerate(likes)]
    with service.client(ADMIN) as client:
        for first in range(0, len(rows), 500):
            client.send_events(rows[first : first + 500])


def refresh(service: Service, seconds: float = 120) -> dict[str, Any]:
    """Demand a refresh, wait for its end, and return what came of it."""
    with service.client(ADMIN) as client:
        client.refresh()
    return ended(service, seconds)


def ended(service: Service, seconds: float = 120) -> dict[str, Any]:
    """Wait until no refresh runs, and return what came of the last one."""
    until = time.monotonic() + seconds
    while (state := service.get("/v1/admin/refresh", token=ADMIN).json())["state"] == "running":
        assert state["step"] in (None, *STEPS)
        assert time.monotonic() < until, state
        time.sleep(0.1)
    last: dict[str, Any] = state["last"]
    return last


def following(service: Service, version: int, seconds: float = 60) -> None:
    """Wait until all workers serve a version."""
    until = time.monotonic() + seconds
    while set(versions(service)) != {version}:
        assert time.monotonic() < until, versions(service)
        time.sleep(0.1)


def versions(service: Service) -> list[int]:
    """Return the versions that the workers serve, from the metrics."""
    lines = service.get("/metrics", token=ADMIN).text.splitlines()
    return [round(float(line.split()[-1])) for line in lines if line.startswith("dgcf_model_version{")]


def lists(service: Service, users: Iterable[str]) -> list[Any]:
    """Return the lists of users, without the version of the model."""
    answers = [service.get(f"/v1/recommend/{user}?k=50", token=ADMIN).json() for user in users]
    return [{**answer, "model": None} for answer in answers]


def refresh_processes(service: Service) -> list[int]:
    """Return the ids of the processes of refreshes."""
    return [pid for worker in service.workers() for pid in children(worker, lambda line: b"serve.refresh" in line)]


def children(parent: int, chosen: Callable[[bytes], bool]) -> list[int]:
    """Return the children of a process whose command line is chosen."""
    found = []
    for folder in Path(f"/proc/{parent}/task").glob("*"):
        try:
            pids = (folder / "children").read_text().split()
            found += [int(pid) for pid in pids if chosen(Path(f"/proc/{pid}/cmdline").read_bytes())]
        except OSError:  # it has ended meanwhile
            continue
    return found
