"""How large a model may be asked to be: beyond it a setting is a slip of the finger, or more than the machine has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from dgcf.config import Between, OneOf
from dgcf.errors import ConfigError

MAX_DIM = 8192
MAX_LAYERS = 64
WIDTHS = OneOf((32, 64, 128))
"""The widths that the paper searched."""
DEPTHS = Between(1, 4)
"""The depths that the paper searched."""
MEMINFO = Path("/proc/meminfo")


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
    if not isinstance(config, Heavy):
        return
    needed, free = config.memory(n_users, n_items, n_pairs), free_memory()
    if free is not None and needed > free:
        raise ConfigError(
            f"model {name} needs about {_gigabytes(needed)} of memory for {n_users:,} users, {n_items:,} items and "
            f"{n_pairs:,} pairs, and {_gigabytes(free)} are free; {config.instead}."
        )


def free_memory() -> int | None:
    """Bytes that can be had without swapping; where the system does not tell, all it has; None if not even that."""
    try:
        fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(fields["MemAvailable"].removesuffix("kB")) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # no such call, or no such name, on this system
        return None


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 5e7 else f"{n_bytes / 1e6:,.1f} MB"
