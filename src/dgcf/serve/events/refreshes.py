"""Writing statements of leases and refreshes: one holder at a time, over all processes that share the store."""

from __future__ import annotations

from dgcf.serve.events.connection import Connection
from dgcf.serve.events.records import NewModel, Result
from dgcf.serve.events.statements import new_id, now, publish_model

LEASE = "refresh"
"""The lease of the one refresh."""
LOST = "the process that ran it has ended, or its lease ran out; the served model stays."
OVERTAKEN = "model {other} was published while model {base} was updated; the newer one stays."


def take_lease(con: Connection, name: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease; return False if another holder has it."""
    present = now()
    done = con.execute(
        "INSERT INTO leases VALUES (:name, :holder, :until) ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, "
        "until = excluded.until WHERE leases.holder = excluded.holder OR leases.until <= :now",
        {"name": name, "holder": holder, "until": present + round(seconds * 1e6), "now": present},
    )
    return done.rowcount > 0


def release_lease(con: Connection, name: str, holder: str) -> bool:
    """Release a lease; return False if the holder does not have it."""
    return con.execute("DELETE FROM leases WHERE name = ? AND holder = ?", [name, holder]).rowcount > 0


def begin(con: Connection, holder: str, cause: str, seconds: float, newest: int | None) -> int | None:
    """Take the lease and record a new refresh; return its id, or None if another one runs.

    ``newest``: the id that the newest refresh has to have, 0 if there is none; None for any. Refreshes whose
    holder has let the lease run out are recorded as failed.
    """
    last = con.execute("SELECT coalesce(max(id), 0) FROM refreshes").fetchone()[0]
    if newest not in (None, last) or not take_lease(con, LEASE, holder, seconds):
        return None
    con.execute(
        "UPDATE refreshes SET ended = ?, step = NULL, result = 'failed', detail = ? WHERE ended IS NULL", [now(), LOST]
    )
    return new_id(con, "refreshes", "id", ("holder", "cause", "started"), [holder, cause, now()])


def renew(con: Connection, number: int, holder: str, step: str, seconds: float) -> bool:
    """Renew the lease of a refresh and record its step; return False if the refresh has lost its lease."""
    if not _holds(con, number, holder):
        return False
    con.execute("UPDATE refreshes SET step = ? WHERE id = ?", [step, number])
    return take_lease(con, LEASE, holder, seconds)


def end(con: Connection, number: int, holder: str, result: Result, detail: str, model: NewModel | None) -> int | None:
    """Record the end of a refresh, publish its model if there is one, and release the lease.

    Return the version of the model, 0 if none was published, and None if the refresh has lost its lease: then nothing
    is done. If another model was published since ``model.after``, the refresh is refused.
    """
    if not _holds(con, number, holder):
        return None
    version = None
    if model is not None and (other := _published_since(con, model)) is not None:
        result, detail = "refused", OVERTAKEN.format(other=other, base=model.after)
    elif model is not None:
        version = publish_model(con, model)
    con.execute(
        "UPDATE refreshes SET ended = ?, step = NULL, result = ?, detail = ?, version = ? WHERE id = ?",
        [now(), result, detail, version, number],
    )
    release_lease(con, LEASE, holder)
    return version or 0


def _published_since(con: Connection, model: NewModel) -> int | None:
    """Return the newest version of the arm if it is not the one that the model has to come after."""
    if model.after is None:
        return None
    newest = con.execute("SELECT coalesce(max(version), 0) FROM models WHERE arm = ?", [model.arm]).fetchone()[0]
    return None if newest == model.after else int(newest)


def _holds(con: Connection, number: int, holder: str) -> bool:
    """Return whether a refresh runs and its holder has the lease."""
    held = con.execute(
        "SELECT count(*) FROM leases, refreshes WHERE name = ? AND leases.holder = ? AND until > ? AND id = ? "
        "AND refreshes.holder = leases.holder AND ended IS NULL",
        [LEASE, holder, now(), number],
    )
    return bool(held.fetchone()[0])
