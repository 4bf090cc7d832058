"""The history of a dataset: what each step of its preparation removed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Removed:
    """Counts of what a step removed: rows (``pairs``), and the users and items that had no other rows."""

    filter: str
    pairs: int
    users: int
    items: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
