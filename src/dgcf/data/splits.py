"""Splits into training, validation and test pairs.

A split depends on the seed and on the rank of a pair among the sorted ids, not on the order of a file, the platform or
the version of a library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dgcf.data.interactions import Interactions, TimeUse
from dgcf.errors import ConfigError, did_you_mean
from dgcf.random import bits

Method = Literal["random", "global", "temporal", "user-temporal", "leave-k-out", "none"]


@dataclass(frozen=True)
class Split:
    """The method of a split and its parameters.

    - ``random``: the pairs of each user at random, by ``ratios``.
    - ``global``: all pairs at random, by ``ratios``.
    - ``temporal``: all pairs by time, by ``ratios``; the earliest are for training, the latest for testing.
    - ``user-temporal``: the pairs of each user by time, by ``ratios``.
    - ``leave-k-out``: the last ``k`` pairs of each user (by time if known, else at random) for testing, the ``k``
      before for validation; users with at most 2·k pairs are for training only.
    - ``none``: all pairs are for training.
    """

    method: Method = "random"
    ratios: tuple[float, float, float] = (0.7, 0.1, 0.2)
    k: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        methods = get_args(Method)
        if self.method not in methods:
            near = did_you_mean(self.method, methods)
            raise ConfigError(f"unknown split {self.method!r}, expected one of {', '.join(methods)}{near or '.'}")
        fine = len(self.ratios) == 3 and all(math.isfinite(part) and part >= 0 for part in self.ratios)
        if not fine or self.ratios[0] <= 0 or abs(sum(self.ratios) - 1) > 1e-6:
            raise ConfigError(
                f"split ratios {', '.join(map(str, self.ratios))} do not make sense, expected three shares for train, "
                "validation and test that sum to 1, such as 0.7,0.1,0.2."
            )
        if self.k < 1:
            raise ConfigError(f"leave-k-out with k = {self.k} is not possible, expected 1 or more.")

    @property
    def time(self) -> TimeUse:
        """Whether times are ``needed``, ``used`` if known, or ``ignored``."""
        if self.method in ("temporal", "user-temporal"):
            return "needed"
        return "used" if self.method == "leave-k-out" else "ignored"

    def to_dict(self) -> dict[str, Any]:
        """Return the method and the parameters that it uses."""
        if self.method == "none":
            return {"method": self.method}
        how = {"k": self.k} if self.method == "leave-k-out" else {"ratios": list(self.ratios)}
        return {"method": self.method, **how, "seed": self.seed}


def assign(rows: Interactions, split: Split) -> NDArray[np.int8]:
    """Return (n,) 0 for train, 1 for validation, 2 for test. The rows must hold each pair once."""
    n = len(rows)
    if split.method == "none":
        return np.zeros(n, dtype=np.int8)
    # Draw by the rank of a pair among the sorted pairs, so that the order of the file does not matter.
    sorted_rows = np.lexsort((rows.item_idx, rows.user_idx))
    draw = np.empty(n, dtype=np.uint64)
    draw[sorted_rows] = bits(split.seed, "split", n)
    # Equal times are ordered by the draw, not by the order of the file.
    ranking = (draw,) if rows.timestamp is None or split.time == "ignored" else (draw, rows.timestamp)
    if split.method in ("global", "temporal"):
        group, group_sizes = np.zeros(n, dtype=np.int32), np.array([n])
    else:
        group, group_sizes = rows.user_idx, np.bincount(rows.user_idx, minlength=len(rows.users))
    order = np.lexsort((*ranking, group))
    starts = np.concatenate([[0], np.cumsum(group_sizes)[:-1]])
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n) - np.repeat(starts, group_sizes)
    return _cut(place, group_sizes[group], split)


def _cut(place: NDArray[np.int64], size: NDArray[np.int64], split: Split) -> NDArray[np.int8]:
    """Return the part of each pair, given its position in its group (0 is first) and the size of the group."""
    if split.method == "leave-k-out":
        first_test = np.where(size > 2 * split.k, size - split.k, size)
        first_validation = np.where(size > 2 * split.k, size - 2 * split.k, size)
    else:
        # Cut at rounded cumulative ratios. Each group keeps a training pair, and of two or more held-out pairs one is
        # for validation: rounding must not leave all users with 8 pairs without one.
        first_validation = np.maximum(np.floor(size * split.ratios[0] + 0.5 + 1e-9), 1).astype(np.int64)
        first_test = np.floor(size * (split.ratios[0] + split.ratios[1]) + 0.5 + 1e-9).astype(np.int64)
        if split.ratios[1] > 0:
            first_test = np.where(size - first_validation > 1, np.maximum(first_test, first_validation + 1), first_test)
        if split.ratios[2] == 0:
            first_test = size
    return (place >= first_validation).astype(np.int8) + (place >= np.maximum(first_test, first_validation))
