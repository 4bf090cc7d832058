"""Writing statements of leases and refreshes: one holder at a time, over all processes that share the store."""

from __future__ import annotations

from sqlite3 import Connection

from dgcf.serve.events.records import NewModel, Result
from dgcf.serve.events.statements import now, publish_model

LEASE = "refresh"
"""The lease of the one refresh."""
LOST = "the process that ran it has ended, or its lease ran out"


def take_lease(con: Connection, name: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease; return False if another holder has it."""
    present = now()
    done = con.execute(
        "INSERT INTO leases VALUES (:name, :holder, :until) ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, "
        "until = excluded.until WHERE holder = excluded.holder OR until <= :now",
        {"name": name, "holder": holder, "until": present + round(seconds * 1e6), "now": present},
    )
    return done.rowcount > 0


def release_lease(con: Connection, name: str, holder: str) -> bool:
    """Release a lease; return False if the holder does not have it."""
    return con.execute("DELETE FROM leases WHERE name = ? AND holder = ?", [name, holder]).rowcount > 0


def begin(con: Connection, holder: str, asked: str, seconds: float) -> int | None:
    """Take the lease and record a new refresh; return its id, or None if another one runs.

    Refreshes whose holder has let the lease run out are recorded as failed.
    """
    if not take_lease(con, LEASE, holder, seconds):
        return None
    con.execute(
        "UPDATE refreshes SET ended = ?, step = NULL, result = 'failed', detail = ? WHERE ended IS NULL", [now(), LOST]
    )
    done = con.execute("INSERT INTO refreshes (holder, asked, started) VALUES (?, ?, ?)", [holder, asked, now()])
    assert done.lastrowid is not None
    return done.lastrowid


def renew(con: Connection, number: int, holder: str, step: str, seconds: float) -> bool:
    """Renew the lease of a refresh and record its step; return False if the refresh has lost its lease."""
    if not _holds(con, number, holder):
        return False
    con.execute("UPDATE refreshes SET step = ? WHERE id = ?", [step, number])
    return take_lease(con, LEASE, holder, seconds)


def end(con: Connection, number: int, holder: str, result: Result, detail: str, model: NewModel | None) -> int | None:
    """Record the end of a refresh, publish its model if there is one, and release the lease.

    Return the version of the model, 0 without one, and None if the refresh has lost its lease: then nothing is done.
    """
    if not _holds(con, number, holder):
        return None
    version = None if model is None else publish_model(con, model)
    con.execute(
        "UPDATE refreshes SET ended = ?, step = NULL, result = ?, detail = ?, version = ? WHERE id = ?",
        [now(), result, detail, version, number],
    )
    release_lease(con, LEASE, holder)
    return version or 0


def _holds(con: Connection, number: int, holder: str) -> bool:
    """Return whether a refresh runs and its holder has the lease."""
    held = con.execute(
        "SELECT count(*) FROM leases, refreshes WHERE name = ? AND leases.holder = ? AND until > ? AND id = ? "
        "AND refreshes.holder = leases.holder AND ended IS NULL",
        [LEASE, holder, now(), number],
    )
    return bool(held.fetchone()[0])
