"""A connection to PostgreSQL that is opened when it is needed, and again after it was lost."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import psycopg
from psycopg import sql

from dgcf.serve.errors import RequestError, StoreDownError, StoreFullError
from dgcf.serve.events.address import Address
from dgcf.serve.events.database import StoreError

DEFAULTS = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "8000",  # milliseconds until a machine that does not answer counts as gone
    "application_name": "dgcf",
}
SETTINGS = {
    "statement_timeout": "20s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",  # a server that hangs must not hold the lock of the writers
}
RETRY_SECONDS = 0.2
"""A connection that failed is not tried again for so long."""
CHECK_SECONDS = 0.5
"""A connection that was idle so long is tried before it writes."""
_MARK = re.compile(r"\?|(?<!:):(?!:)([a-z_]\w*)")
_REASONS = {
    "53100": "its disk is full; free some space and try again",
    "53300": "it has no connection left; raise max_connections",
    "25006": "it is read-only, as a standby is; give the address of the primary",
    "55P03": "another server holds its lock; try again",
    "57014": "it takes too long; try again",
    "40001": "another transaction was first; try again",
    "40P01": "another transaction was first; try again",
}
_DOWN = ("08", "57P", "25P", "53")


class DatabaseConnection:
    """A connection that the statements of the store run on; ``raw`` is that of psycopg."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.raw = raw

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.raw.execute(translated(sql), values or None)

    def given(self, **columns: Literal["text", "bigint"]) -> str:
        """Return the SQL of a table of the rows in ``:rows``."""
        values = ", ".join(
            f'(value->>{place})::{kind} AS "{name}"' for place, (name, kind) in enumerate(columns.items())
        )
        return f"(SELECT {values} FROM json_array_elements(:rows::json) AS given_rows (value))"


@lru_cache(256)
def translated(text: str) -> Any:
    """Return a statement with the marks of psycopg for values in place of ``?`` and ``:name``."""
    return _MARK.sub(lambda mark: f"%({mark[1]})s" if mark[1] else "%s", text)


def connect(address: Address, **settings: str) -> DatabaseConnection:
    """Return a new connection; it commits each statement unless a transaction is begun."""
    raw = psycopg.connect(**{**DEFAULTS, **address.parameters, "client_encoding": "utf8"}, autocommit=True)  # type: ignore[arg-type]
    try:
        chosen = {**SETTINGS, **settings, "search_path": address.schema}
        parts = [sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(chosen[name])) for name in chosen]
        raw.execute(sql.SQL("; ").join(parts))
    except BaseException:
        raw.close()
        raise
    return DatabaseConnection(raw)


class Link:
    """A connection that threads use one at a time. Errors of the database are those of requests."""

    def __init__(self, address: Address, **settings: str) -> None:
        self._address, self._settings = address, settings
        self._lock = threading.Lock()
        self._con: DatabaseConnection | None = None
        self._used = self._failed = -1e9
        self._reason = ""

    @contextlib.contextmanager
    def use(self) -> Iterator[DatabaseConnection]:
        """Yield the connection; it is closed after an error."""
        with self._lock, explained(self._address):
            try:
                con = self._checked()
                yield con
                self._used = time.monotonic()
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _checked(self) -> DatabaseConnection:
        """Return the connection, a new one if the server has closed it."""
        if self._con is not None and time.monotonic() - self._used > CHECK_SECONDS:
            try:
                self._con.raw.execute("SELECT 1")
            except psycopg.Error:
                self._drop()
        if self._con is None:
            if time.monotonic() - self._failed < RETRY_SECONDS:
                raise down(self._address, self._reason)
            try:
                self._con = connect(self._address, **self._settings)
            except psycopg.OperationalError as problem:
                self._failed, self._reason = time.monotonic(), first_line(problem)
                raise
        return self._con

    def _drop(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            with contextlib.suppress(psycopg.Error):
                con.raw.close()


@contextlib.contextmanager
def explained(address: Address) -> Iterator[None]:
    """Turn an error of PostgreSQL into one of a request, of one sentence that names the database."""
    try:
        yield
    except psycopg.Error as problem:
        raise as_request_error(problem, address) from problem


def as_request_error(problem: psycopg.Error, address: Address) -> RequestError:
    """Return the error of a request that an error of PostgreSQL makes fail."""
    state = problem.sqlstate or ""
    if state in _REASONS:
        return StoreFullError(f"cannot use the events in {address.label}: {_REASONS[state]}.")
    if state.startswith(_DOWN) or (
        not state and isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
    ):
        return down(address, first_line(problem))
    return StoreError(
        f"the events in {address.label} cannot be used ({first_line(problem)}); correct that and try again."
    )


def down(address: Address, reason: str) -> StoreDownError:
    """Return the error that the database does not answer."""
    return StoreDownError(f"the database {address.label} does not answer ({reason}); try again.")


def first_line(problem: Exception) -> str:
    """Return the first line of an error, shortened."""
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0][:200].rstrip(".")
