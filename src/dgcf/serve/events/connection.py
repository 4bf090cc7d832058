"""The connection of the statements: SQL that SQLite and PostgreSQL both understand.

Values are ``?`` or ``:name``. The column ``user`` is quoted, because ``user`` alone is a function of PostgreSQL. Rows
are replaced by ``ON CONFLICT … DO UPDATE``, and ids of new rows are read by ``RETURNING``. Truth values are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """A connection of ``sqlite3``, or one of PostgreSQL that takes the same calls."""

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor: ...

    def given(self, **columns: Literal["text", "bigint"]) -> str:
        """Return the SQL of a table of the rows in ``:rows``, a JSON text of a list of lists, with these columns."""
