"""Counters of arms and shadows since the service started."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

MOST_MODELS = 8
"""Models in one service: the main one, arms and shadows."""


class ArmField(IntEnum):
    """What is counted of an arm; the last four are those of a shadow.

    ``OVERLAP``: the sum of the overlaps with the answers that were sent, in millionths.
    """

    REQUESTS = 0
    EXPOSURES = 1
    ANSWERS = 2
    OVERLAP = 3
    NANOSECONDS = 4
    DROPPED = 5


class Tally:
    """Counters of this process; a server has one that adds up all workers."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, ArmField]] = Counter()

    def add(self, arm: str, field: ArmField, difference: int = 1) -> None:
        self._counts[arm, field] += difference

    def total(self, arm: str, field: ArmField) -> int:
        return self._counts[arm, field]
