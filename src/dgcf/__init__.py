"""Graph recommendations that explain themselves: Deoscillated Adaptive Graph Collaborative Filtering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgcf.version import __version__

if TYPE_CHECKING:
    from dgcf.client import AsyncClient as AsyncClient
    from dgcf.client import Client as Client
    from dgcf.recommend import Recommender, load

# Without the clients, so that ``from dgcf import *`` works where httpx is not installed.
__all__ = ["Recommender", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that ``import dgcf`` is fast."""
    if name in ("Recommender", "load"):
        import dgcf.recommend

        return getattr(dgcf.recommend, name)
    if name in ("AsyncClient", "Client"):
        import dgcf.client

        return getattr(dgcf.client, name)
    raise AttributeError(f"module 'dgcf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "AsyncClient", "Client"]
