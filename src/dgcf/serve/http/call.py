"""A request after all checks, as the functions that answer it get it."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope


class Call:
    """Identifiers of the path and options of the query by name, and the body."""

    __slots__ = ("body", "ids", "query", "scope")

    def __init__(self, scope: Scope, ids: dict[str, str], query: dict[str, Any], body: Any) -> None:
        self.scope, self.ids, self.query, self.body = scope, ids, query, body

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header; ``name`` is in lower case."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return None
