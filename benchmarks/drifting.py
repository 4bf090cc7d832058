"""A generated log with times whose tastes and popularity drift: users come, items are released, both change.

All numbers come from ``dgcf.random``, so a seed gives the same log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dgcf.files import atomic_file
from dgcf.random import permutation, uniform

Matrix = NDArray[np.float64]
DAY = 86_400
START = 1_700_006_400
"""Midnight of the first day, in seconds."""


@dataclass(frozen=True)
class TimedLog:
    """Events ascending in time: ids of users and items as text, and ``time`` (n,) in seconds."""

    users: NDArray[np.str_]
    items: NDArray[np.str_]
    time: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time)

    def between(self, first: int, end: int) -> TimedLog:
        """Return the events from the time ``first`` on, before ``end``."""
        at, to = np.searchsorted(self.time, [first, end])
        return TimedLog(self.users[at:to], self.items[at:to], self.time[at:to])

    def write(self, path: Path) -> Path:
        """Write the events as a CSV file with the columns ``user_id``, ``item_id`` and ``timestamp``."""
        rows = zip(self.users, self.items, self.time, strict=True)
        lines = (f'{user},"{item}",{time}\n' for user, item, time in rows)
        with atomic_file(path) as beside:
            beside.write_text("user_id,item_id,timestamp\n" + "".join(lines), encoding="utf-8")
        return path


def drifting(
    n_users: int = 3000, n_items: int = 1500, days: int = 150, per_day: int = 250, per_visit: int = 4, seed: int = 0
) -> TimedLog:
    """Return the log of a service whose users and items change.

    A user joins on a random day, at the beginning with probability .4; an item is released on a random day, at the
    beginning with probability .6. ``per_day`` users visit each day, with log-normal activity, and take ``per_visit``
    items that they do not have, without replacement, by the weight ``popularity_i(t) · exp(2 ⟨p_u(t), q_i⟩)``. Tastes
    have 8 coordinates, and turn by a quarter circle, from one random vector to another, in 120 days. The popularity of
    an item falls by a factor e in 60 days after its release, to a fifth at least.
    """
    stream, rank = "drifting", 8
    q = _normal(seed, f"{stream}/items", n_items, rank) / np.sqrt(rank)
    p, later = (_normal(seed, f"{stream}/users {name}", n_users, rank) for name in ("first", "later"))
    basic = (permutation(seed, f"{stream}/popularity", n_items) + 20.0) ** -0.9
    joined = _days(seed, f"{stream}/joined", n_users, days, at_once=0.4)
    released = _days(seed, f"{stream}/released", n_items, days, at_once=0.6)
    activity = np.exp(0.8 * _normal(seed, f"{stream}/activity", n_users, 1)[:, 0])
    has = np.zeros((n_users, n_items), dtype=bool)
    users, items, times = list[NDArray[np.int64]](), list[NDArray[np.int64]](), list[NDArray[np.int64]]()
    for day in range(days):
        race = -np.log1p(-uniform(seed, f"{stream}/visit {day}", n_users)) / (activity * (joined <= day) + 1e-12)
        visitors = np.sort(np.argsort(race)[: min(per_day, int((joined <= day).sum()))])
        angle = day / 120 * np.pi / 2
        taste = _products(np.cos(angle) * p[visitors] + np.sin(angle) * later[visitors], q)
        age = np.maximum(day - released, 0)
        weight = basic * np.maximum(np.exp(-age / 60), 0.2) * (released <= day) * np.exp(2.0 * taste) + 1e-300
        weight[has[visitors]] = 1e-300
        draw = -np.log1p(-uniform(seed, f"{stream}/items {day}", weight.size)).reshape(weight.shape) / weight
        chosen = np.argsort(draw, axis=1)[:, :per_visit]
        has[visitors[:, None], chosen] = True
        users.append(np.repeat(visitors, per_visit))
        items.append(chosen.ravel().astype(np.int64))
        second = uniform(seed, f"{stream}/second {day}", len(visitors)) * (DAY - per_visit)
        seconds = second.astype(np.int64)[:, None] + np.arange(per_visit)
        times.append(START + day * DAY + seconds.ravel())
    time = np.concatenate(times)
    order = np.argsort(time, kind="stable")
    names = (np.array([f"{letter}{n:05d}" for n in range(size)]) for letter, size in (("u", n_users), ("i", n_items)))
    user_names, item_names = names
    return TimedLog(user_names[np.concatenate(users)[order]], item_names[np.concatenate(items)[order]], time[order])


def _days(seed: int, stream: str, n: int, days: int, *, at_once: float) -> Matrix:
    """Return a day (n,) for each, 0 with probability ``at_once``."""
    draw = (uniform(seed, stream, n) - at_once) / (1 - at_once)
    return np.asarray(np.floor(np.maximum(draw, 0) * days))


def _products(a: Matrix, b: Matrix) -> Matrix:
    """Return a bᵀ, coordinate by coordinate: the sum does not depend on the blocks of a matrix product."""
    total = np.zeros((len(a), len(b)))
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[:, k]
    return total


def _normal(seed: int, stream: str, n: int, width: int) -> Matrix:
    return np.asarray(ndtri(uniform(seed, stream, n * width) + 2.0**-54)).reshape(n, width)
