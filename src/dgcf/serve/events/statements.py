"""Writing statements of the event store; each runs within a transaction of the writer."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence

from dgcf.serve.events.connection import Connection
from dgcf.serve.events.records import ItemRecord, NewModel, user_digest

DIGEST = 16
"""Bytes of a digest."""
_MARK = """
INSERT INTO users {users} ON CONFLICT ("user") DO UPDATE SET changed = excluded.changed, at = excluded.at
"""


def now() -> int:
    """Return the present time in microseconds since 1970."""
    return round(time.time() * 1e6)


def digest(key: str) -> bytes:
    """Return the digest that stands for a key, also after its event was removed."""
    return hashlib.blake2b(key.encode(), digest_size=DIGEST).digest()


def which_are_new(marks: Sequence[Sequence[bytes]], new: set[bytes]) -> list[list[bool]]:
    """Return for each digest whether it is in ``new``, of equal ones the first; ``new`` is used up."""

    def take(mark: bytes) -> bool:
        if mark not in new:
            return False
        new.remove(mark)
        return True

    return [[take(mark) for mark in batch] for batch in marks]


def remove(con: Connection, key: str) -> bool:
    """Remove the event of a key; return False if there is none."""
    row = con.execute('SELECT "user" FROM events WHERE digest = ? AND "user" IS NOT NULL', [digest(key)]).fetchone()
    if row is None:
        return False
    _clear(con, "digest = ?", digest(key))
    count_events(con, -1)
    con.execute(_MARK.format(users="VALUES (?, ?, ?)"), [row[0], _next_change(con), now()])
    return True


def forget(con: Connection, user: str) -> int:
    """Remove all events of a user and mark the user as forgotten; return the number of events."""
    count = _clear(con, '"user" = ?', user)
    count_events(con, -count)
    note_erased(con)
    con.execute('DELETE FROM users WHERE "user" = ?', [user])
    con.execute('DELETE FROM exposures WHERE "user" = ?', [user])
    con.execute(
        "INSERT INTO forgotten VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET changed = excluded.changed",
        [user_digest(user), _next_change(con)],
    )
    return count


def _clear(con: Connection, condition: str, value: object) -> int:
    nothing = ", ".join(f"{name} = NULL" for name in ("key", '"user"', "item", "kind", "weight", "time"))
    return con.execute(f"UPDATE events SET {nothing} WHERE {condition}", [value]).rowcount


def expire(con: Connection, before: int, limit: int) -> int:
    """Delete up to ``limit`` events that were received before a time; return their number."""
    oldest = "SELECT seq FROM events WHERE received < ? ORDER BY received, seq LIMIT ?"
    live, count = con.execute(
        f'SELECT count("user"), count(*) FROM events WHERE seq IN ({oldest})', [before, limit]
    ).fetchone()
    if not count:
        return 0
    users = f'SELECT DISTINCT "user", ?, ? FROM events WHERE seq IN ({oldest}) AND "user" IS NOT NULL'
    con.execute(_MARK.format(users=users), [_next_change(con), now(), before, limit])
    con.execute(f"DELETE FROM events WHERE seq IN ({oldest})", [before, limit])
    count_events(con, -live)
    note_erased(con)
    return int(count)


def note_erased(con: Connection) -> None:
    """Record that the file may hold remains of deleted rows, which SQLite leaves where it has moved them before."""
    con.execute("UPDATE counters SET value = 1 WHERE name = 'erased' AND value = 0")


def purge(con: Connection, before: int) -> None:
    """Delete the marks of users that lost events before a time.

    A reader at an older position is sent the whole content.
    """
    condition = "at < ?"
    newest = con.execute(f"SELECT max(changed) FROM users WHERE {condition}", [before]).fetchone()[0]
    if newest is not None:
        con.execute(f"DELETE FROM users WHERE {condition}", [before])
        con.execute("UPDATE counters SET value = ? WHERE name = 'purged' AND value < ?", [newest, newest])


def put_item(con: Connection, record: ItemRecord) -> bool:
    """Store the record of an item in place of the one that there may be; return whether there was none."""
    known = con.execute("SELECT count(*) FROM items WHERE item = ? AND present = 1", [record.item]).fetchone()[0]
    con.execute(
        "INSERT INTO items (item, changed, present, title, attributes, hidden) VALUES (?, ?, 1, ?, ?, ?) "
        "ON CONFLICT (item) DO UPDATE SET changed = excluded.changed, present = 1, title = excluded.title, "
        "attributes = excluded.attributes, hidden = excluded.hidden",
        [record.item, _next_change(con), record.title, json.dumps(dict(record.attributes)), int(record.hidden)],
    )
    return not known


def delete_item(con: Connection, item: str) -> bool:
    """Delete the record of an item; return False if there is none."""
    done = con.execute(
        "UPDATE items SET present = 0, title = NULL, attributes = '{}', hidden = 0, changed = ? "
        "WHERE item = ? AND present = 1",
        [_next_change(con), item],
    )
    return done.rowcount > 0


def publish_model(con: Connection, model: NewModel) -> int:
    """Add a generation of the model; return its version."""
    columns = ("sha256", "path", "published", "arm", "origin", "card", "learned")
    values = [model.sha256, model.path, now(), model.arm, model.origin, model.card, model.learned]
    return new_id(con, "models", "version", columns, values)


def new_id(con: Connection, table: str, key: str, columns: Sequence[str], values: Sequence[object]) -> int:
    """Insert a row, and return the number that the database has given it in the column ``key``."""
    marks = ", ".join("?" * len(columns))
    done = con.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) RETURNING {key}", values)
    return int(done.fetchall()[0][0])


def _next_change(con: Connection) -> int:
    con.execute("UPDATE counters SET value = value + 1 WHERE name = 'change'")
    return int(con.execute("SELECT value FROM counters WHERE name = 'change'").fetchone()[0])


def count_events(con: Connection, difference: int) -> None:
    """Add to the number of events."""
    if difference:
        con.execute("UPDATE counters SET value = value + ? WHERE name = 'events'", [difference])
