"""Exposures: the first time that a user gets a list in an experiment, collected in memory and stored once a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from dgcf.ids import RawId
from dgcf.serve.engine.overlay import Overlay
from dgcf.serve.errors import RequestError
from dgcf.serve.events.records import Exposure, check_id
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.tally import ArmField, Tally

FLUSH_SECONDS = 1.0
MOST_KNOWN = 100_000
"""Users who are remembered as exposed; the store ignores those that come again."""
MOST_WAITING = 50_000
"""Exposures that wait for a disk that cannot write; more are dropped, and come again with the next list."""
log = logging.getLogger("dgcf.serve")


class Exposures:
    """The exposures of this process to an experiment.

    ``overlay`` says what the store was when an exposure was noted: a user who is forgotten before it is written stays
    forgotten.
    """

    def __init__(self, store: EventStore, experiment: str, overlay: Overlay, tally: Tally) -> None:
        self._store, self._experiment, self._overlay, self._tally = store, experiment, overlay, tally
        self._known: set[str] = set()
        self._waiting: dict[str, Exposure] = {}
        self._change = 0  # of the store when the oldest one that waits was noted
        self._forgets = 0
        self._failing = False

    def note(self, user: RawId, arm: str) -> None:
        """Note that a user got a list; it costs a look into a set, and is written later."""
        text = str(user)
        if self._forgets != self._overlay.forgets:
            self._forgets = self._overlay.forgets
            self._known.clear()
        if text in self._known or len(self._waiting) >= MOST_WAITING:
            return
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known.add(text)
        if not self._waiting:
            self._change = self._overlay.change
        self._waiting.setdefault(text, Exposure(text, arm, time.time()))

    async def run(self) -> None:
        """Write what waits, once a second."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write what waits; if the store cannot write, it waits for the next time."""
        waiting, change = self._waiting, self._change
        if not waiting:
            return
        self._waiting = {}
        rows = [exposure for exposure in waiting.values() if _is_valid(exposure.user)]
        try:
            added = await asyncio.wrap_future(self._store.add_exposures(self._experiment, rows, change))
        except Exception as problem:  # of the disk or the database, which may come back
            self._change = min(change, self._change) if self._waiting else change
            self._waiting = {**self._waiting, **waiting}
            if not self._failing:
                log.error("exposures cannot be stored: %s", problem)
            self._failing = True
            return
        self._failing = False
        for arm, count in added.items():
            self._tally.add(arm, ArmField.EXPOSURES, count)


def _is_valid(user: str) -> bool:
    """Return whether the user can have events."""
    with contextlib.suppress(RequestError):
        return bool(check_id(user, "user"))
    return False
