"""The SQLite file of the event store: creation and migration, connections to it, and its errors as one sentence."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from dgcf.files import explain_os_errors, folder_lock
from dgcf.serve.errors import RequestError, StoreFullError
from dgcf.serve.events.schema import SCHEMA, TABLES, VERSION, migration

APPLICATION_ID = 0x64676366
BUSY_SECONDS = 10.0
CHECKED_BYTES = 64 * 2**20
"""Largest file that is checked completely when it is opened."""


class StoreError(RequestError):
    """The file of the event store is damaged, foreign, or of a newer version."""

    kind: ClassVar[str] = "store"
    status, title = 503, "The event store cannot be read"


def open_database(path: Path) -> None:
    """Create the file if there is none, migrate one of an older version, and check that it is readable."""
    with explain_os_errors(path):
        created = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        if created:
            _sync_folder(path.parent.parent)
        with folder_lock(path.parent):
            _check_file(path)
            with explain(path, str(path)), contextlib.closing(connect(path, create=True)) as con:
                version = _version_of(con, path)
                if version == 0:
                    _create(con)
                elif version < VERSION:
                    _migrate(con, version)
                _check_content(con, path)
        _sync_folder(path.parent)


def connect(path: Path, *, read: bool = False, create: bool = False, timeout: float = BUSY_SECONDS) -> FileConnection:
    """Return a connection that may be used by any thread, one at a time."""
    con = sqlite3.connect(
        f"{path.absolute().as_uri()}?{_mode(path, create)}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
        factory=FileConnection,
    )
    try:
        con.execute("PRAGMA synchronous = FULL")
        con.execute("PRAGMA secure_delete = ON")
        con.execute(f"PRAGMA journal_size_limit = {CHECKED_BYTES}")
        con.execute("PRAGMA trusted_schema = OFF")
        if read:
            con.execute("PRAGMA query_only = ON")
    except BaseException:
        con.close()
        raise
    return con


class FileConnection(sqlite3.Connection):
    """A connection that the statements of the store run on."""

    def given(self, **columns: Literal["text", "bigint"]) -> str:
        """Return the SQL of a table of the rows in ``:rows``."""
        values = ", ".join(f"json_extract(value, '$[{place}]') AS \"{name}\"" for place, name in enumerate(columns))
        return f"(SELECT {values} FROM json_each(:rows))"


def compact(con: sqlite3.Connection) -> None:
    """Write the file anew, if it may hold remains of deleted rows; not within a transaction."""
    if con.execute("SELECT value FROM counters WHERE name = 'erased'").fetchone()[0]:
        con.execute("VACUUM")
        con.execute("UPDATE counters SET value = 0 WHERE name = 'erased'")


def _mode(path: Path, create: bool) -> str:
    """Return how the file is opened; on a read-only disk without a log, since SQLite could not create one."""
    log = path.with_name(f"{path.name}-wal")
    if path.exists() and not log.exists() and os.statvfs(path).f_flag & os.ST_RDONLY:
        return "mode=ro&immutable=1"
    return f"mode={'rwc' if create else 'rw'}"


def _check_file(path: Path) -> None:
    """Refuse what is not a regular file, and a file that is not of SQLite."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a regular file, expected the events of a service; choose another data folder.")
    with path.open("rb") as file:
        start = file.read(16)
    if start not in (b"", b"SQLite format 3\0"):
        raise StoreError(
            f"{path} is not an event store, or its start is damaged; restore it from a copy, or choose another data "
            "folder."
        )


def _version_of(con: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema, 0 of a file without tables; refuse another program's or a newer file."""
    tables = con.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application = con.execute("PRAGMA application_id").fetchone()[0]
    if not tables and application in (0, APPLICATION_ID):
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is the database of another program; choose another data folder.")
    version = int(con.execute("PRAGMA user_version").fetchone()[0])
    if not 1 <= version <= VERSION:
        raise StoreError(
            f"{path} has the schema version {version}, expected at most {VERSION}; open it with the version of dgcf "
            "that wrote it, or a newer one."
        )
    return version


def _create(con: sqlite3.Connection) -> None:
    con.execute("PRAGMA journal_mode = WAL")
    con.executescript(
        f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; {SCHEMA} COMMIT;"
    )


def _migrate(con: sqlite3.Connection, version: int) -> None:
    con.executescript(f"BEGIN IMMEDIATE; {migration(version)} PRAGMA user_version = {VERSION}; COMMIT;")


def _check_content(con: sqlite3.Connection, path: Path) -> None:
    con.execute("PRAGMA journal_mode = WAL")
    tables = {name for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    verdict = [("ok",)]
    if path.stat().st_size <= CHECKED_BYTES:
        verdict = con.execute("PRAGMA quick_check(1)").fetchall()
    if not tables >= TABLES or verdict != [("ok",)]:
        raise StoreError(f"{path} is damaged; restore it from a copy, or choose another data folder.")


@contextlib.contextmanager
def explain(path: Path, label: str | None = None) -> Iterator[None]:
    """Turn an error of SQLite into a StoreFullError or a StoreError of one sentence that names the file."""
    try:
        yield
    except sqlite3.Error as problem:
        raise as_request_error(problem, label or path.name) from problem


def as_request_error(problem: sqlite3.Error, label: str) -> RequestError:
    """Return the error of a request that an error of SQLite makes fail."""
    code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    reasons = {
        sqlite3.SQLITE_FULL: "the disk is full; free some space and try again",
        sqlite3.SQLITE_READONLY: "the file or its disk is read-only; make it writable and try again",
        sqlite3.SQLITE_PERM: "the file may not be written; check its rights and try again",
        sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check its folder and the free space, and try again",
        sqlite3.SQLITE_IOERR: "the disk refuses to write; check its free space and its state, and try again",
        sqlite3.SQLITE_BUSY: "another process holds its lock; try again",
        sqlite3.SQLITE_LOCKED: "another process holds its lock; try again",
    }
    reason = reasons.get(code & 0xFF)
    if reason is not None:
        return StoreFullError(f"cannot write to {label}: {reason}.")
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"{label} is damaged; restore it from a copy, or choose another data folder.")
    return StoreError(f"{label} cannot be used ({problem}); restore it from a copy, or choose another data folder.")


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one at its path; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
