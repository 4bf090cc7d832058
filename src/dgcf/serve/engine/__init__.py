"""The model in memory, and what requests ask of it."""

from dgcf.serve.engine.engine import Engine

__all__ = ["Engine"]
