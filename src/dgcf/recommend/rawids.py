"""The raw ids of users or items as a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from dgcf.data.vocabulary import Vocabulary
from dgcf.ids import RawId

_SHOWN = 5


class RawIds(Sequence[RawId]):
    """All ids in the order of their indices; ``in`` and ``index`` are fast.

    >>> ids = RawIds(Vocabulary.from_ids("user", ["anna", "bert"]))
    >>> ids
    ['anna', 'bert']
    >>> "anna" in ids, ids.index("bert"), ids[-1]
    (True, 1, 'bert')
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self._vocabulary)

    @overload
    def __getitem__(self, index: int) -> RawId: ...
    @overload
    def __getitem__(self, index: slice) -> list[RawId]: ...
    def __getitem__(self, index: int | slice) -> RawId | list[RawId]:
        if isinstance(index, slice):
            return [self._vocabulary.id_of(place) for place in range(len(self))[index]]
        return self._vocabulary.id_of(range(len(self))[index])

    def __iter__(self) -> Iterator[RawId]:
        return iter(self._vocabulary)

    def __contains__(self, raw: object) -> bool:
        return isinstance(raw, str | int) and raw in self._vocabulary

    def index(self, raw: RawId, start: int = 0, stop: int | None = None) -> int:
        """Return the index of an id; raise ValueError if it is not one of them."""
        if raw not in self:
            raise ValueError(f"{raw!r} is not one of the {len(self):,} {self._vocabulary.what}s")
        return range(start, len(self) if stop is None else stop).index(self._vocabulary.index_of(raw)) + start

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if len(self) <= _SHOWN:
            return repr(list(self))
        return f"[{', '.join(map(repr, self[:_SHOWN]))}, … {len(self):,} {self._vocabulary.what}s]"
