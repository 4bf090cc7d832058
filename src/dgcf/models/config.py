"""How large a model may be asked to be: beyond it a setting is a slip of the finger, or more than the machine has."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dgcf.config import Between, OneOf
from dgcf.memory import require_memory

MAX_DIM = 8192
MAX_LAYERS = 64
WIDTHS = OneOf((32, 64, 128))
"""The widths that the paper searched."""
DEPTHS = Between(1, 4)
"""The depths that the paper searched."""


@runtime_checkable
class Heavy(Protocol):
    """The settings of a model that may need far more memory than rows for nodes and entries for edges."""

    @property
    def instead(self) -> str:
        """What to do where the memory is not there: the end of a sentence, such as ``lower rank with --set rank=…``."""

    def memory(self, n_users: int, n_items: int, n_pairs: int) -> int:
        """Bytes that the model will need at its peak beyond what every model needs."""


def refuse_too_large(name: str, config: object, n_users: int, n_items: int, n_pairs: int) -> None:
    """Stop before memory is touched where a model needs more of it than is free; settings without ``memory`` pass."""
    if isinstance(config, Heavy):
        require_memory(
            config.memory(n_users, n_items, n_pairs),
            f"model {name}",
            config.instead,
            size=f"{n_users:,} users, {n_items:,} items and {n_pairs:,} pairs",
        )
