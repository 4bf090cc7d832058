"""Event stores of the tests: a file, and a schema of a PostgreSQL server that the tests have started."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dgcf.serve.events.address import parse
from dgcf.serve.events.postgres.link import connect

Where = Path | str
BACKENDS = ("file", "postgres")
_numbers = itertools.count()


def new_schema(dsn: str) -> str:
    """Return the URL of a schema that does not exist yet."""
    return f"{dsn}?schema=events_{next(_numbers)}"


@contextlib.contextmanager
def session(where: Where) -> Iterator[Any]:
    """Yield a connection of another program, which executes SQL that both databases take."""
    if isinstance(where, Path):
        with contextlib.closing(sqlite3.connect(where, isolation_level=None)) as con:
            yield con
    else:
        con = connect(parse(where))
        with contextlib.closing(con.raw):
            yield con


@contextlib.contextmanager
def blocked(where: Where) -> Iterator[None]:
    """Keep all others from writing."""
    with session(where) as con:
        con.execute("BEGIN IMMEDIATE" if isinstance(where, Path) else "BEGIN")
        con.execute("UPDATE counters SET value = value")
        try:
            yield
        finally:
            con.execute("ROLLBACK")
