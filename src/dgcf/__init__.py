"""Graph recommendations that explain themselves: Deoscillated Adaptive Graph Collaborative Filtering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgcf.version import __version__

if TYPE_CHECKING:
    from dgcf.recommend import Recommender, load

__all__ = ["Recommender", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that ``import dgcf`` is fast."""
    if name in ("Recommender", "load"):
        import dgcf.recommend

        return getattr(dgcf.recommend, name)
    raise AttributeError(f"module 'dgcf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
