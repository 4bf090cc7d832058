"""When the next refresh is due, and what the refreshes in the store say of the present one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dgcf.serve.events.records import ModelRow, RefreshRow
from dgcf.serve.events.refreshes import LEASE, LOST
from dgcf.serve.events.store import EventStore

RETRY_SECONDS = 900.0
"""The longest pause after a refresh that failed; one that was refused waits for the next turn."""


@dataclass(frozen=True)
class Present:
    """What the store says: the newest refreshes, the model of everybody, and whether the newest refresh runs."""

    newest: RefreshRow | None
    before: RefreshRow | None
    model: ModelRow | None
    running: bool

    @classmethod
    def read(cls, store: EventStore) -> Present:
        newest, before = [*store.refreshes(2), None, None][:2]
        lease = store.lease(LEASE)
        holder = None if lease is None or lease[1] <= time.time() else lease[0]
        running = newest is not None and newest.ended is None and newest.holder == holder
        if newest is not None and newest.ended is None and not running:
            until = lease[1] if lease is not None and lease[0] == newest.holder else newest.started
            newest = newest._replace(ended=until, step=None, result="failed", detail=LOST)
        return cls(newest, before, store.current_model(), running)

    def due(self, every: float | None) -> float | None:
        """Return when the next refresh is due, in seconds since 1970; None if none is.

        After a rollback none is due: it would learn again what was rolled back.
        """
        if every is None or self.running or self.model is None or self.model.origin == "rollback":
            return None
        newest = self.newest
        if newest is None:
            return self.model.published + every
        if newest.result == "failed" and newest.ended is not None:
            return newest.ended + min(every, RETRY_SECONDS)
        return newest.started + every

    def to_dict(self, every: float | None) -> dict[str, Any]:
        """Return the state as JSON data."""
        running = self.newest if self.running else None
        last = self.before if self.running else self.newest
        return {
            "state": "running" if self.running else "idle",
            "step": running and running.step,
            "started": running and iso(running.started),
            "last": None if last is None else _ended(last),
            "every": every,
            "next": iso(self.due(every)),
        }


def _ended(row: RefreshRow) -> dict[str, Any]:
    return {
        "started": iso(row.started),
        "ended": iso(row.ended),
        "result": row.result,
        "detail": row.detail,
        "version": row.version,
    }


def iso(seconds: float | None) -> str | None:
    """Return a time in UTC as ISO 8601."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
