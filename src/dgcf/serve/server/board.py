"""Memory that the processes of a service share: counters of each worker, samples of their sums, and rate limits.

Each worker writes its own slot only, so nothing is locked. A worker that is started again continues the counters of its
slot. The supervisor writes the samples. A number is a 64-bit word; times are microseconds.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.serve.experiments.tally import MOST_MODELS, ArmField, Tally
from dgcf.serve.server.rate import TABLE_BYTES
from dgcf.serve.server.routes import ROUTES, UNMATCHED

Words = NDArray[np.uint64]

TEMPLATES: tuple[str, ...] = (*ROUTES, UNMATCHED)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "other")
CLASSES = ("2xx", "3xx", "4xx", "5xx")
_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)
EDGES: tuple[float, ...] = tuple(step * 10.0**power for power in range(-4, 2) for step in _STEPS)
"""Upper bounds of the latency buckets in seconds, from 0.1 ms to 80 s; one more bucket has what is slower."""
BUCKETS = len(EDGES) + 1

ROUTE_INDEX = {template: index for index, template in enumerate(TEMPLATES)}
METHOD_INDEX = {method: index for index, method in enumerate(METHODS)}
OTHER_METHOD = METHOD_INDEX["other"]


class State(IntEnum):
    """What a worker is doing."""

    ABSENT = 0
    STARTING = 1
    READY = 2
    STOPPING = 3


class Field(IntEnum):
    """The single numbers of a slot; those up to ``EVENTS_DUPLICATE`` outlive the worker."""

    EVENTS_STORED = 0
    EVENTS_DUPLICATE = 1
    STATE = 2
    PID = 3
    STARTED = 4
    MODEL = 5
    MEMORY = 6
    CPU = 7
    FILES = 8
    CONNECTIONS = 9
    IN_FLIGHT = 10
    LOG_DROPPED = 11
    COMMIT = 12


_COUNTS = len(TEMPLATES) * len(METHODS) * len(CLASSES)
_LATENCY = BUCKETS + 1  # the last word is the sum in nanoseconds
_ARMS = len(Field) + _COUNTS + len(TEMPLATES) * _LATENCY  # where the counters of arms begin
_SLOT = _ARMS + MOST_MODELS * len(ArmField)
_HEAD = 8  # workers, started, restarts, samples
SAMPLES = 640
"""Samples that are kept, one a second: more than the ten minutes of the history."""
_SAMPLE = 4 + BUCKETS


@dataclass(frozen=True)
class Sample:
    """Sums over all workers at a moment: ``time`` of the monotonic clock, ``wall`` since 1970, both in seconds."""

    time: float
    wall: float
    requests: int
    errors: int
    events: int
    latency: Words


class Slot:
    """The counters of one worker, as it writes them."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def reset(self, pid: int) -> None:
        """Begin anew with the process ``pid``; counters continue."""
        for field in Field:
            if field > Field.EVENTS_DUPLICATE:
                self._words[field] = 0
        self._words[Field.PID] = pid
        self._words[Field.STARTED] = round(time.time() * 1e6)
        self._words[Field.STATE] = State.STARTING

    def set(self, field: Field, value: int) -> None:
        self._words[field] = max(0, value)

    def add(self, field: Field, difference: int = 1) -> None:
        self._words[field] += difference

    def add_to_arm(self, arm: int, field: ArmField, difference: int) -> None:
        """Add to a counter of an arm, by its place among the models of the service."""
        self._words[_ARMS + arm * len(ArmField) + field] += difference

    def count(self, route: int, method: int, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        words = self._words
        kind = min(max(status // 100 - 2, 0), 3)
        words[len(Field) + (route * len(METHODS) + method) * len(CLASSES) + kind] += 1
        place = len(Field) + _COUNTS + route * _LATENCY
        words[place + bisect_left(EDGES, seconds)] += 1
        words[place + BUCKETS] += int(seconds * 1e9)


class Board:
    """The shared memory of a service; ``memory`` holds head, samples and slots, ``rates`` the buckets of the limit."""

    def __init__(self, descriptor: int, workers: int) -> None:
        self.descriptor, self.workers = descriptor, workers
        size = 8 * (_HEAD + SAMPLES * _SAMPLE + workers * _SLOT)
        self.rates = mmap.mmap(descriptor, TABLE_BYTES)
        self.memory = mmap.mmap(descriptor, size, offset=TABLE_BYTES)
        self._words: Words = np.frombuffer(self.memory, dtype=np.uint64)
        self._samples = self._words[_HEAD : _HEAD + SAMPLES * _SAMPLE].reshape(SAMPLES, _SAMPLE)
        self._slots = self._words[_HEAD + SAMPLES * _SAMPLE :].reshape(workers, _SLOT)

    @classmethod
    def create(cls, workers: int) -> Board:
        """Return a new board of ``workers`` slots; only processes that get its descriptor can open it."""
        descriptor = _anonymous_file()
        os.ftruncate(descriptor, TABLE_BYTES + 8 * (_HEAD + SAMPLES * _SAMPLE + workers * _SLOT))
        board = cls(descriptor, workers)
        board._words[0], board._words[1] = workers, round(time.time() * 1e6)
        return board

    def slot(self, number: int) -> Slot:
        """Return the slot of a worker, to write to."""
        start = 8 * (_HEAD + SAMPLES * _SAMPLE + number * _SLOT)
        return Slot(memoryview(self.memory)[start : start + 8 * _SLOT].cast("Q"))

    # -- written by the supervisor ------------------------------------------------------------------------------------

    def count_restart(self) -> None:
        self._words[2] += np.uint64(1)

    def set_absent(self, number: int) -> None:
        """Note that a worker has ended."""
        self._slots[number, Field.EVENTS_DUPLICATE + 1 : len(Field)] = 0

    def sample(self) -> None:
        """Add a sample of the sums."""
        number = int(self._words[3])
        counts = self.requests()
        row = self._samples[number % SAMPLES]
        row[0] = round(time.monotonic() * 1e6)
        row[1] = counts.sum()
        row[2] = counts[:, :, 3].sum()
        row[3] = self.total(Field.EVENTS_STORED)
        row[4:] = self.latency().sum(axis=0)[:BUCKETS]
        self._words[3] = number + 1

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def started(self) -> float:
        """When the service was started, in seconds since 1970."""
        return float(self._words[1]) / 1e6

    @property
    def restarts(self) -> int:
        return int(self._words[2])

    def values(self, field: Field) -> list[int]:
        """Return a number of each worker."""
        return [int(value) for value in self._slots[:, field]]

    def total(self, field: Field) -> int:
        return sum(self.values(field))

    def requests(self) -> Words:
        """Return the number of requests by template, method and class of the status."""
        counts: Words = self._slots[:, len(Field) : len(Field) + _COUNTS].sum(axis=0)
        return counts.reshape(len(TEMPLATES), len(METHODS), len(CLASSES))

    def latency(self) -> Words:
        """Return the latency buckets by template; the last column is the sum in nanoseconds."""
        buckets: Words = self._slots[:, len(Field) + _COUNTS : _ARMS].sum(axis=0)
        return buckets.reshape(len(TEMPLATES), _LATENCY)

    def of_arm(self, arm: int, field: ArmField) -> int:
        """Return a counter of an arm, by its place among the models of the service."""
        return int(self._slots[:, _ARMS + arm * len(ArmField) + field].sum())

    def samples(self) -> list[Sample]:
        """Return the samples, the oldest first."""
        number = int(self._words[3])
        offset = time.time() - time.monotonic()
        samples = []
        for index in range(max(0, number - SAMPLES + 8), number):  # the oldest ones may be overwritten meanwhile
            row = self._samples[index % SAMPLES].copy()
            at = float(row[0]) / 1e6
            samples.append(Sample(at, at + offset, int(row[1]), int(row[2]), int(row[3]), row[4:]))
        return samples

    def close(self) -> None:
        """Close the descriptor; the memory is freed with the last process that uses it."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


class BoardTally(Tally):
    """Counters of arms on the board: a worker adds to its slot, and reads those of all workers."""

    def __init__(self, board: Board, slot: Slot, arms: Sequence[str]) -> None:
        super().__init__()
        self._board, self._slot = board, slot
        self._places = {arm: place for place, arm in enumerate(arms)}

    def add(self, arm: str, field: ArmField, difference: int = 1) -> None:
        self._slot.add_to_arm(self._places[arm], field, difference)

    def total(self, arm: str, field: ArmField) -> int:
        return self._board.of_arm(self._places[arm], field)


def quantile(counts: Any, share: float) -> float | None:
    """Return a quantile of bucket counts in seconds, interpolated within its bucket; None without any."""
    total = int(sum(int(count) for count in counts))
    if not total:
        return None
    wanted, below = share * total, 0
    for index, count in enumerate(counts):
        if count and below + int(count) >= wanted:
            low = EDGES[index - 1] if index else 0.0
            high = EDGES[min(index, len(EDGES) - 1)]
            return low + (high - low) * (wanted - below) / int(count) if high > low else high
        below += int(count)
    return EDGES[-1]


def _anonymous_file() -> int:
    """Return the descriptor of a file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dgcf-serve", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
