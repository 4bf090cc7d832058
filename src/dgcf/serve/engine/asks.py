"""What a request asks of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dgcf.ids import RawId


@dataclass(frozen=True)
class Ask:
    """A list of ``k`` items for a user, for the ``items`` of a new user, or for a user with more ``items``.

    ``negative``: items to avoid, and what resembles them. ``seen``: whether items that the user has may be in the list.
    ``only``: the only items to recommend; ``max_per``: how many items may share the value of an attribute.
    ``visitor``: who a new user is to an experiment; the list does not follow from it.
    """

    user: RawId | None = None
    items: tuple[RawId, ...] = ()
    negative: tuple[RawId, ...] = ()
    k: int = 10
    seen: bool = False
    why: bool = False
    only: tuple[RawId, ...] | None = None
    exclude: tuple[RawId, ...] = ()
    max_per: Mapping[str, int] = field(default_factory=dict)
    visitor: RawId | None = None

    @property
    def plain(self) -> bool:
        """Whether the list follows from the user alone."""
        return self.user is not None and not (self.items or self.exclude or self.ruled)

    @property
    def ruled(self) -> bool:
        """Whether the list is ranked on its own, because of rules or items to avoid."""
        return self.only is not None or bool(self.max_per) or bool(self.negative)
