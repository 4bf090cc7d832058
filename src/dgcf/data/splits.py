"""Splits into training, validation and test.

A split by time cuts events: of a pair that occurs several times, each event lies in the part of its own time. Any other
split divides pairs. A split depends on the seed and on the rank of a row among the rows sorted by ids and time, not on
the order of a file, the platform or the version of a library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dgcf.data.interactions import Interactions, TimeUse
from dgcf.data.times import seconds_of
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.random import bits

Method = Literal["random", "global", "temporal", "user-temporal", "leave-k-out", "none"]
Moment = float | str
"""A time in the unit of the source, or a date as text (ISO 8601, UTC unless it has an offset)."""
CARVED = 0.1
"""The share of the events before a cut that are for validation unless another share or a second cut is given."""
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From which time on (of this century) times count fractions of a second, and how many of them a second has."""


@dataclass(frozen=True)
class Split:
    """The method of a split and its parameters.

    - ``random``: the pairs of each user at random, by ``ratios``.
    - ``global``: all pairs at random, by ``ratios``.
    - ``temporal``: all events by time, by ``ratios``; the earliest are for training, the latest for testing. With
      ``cut``, events from that moment on are for testing, and those from ``validation_cut`` on for validation.
    - ``user-temporal``: the events of each user by time, by ``ratios``.
    - ``leave-k-out``: the last ``k`` events of each user (pairs at random if no time is known) for testing, the ``k``
      before for validation; users with at most 2·k of them are for training only.
    - ``none``: all pairs are for training.

    A cut at a moment never divides events of equal times. The other methods order them by the draw of ``seed``.
    """

    method: Method = "random"
    ratios: tuple[float, float, float] = (0.7, 0.1, 0.2)
    k: int = 1
    seed: int = 0
    cut: Moment | None = None
    validation_cut: Moment | None = None

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
        if self.cut is None and self.validation_cut is not None:
            raise ConfigError("a cut for validation was given without a cut for test; give both, or leave it out.")
        if self.cut is not None and self.method != "temporal":
            raise ConfigError(f"a cut at a time was given with the split {self.method}, expected temporal.")
        for moment in (self.cut, self.validation_cut):
            if moment is not None:
                _number_or_date(moment)

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
        if self.cut is not None:
            second = {} if self.validation_cut is None else {"validation_cut": self.validation_cut}
            return {"method": self.method, "cut": self.cut, **second}
        how = {"k": self.k} if self.method == "leave-k-out" else {"ratios": list(self.ratios)}
        return {"method": self.method, **how, "seed": self.seed}


def divides_events(rows: Interactions, split: Split) -> bool:
    """Return whether a split divides events by their times, so that rows may repeat a pair."""
    return rows.timestamp is not None and split.time != "ignored"


def assign(rows: Interactions, split: Split) -> NDArray[np.int8]:
    """Return (n,) 0 for train, 1 for validation, 2 for test.

    The rows must hold each pair once, unless the split divides events.
    """
    n = len(rows)
    if split.method == "none":
        return np.zeros(n, dtype=np.int8)
    if split.cut is not None:
        return _cut_at_times(rows, split)
    # Draw by the rank of a row among the sorted rows, so that the order of the file does not matter.
    columns = (rows.item_idx, rows.user_idx)
    events = divides_events(rows, split)
    if events:
        columns = (*(() if rows.weight is None else (rows.weight,)), rows.timestamp, *columns)
    draw = np.empty(n, dtype=np.uint64)
    draw[np.lexsort(columns)] = bits(split.seed, "split", n)
    # Equal times are ordered by the draw, not by the order of the file.
    ranking = (draw, rows.timestamp) if events else (draw,)
    if split.method in ("global", "temporal"):
        group, group_sizes = np.zeros(n, dtype=np.int32), np.array([n])
    else:
        group, group_sizes = rows.user_idx, np.bincount(rows.user_idx, minlength=len(rows.users))
    order = np.lexsort((*ranking, group))
    starts = np.concatenate([[0], np.cumsum(group_sizes)[:-1]])
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n) - np.repeat(starts, group_sizes)
    return _cut(place, group_sizes[group], split)


def carve(rows: Interactions, part: NDArray[np.int8], share: float, split: Split) -> NDArray[np.int8]:
    """Return the parts with a share of the training rows moved to validation, chosen by the method of ``split``."""
    if not 0 < share < 1:
        raise ConfigError(f"the share {share:g} of the training part for validation is not between 0 and 1.")
    if split.method == "none":
        raise ConfigError("--split none keeps all pairs for training; leave it out to carve a validation part out.")
    training = np.flatnonzero(part == 0)
    how = replace(split, ratios=(1 - share, share, 0.0), cut=None, validation_cut=None)
    held = assign(rows.keep(training), how)
    carved = part.copy()
    carved[training[held > 0]] = 1
    return carved


def _cut_at_times(rows: Interactions, split: Split) -> NDArray[np.int8]:
    """Return the part of each event by the cuts of a split; refuse a cut that leaves a part without events."""
    assert rows.timestamp is not None
    assert split.cut is not None
    low, high = float(rows.timestamp.min()), float(rows.timestamp.max())
    per_second = _per_second(high)
    cut = _moment(split.cut, per_second)
    if not low < cut <= high:
        raise DataError(
            f"the cut at {split.cut} is outside the data, whose times run from {_shown(low, per_second)} to "
            f"{_shown(high, per_second)}; choose a time after the first and not after the last."
        )
    part = np.where(rows.timestamp >= cut, 2, 0).astype(np.int8)
    if split.validation_cut is not None:
        second = _moment(split.validation_cut, per_second)
        if not low < second < cut:
            raise DataError(
                f"the cut for validation at {split.validation_cut} is not between the first time of the data, "
                f"{_shown(low, per_second)}, and the cut for test at {split.cut}; choose a time between them."
            )
        part[(part == 0) & (rows.timestamp >= second)] = 1
    return part


def _number_or_date(moment: Moment) -> tuple[float, bool]:
    """Return a moment as a number, and whether it was a date (then in seconds from 1970)."""
    try:
        number = float(moment)
    except ValueError:
        seconds = seconds_of(str(moment))
        if seconds is None:
            raise ConfigError(
                f"the cut {moment!r} is neither a date such as 2011-11-01 (or 2011-11-01T08:30) nor a number."
            ) from None
        return seconds, True
    if not math.isfinite(number):
        raise ConfigError(f"the cut {moment!r} is not a finite number; give a date such as 2011-11-01.")
    return number, False


def _moment(moment: Moment, per_second: float) -> float:
    """Return a moment in the unit of the data, which counts ``per_second`` in a second."""
    number, is_date = _number_or_date(moment)
    return number * per_second if is_date else number


def time_window(times: NDArray[np.floating]) -> list[str]:
    """Return the first and the last of some times, as dates or as numbers."""
    low, high = float(times.min()), float(times.max())
    return [_shown(time, _per_second(high)) for time in (low, high)]


def _per_second(latest: float) -> float:
    """Return how many units of time a second has, by the latest time of the data."""
    return next((count for least, count in _UNITS if latest >= least), 1.0)


def _shown(time: float, per_second: float) -> str:
    """Return a time of the data as a date, or as a number if it is none of this century."""
    seconds = time / per_second
    if not 1e8 <= seconds < 1e11:
        return f"{time:.15g}"
    shown = datetime.fromtimestamp(seconds, UTC)
    return shown.strftime("%Y-%m-%d" if seconds % 86400 == 0 else "%Y-%m-%dT%H:%M:%S")


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
