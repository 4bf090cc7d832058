"""The tables of the events in PostgreSQL: creation and migration under a lock, and what is refused."""

from __future__ import annotations

import time

from psycopg import sql

from dgcf.serve.errors import StoreDownError
from dgcf.serve.events.address import Address
from dgcf.serve.events.database import StoreError
from dgcf.serve.events.postgres.link import DatabaseConnection, connect, explained

VERSION = 1
MARKER = "dgcf_events"
"""The table whose one row has the version of the schema."""
START_SECONDS = 15.0
"""How long a server waits at its start for a database that does not answer."""
OLDEST = 130_000
"""The oldest server that is supported: 13."""
_AGAIN = 0.5

# The columns are those of the SQLite file. ``commits`` numbers the writing transactions: whoever writes first adds one
# to it and so holds its row until the end, which makes ``seq`` and ``changed`` grow in the order of commits.
SCHEMA = """
CREATE TABLE dgcf_events (version integer NOT NULL);
CREATE TABLE events (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, digest bytea NOT NULL UNIQUE, key text,
    "user" text COLLATE "C", item text, kind text, weight double precision, time bigint, received bigint NOT NULL
);
CREATE INDEX events_of_user ON events ("user") WHERE "user" IS NOT NULL;
CREATE INDEX events_by_receipt ON events (received, seq);
CREATE TABLE users ("user" text COLLATE "C" PRIMARY KEY, changed bigint NOT NULL, at bigint NOT NULL);
CREATE INDEX changed_users ON users (changed);
CREATE TABLE forgotten (digest text COLLATE "C" PRIMARY KEY, changed bigint NOT NULL);
CREATE INDEX changed_forgotten ON forgotten (changed);
CREATE TABLE items (
    item text COLLATE "C" PRIMARY KEY, changed bigint NOT NULL, present smallint NOT NULL, title text,
    attributes text NOT NULL, hidden smallint NOT NULL
);
CREATE INDEX changed_items ON items (changed);
CREATE TABLE models (
    version bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sha256 text NOT NULL, path text NOT NULL,
    published bigint NOT NULL, arm text COLLATE "C" NOT NULL DEFAULT 'main', origin text, card text, learned bigint
);
CREATE TABLE leases (name text COLLATE "C" PRIMARY KEY, holder text NOT NULL, until bigint NOT NULL);
CREATE TABLE refreshes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, holder text NOT NULL, cause text NOT NULL,
    started bigint NOT NULL, ended bigint, step text, result text, detail text, version bigint
);
CREATE TABLE exposures (
    "user" text COLLATE "C", experiment text COLLATE "C", arm text COLLATE "C" NOT NULL, first bigint NOT NULL,
    PRIMARY KEY ("user", experiment)
);
CREATE INDEX exposures_by_time ON exposures (first);
CREATE TABLE counters (name text COLLATE "C" PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 10);
INSERT INTO counters VALUES ('events', 0), ('change', 0), ('purged', 0), ('commits', 0);
"""
TABLES = {"events", "users", "forgotten", "items", "models", "leases", "refreshes", "exposures", "counters"}
MIGRATIONS: dict[int, str] = {}
"""The statements that bring a version to the next one."""
_TABLES_OF = """
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = ? AND relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY relname
"""


def open_database(address: Address) -> None:
    """Create the tables if there are none, migrate older ones, and check that the database can hold them.

    Waits for a database that does not answer yet, at most ``START_SECONDS``.
    """
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with explained(address):
                con = connect(address, lock_timeout="60s", statement_timeout="0")
                with con.raw, con.raw.transaction():
                    _prepare(con, address)
            return
        except StoreDownError:
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN)


def _prepare(con: DatabaseConnection, address: Address) -> None:
    _check_server(con, address)
    con.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", [f"dgcf events {address.schema}"])
    tables = {name for (name,) in con.execute(_TABLES_OF, [address.schema]).fetchall()}
    if not tables:
        _create(con, address)
        return
    where = f"the schema {address.schema} of {address.label}"
    if MARKER not in tables:
        raise StoreError(
            f"{where} has tables of another program ({', '.join(sorted(tables)[:3])}); name another one with "
            "?schema=NAME in the URL."
        )
    version = int(con.execute(f"SELECT version FROM {MARKER}").fetchall()[0][0])
    if not 1 <= version <= VERSION:
        raise StoreError(
            f"{where} has the version {version}, expected at most {VERSION}; use the version of dgcf that wrote it, or "
            "a newer one."
        )
    for older in range(version, VERSION):
        con.execute(MIGRATIONS[older])
    if version < VERSION:
        con.execute(f"UPDATE {MARKER} SET version = ?", [VERSION])
    if missing := sorted(TABLES - tables):
        raise StoreError(f"{where} lacks the tables {', '.join(missing)}; restore them from a backup.")


def _check_server(con: DatabaseConnection, address: Address) -> None:
    if con.raw.info.server_version < OLDEST:
        raise StoreError(f"{address.label} is older than PostgreSQL {OLDEST // 10_000}; upgrade the server.")
    encoding = con.execute("SHOW server_encoding").fetchall()[0][0]
    if encoding != "UTF8":
        raise StoreError(f"{address.label} has the encoding {encoding}, expected UTF8; create another database.")


def _create(con: DatabaseConnection, address: Address) -> None:
    if not con.execute("SELECT count(*) FROM pg_namespace WHERE nspname = ?", [address.schema]).fetchall()[0][0]:
        con.raw.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.schema)))
    con.execute(SCHEMA)
    con.execute(f"INSERT INTO {MARKER} VALUES (?)", [VERSION])
