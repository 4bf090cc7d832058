"""The schema of the event store, its version, and the statements that bring an older version to this one."""

from __future__ import annotations

VERSION = 2

_MODELS_2 = {"arm": "TEXT NOT NULL DEFAULT 'main'", "origin": "TEXT", "card": "TEXT", "learned": "INTEGER"}
_TABLES_2 = """
CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE refreshes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, holder TEXT NOT NULL, cause TEXT NOT NULL, started INTEGER NOT NULL,
    ended INTEGER, step TEXT, result TEXT, detail TEXT, version INTEGER
) STRICT;
CREATE TABLE exposures (
    user TEXT NOT NULL, experiment TEXT NOT NULL, arm TEXT NOT NULL, first INTEGER NOT NULL,
    PRIMARY KEY (user, experiment)
) STRICT, WITHOUT ROWID;
CREATE INDEX exposures_by_time ON exposures (first);
"""

# A removed event keeps ``digest``, so that its key is not accepted again, and loses all that tells of the user.
# ``users`` are those that lost events; of a forgotten user only a digest is kept, by which a model's user is known
# as forgotten. Times (``time``, ``received``, ``published``, ``until``, ``started``, ``ended``, ``first``) are
# microseconds since 1970. ``changed`` numbers the changes. ``learned`` is the ``seq`` of the last event that a model
# was trained on. ``exposures``: when a user got the first list of an experiment, and of which arm.
SCHEMA = f"""
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, key TEXT, user TEXT, item TEXT, kind TEXT,
    weight REAL, time INTEGER, received INTEGER NOT NULL
) STRICT;
CREATE INDEX events_of_user ON events (user) WHERE user IS NOT NULL;
CREATE INDEX events_by_receipt ON events (received);
CREATE TABLE users (user TEXT PRIMARY KEY, changed INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX changed_users ON users (changed);
CREATE TABLE forgotten (digest TEXT PRIMARY KEY, changed INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX changed_forgotten ON forgotten (changed);
CREATE TABLE items (
    item TEXT PRIMARY KEY, changed INTEGER NOT NULL, present INTEGER NOT NULL, title TEXT, attributes TEXT NOT NULL,
    hidden INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX changed_items ON items (changed);
CREATE TABLE models (
    version INTEGER PRIMARY KEY AUTOINCREMENT, sha256 TEXT NOT NULL, path TEXT NOT NULL, published INTEGER NOT NULL,
    {", ".join(f"{name} {kind}" for name, kind in _MODELS_2.items())}
) STRICT;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO counters VALUES ('events', 0), ('change', 0), ('purged', 0), ('erased', 0);
{_TABLES_2}
"""
TABLES = {"events", "users", "forgotten", "items", "models", "counters", "leases", "refreshes", "exposures"}

MIGRATIONS = {
    1: "".join(f"ALTER TABLE models ADD COLUMN {name} {kind};\n" for name, kind in _MODELS_2.items()) + _TABLES_2
}
"""The statements that bring a version to the next one."""


def migration(version: int) -> str:
    """Return the statements that bring a file of an older ``version`` to ``VERSION``."""
    return "".join(MIGRATIONS[older] for older in range(version, VERSION))
