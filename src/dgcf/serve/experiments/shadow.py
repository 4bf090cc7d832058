"""A shadow: a model that ranks a share of the lists again after they were sent, and is only compared with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from dgcf.ids import RawId
from dgcf.serve.engine.asks import Ask
from dgcf.serve.engine.engine import Engine
from dgcf.serve.errors import RequestError
from dgcf.serve.experiments.tally import ArmField, Tally

MOST_WAITING = 256
"""Lists that wait; more are dropped and counted."""
PAUSE_SECONDS = 0.02
"""How long a list waits at least, so that its answer is on its way."""
MILLION = 1_000_000
log = logging.getLogger("dgcf.serve")


class Shadow:
    """Compares the answers of ``engine`` with those that were sent. ``share``: how many of the lists it ranks."""

    def __init__(self, engine: Engine, share: float, tally: Tally) -> None:
        self.engine, self._share, self._tally = engine, share, tally
        self._due = 0.0
        self._waiting: asyncio.Queue[tuple[Ask, list[RawId]]] = asyncio.Queue(MOST_WAITING)

    def offer(self, ask: Ask, answer: dict[str, Any]) -> None:
        """Take a list that was answered, if it belongs to the share and not too many wait."""
        self._due += self._share
        if self._due < 1:
            return
        self._due -= 1
        try:
            self._waiting.put_nowait((ask, items_of(answer)))
        except asyncio.QueueFull:
            self._tally.add(self.engine.arm, ArmField.DROPPED)

    async def run(self) -> None:
        """Rank what was taken, one list at a time."""
        while True:
            ask, served = await self._waiting.get()
            await asyncio.sleep(PAUSE_SECONDS)
            await self._compare(ask, served)
            while not self._waiting.empty():
                await self._compare(*self._waiting.get_nowait())

    async def _compare(self, ask: Ask, served: Sequence[RawId]) -> None:
        started = perf_counter()
        try:
            answer = await self.engine.rank(replace(ask, why=False))
        except RequestError:  # a rule that this model cannot follow
            self._tally.add(self.engine.arm, ArmField.DROPPED)
            return
        except Exception:
            log.exception("the shadow %s failed", self.engine.arm)
            self._tally.add(self.engine.arm, ArmField.DROPPED)
            return
        arm, tally = self.engine.arm, self._tally
        tally.add(arm, ArmField.NANOSECONDS, round((perf_counter() - started) * 1e9))
        tally.add(arm, ArmField.OVERLAP, round(overlap(served, items_of(answer)) * MILLION))
        tally.add(arm, ArmField.ANSWERS)


def overlap(served: Sequence[RawId], other: Sequence[RawId]) -> float:
    """Return the share of the items of the longer list that are in both; 1 for two empty lists."""
    longest = max(len(served), len(other))
    return len(set(served) & set(other)) / longest if longest else 1.0


def items_of(answer: dict[str, Any]) -> list[RawId]:
    return [row["item"] for row in answer["recommendations"]]
