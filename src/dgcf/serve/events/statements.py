"""Writing statements of the event store; each runs within a transaction of the writer.

Statements handle many rows at once, because Python's lock is released and taken again for each step of SQLite.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from sqlite3 import Connection

from dgcf.serve.events.records import Event, ItemRecord, NewModel, user_digest

_DIGEST = 16
_FIELDS = ("key", "user", "item", "kind", "weight", "time")
_VALUES = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(_FIELDS)))
_INSERT = f"""
INSERT OR IGNORE INTO events (digest, received, {", ".join(_FIELDS)})
SELECT substr(:digests, 1 + {_DIGEST} * json_each.key, {_DIGEST}), :received, {_VALUES} FROM json_each(:rows) WHERE true
"""


def now() -> int:
    """Return the present time in microseconds since 1970."""
    return round(time.time() * 1e6)


def digest(key: str) -> bytes:
    """Return the digest that stands for a key, also after its event was removed."""
    return hashlib.blake2b(key.encode(), digest_size=_DIGEST).digest()


def insert(con: Connection, batches: Sequence[Sequence[Event]]) -> list[list[bool]]:
    """Store the events of all batches; return for each whether it is new (False: its key is known)."""
    marks = [[digest(event.key) for event in batch] for batch in batches]
    rows = [
        (event.key, event.user, event.item, event.kind, event.weight, round(event.time * 1e6))
        for batch in batches
        for event in batch
    ]
    before = con.total_changes
    values = {
        "digests": b"".join(mark for batch in marks for mark in batch),
        "received": now(),
        "rows": json.dumps(rows, ensure_ascii=False),
    }
    con.execute(_INSERT, values)
    inserted = con.total_changes - before
    _count(con, inserted)
    if inserted == len(rows):
        return [[True] * len(batch) for batch in batches]
    newest = "SELECT digest FROM events ORDER BY seq DESC LIMIT ?"
    text = con.execute(f"SELECT group_concat(hex(digest), ' ') FROM ({newest})", [inserted]).fetchone()[0]
    new = {bytes.fromhex(word) for word in (text or "").split()}
    return [[_take(new, mark) for mark in batch] for batch in marks]


def _take(new: set[bytes], mark: bytes) -> bool:
    """Return whether the digest is in ``new``, once."""
    if mark not in new:
        return False
    new.remove(mark)
    return True


def remove(con: Connection, key: str) -> bool:
    """Remove the event of a key; return False if there is none."""
    row = con.execute("SELECT user FROM events WHERE digest = ? AND user IS NOT NULL", [digest(key)]).fetchone()
    if row is None:
        return False
    _clear(con, "digest = ?", digest(key))
    _count(con, -1)
    _mark_users(con, [row[0]])
    return True


def forget(con: Connection, user: str) -> int:
    """Remove all events of a user and mark the user as forgotten; return the number of events."""
    count = _clear(con, "user = ?", user)
    _count(con, -count)
    note_erased(con)
    con.execute("DELETE FROM users WHERE user = ?", [user])
    con.execute("DELETE FROM exposures WHERE user = ?", [user])
    con.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", [user_digest(user), _next_change(con)])
    return count


def _clear(con: Connection, condition: str, value: object) -> int:
    nothing = ", ".join(f"{name} = NULL" for name in ("key", "user", "item", "kind", "weight", "time"))
    return con.execute(f"UPDATE events SET {nothing} WHERE {condition}", [value]).rowcount


def expire(con: Connection, before: int, limit: int) -> int:
    """Delete up to ``limit`` events that were received before a time; return their number."""
    oldest = "SELECT seq FROM events WHERE received < ? ORDER BY received LIMIT ?"
    users, live, count = con.execute(
        f"SELECT json_group_array(DISTINCT user), count(user), count(*) FROM events WHERE seq IN ({oldest})",
        [before, limit],
    ).fetchone()
    if not count:
        return 0
    con.execute(f"DELETE FROM events WHERE seq IN ({oldest})", [before, limit])
    _count(con, -live)
    note_erased(con)
    _mark_users(con, [user for user in json.loads(users) if user is not None])
    return int(count)


def note_erased(con: Connection) -> None:
    """Record that the file may hold remains of deleted rows, which SQLite leaves where it has moved them before."""
    con.execute("UPDATE counters SET value = 1 WHERE name = 'erased' AND value = 0")


def compact(con: Connection) -> None:
    """Write the file anew, if it may hold remains of deleted rows; not within a transaction."""
    if con.execute("SELECT value FROM counters WHERE name = 'erased'").fetchone()[0]:
        con.execute("VACUUM")
        con.execute("UPDATE counters SET value = 0 WHERE name = 'erased'")


def purge(con: Connection, before: int) -> None:
    """Delete the marks of users that lost events before a time.

    A reader at an older position is sent the whole content.
    """
    condition = "at < ?"
    newest = con.execute(f"SELECT max(changed) FROM users WHERE {condition}", [before]).fetchone()[0]
    if newest is not None:
        con.execute(f"DELETE FROM users WHERE {condition}", [before])
        con.execute("UPDATE counters SET value = max(value, ?) WHERE name = 'purged'", [newest])


def put_item(con: Connection, record: ItemRecord) -> bool:
    """Store the record of an item in place of the one that there may be; return whether there was none."""
    known = con.execute("SELECT count(*) FROM items WHERE item = ? AND present", [record.item]).fetchone()[0]
    con.execute(
        "INSERT OR REPLACE INTO items (item, changed, present, title, attributes, hidden) VALUES (?, ?, 1, ?, ?, ?)",
        [record.item, _next_change(con), record.title, json.dumps(dict(record.attributes)), record.hidden],
    )
    return not known


def delete_item(con: Connection, item: str) -> bool:
    """Delete the record of an item; return False if there is none."""
    done = con.execute(
        "UPDATE items SET present = 0, title = NULL, attributes = '{}', hidden = 0, changed = ? "
        "WHERE item = ? AND present",
        [_next_change(con), item],
    )
    return done.rowcount > 0


def publish_model(con: Connection, model: NewModel) -> int:
    """Add a generation of the model; return its version."""
    done = con.execute(
        "INSERT INTO models (sha256, path, published, arm, origin, card, learned) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [model.sha256, model.path, now(), model.arm, model.origin, model.card, model.learned],
    )
    assert done.lastrowid is not None
    return done.lastrowid


def _mark_users(con: Connection, users: Sequence[str]) -> None:
    con.execute(
        "INSERT OR REPLACE INTO users SELECT value, ?, ? FROM json_each(?) WHERE true",
        [_next_change(con), now(), json.dumps(users)],
    )


def _next_change(con: Connection) -> int:
    con.execute("UPDATE counters SET value = value + 1 WHERE name = 'change'")
    return int(con.execute("SELECT value FROM counters WHERE name = 'change'").fetchone()[0])


def _count(con: Connection, difference: int) -> None:
    if difference:
        con.execute("UPDATE counters SET value = value + ? WHERE name = 'events'", [difference])
