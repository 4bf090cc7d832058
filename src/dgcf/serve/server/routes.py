"""The routes of the service: for each template its methods and the scope of the token that each needs.

A path that is not in this table is answered here with 404, so no route is ever open by mistake. The template, never the
path, is what logs and metrics name.
"""

from __future__ import annotations

from dataclasses import dataclass

from dgcf.serve.server.refusal import Refusal
from dgcf.serve.settings import Scope

READ: dict[str, Scope | None] = {"GET": "read"}
OPEN: dict[str, Scope | None] = {"GET": None}

ROUTES: dict[str, dict[str, Scope | None]] = {
    "/": OPEN,
    "/page/{file}": OPEN,
    "/healthz": OPEN,
    "/readyz": OPEN,
    "/metrics": READ,
    "/openapi.json": OPEN,
    "/docs": OPEN,
    "/v1/recommend": {"POST": "read"},
    "/v1/recommend/{user}": READ,
    "/v1/similar/items/{item}": READ,
    "/v1/similar/users/{user}": READ,
    "/v1/explain": {"POST": "read"},
    "/v1/explain/{user}/{item}": READ,
    "/v1/items": READ,
    "/v1/items/{item}": {"GET": "read", "PUT": "write", "DELETE": "write"},
    "/v1/users/{user}": {"GET": "read", "DELETE": "write"},
    "/v1/events": {"POST": "write"},
    "/v1/events/export": {"GET": "admin"},
    "/v1/events/{key}": {"DELETE": "write"},
    "/v1/model": READ,
    "/v1/model/charts": READ,
    "/v1/operations": READ,
    "/v1/experiments": {"GET": "admin"},
    "/v1/models": READ,
    "/v1/admin/reload": {"POST": "admin"},
    "/v1/admin/refresh": {"GET": "admin", "POST": "admin"},
    "/v1/admin/rollback": {"POST": "admin"},
}
UNMATCHED = "unmatched"


@dataclass(frozen=True, slots=True)
class Route:
    """A template, the scope of each of its methods, and its segments; None stands for a parameter."""

    template: str
    scopes: dict[str, Scope | None]
    segments: tuple[str | None, ...]


def _table() -> dict[tuple[int, str], list[Route]]:
    table: dict[tuple[int, str], list[Route]] = {}
    for template, scopes in ROUTES.items():
        segments = tuple(None if part.startswith("{") else part for part in template.split("/")[1:])
        head = segments[1] if segments[0] == "v1" else segments[0]
        table.setdefault((len(segments), head or ""), []).append(Route(template, scopes, segments))
    return table


_TABLE = _table()


def routes_of(path: str) -> list[Route]:
    """Return the routes that an encoded path matches; a parameter is one segment that is not empty."""
    parts = path.split("/")[1:]
    head = parts[1] if parts and parts[0] == "v1" and len(parts) > 1 else (parts or [""])[0]
    return [route for route in _TABLE.get((len(parts), head), ()) if _fits(route.segments, parts)]


def _fits(segments: tuple[str | None, ...], parts: list[str]) -> bool:
    for segment, part in zip(segments, parts, strict=True):
        if part != segment and (segment is not None or not part):
            return False
    return True


def choose(routes: list[Route], method: str) -> tuple[Route, Scope | None]:
    """Return the route that takes a method and the scope that it needs; refuse with 404 or 405 if there is none."""
    wanted = "GET" if method == "HEAD" else method
    for route in routes:
        if wanted in route.scopes:
            return route, route.scopes[wanted]
    if not routes:
        raise Refusal(404, "there is nothing at this path; /docs lists the routes.")
    allowed = ", ".join(methods_of(routes))
    raise Refusal(405, f"this path takes {allowed}; send one of them.", [(b"allow", allowed.encode())])


def methods_of(routes: list[Route]) -> list[str]:
    """Return the methods that a path takes."""
    methods = {method for route in routes for method in route.scopes}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))
