"""Raw ids and their indices, both ways: kept as given, found again, stored without pickle."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import DataError, did_you_mean
from dgcf.ids import RawId

IdKind = Literal["text", "integer"]
_WHOLE = re.compile(r"-?[0-9]{1,4000}")  # more digits than that int() refuses


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Distinct raw ids in a fixed order; the index of an id is its place.

    The order is by length, then by bytes (so numbers count up: 2 before 10). It depends on the ids alone, never on
    the order of a file. ``what`` names the thing in messages ("user", "item"). ``kind`` is ``integer`` where the
    source was typed so, and decides only how an id is handed back; text such as ``007`` stays text.

    ``blob``: the ids' UTF-8 bytes, end to end; ``offsets``: (n + 1,) int64, where each one begins.
    """

    what: str
    blob: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    kind: IdKind = "text"
    titles: tuple[str, ...] | None = field(default=None, repr=False)

    @classmethod
    def from_sorted(
        cls, what: str, ids: Iterable[str], kind: IdKind = "text", titles: Sequence[str] | None = None
    ) -> Vocabulary:
        """From texts that are already distinct and in the vocabulary's order."""
        encoded = [text.encode() for text in ids]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        blob = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls(what, blob, offsets, kind, tuple(titles) if titles is not None else None)

    @classmethod
    def from_ids(cls, what: str, ids: Iterable[RawId], kind: IdKind = "text") -> Vocabulary:
        """From ids in any order, repeats allowed."""
        return cls.from_sorted(what, sorted({str(raw) for raw in ids}, key=_order), kind)

    @classmethod
    def checked(
        cls,
        what: str,
        blob: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        kind: IdKind,
        titles: Sequence[str] | None,
    ) -> Vocabulary:
        """From stored arrays; a ValueError says what they are not: distinct UTF-8 ids, each with its title."""
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(blob) or (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"{what}_offsets does not give each id its place in {what}_ids")
        vocabulary = cls(what, blob, offsets, kind, None if titles is None else tuple(titles))
        try:
            distinct = len(vocabulary._index) == len(vocabulary)
        except UnicodeDecodeError as problem:
            raise ValueError(f"{what}_ids holds an id that is not UTF-8") from problem
        if not distinct:
            raise ValueError(f"{what}_ids holds an id twice")
        if kind == "integer" and not all(map(_WHOLE.fullmatch, vocabulary.texts)):
            raise ValueError(f"{what}_ids holds an id that is not the whole number it is said to be")
        if titles is not None and len(titles) != len(vocabulary):
            raise ValueError(f"there are {len(titles)} {what} titles for {len(vocabulary)} ids")
        return vocabulary

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[RawId]:
        return (self.id_of(index) for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Vocabulary)
            and self.what == other.what
            and self.kind == other.kind
            and self.texts == other.texts
            and self.titles == other.titles
        )

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, raw: RawId) -> bool:
        return str(raw) in self._index

    @cached_property
    def texts(self) -> list[str]:
        """All ids as text, by index."""
        raw, ends = self.blob.tobytes(), self.offsets.tolist()
        return [raw[start:end].decode() for start, end in itertools.pairwise(ends)]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.texts)}

    def id_of(self, index: int) -> RawId:
        """The raw id at an index, of the type in which it came."""
        text = self.texts[index]
        return int(text) if self.kind == "integer" else text

    def index_of(self, raw: RawId) -> int:
        """The index of a raw id; ``196`` and ``"196"`` name the same one."""
        try:
            return self._index[str(raw)]
        except KeyError:
            near = did_you_mean(str(raw), self.texts) if len(self) <= 100_000 else ""
            shown = ", ".join(self.texts[:3])
            advice = near or (f"; give an id as in the training data, such as {shown}." if shown else ".")
            raise DataError(f"unknown {self.what} {str(raw)!r} among {len(self):,}{advice}") from None

    def title_of(self, index: int) -> str:
        """The title where one is known, or the id."""
        return (self.titles[index] if self.titles else "") or self.texts[index]

    def take(self, index: NDArray[np.integer]) -> Vocabulary:
        """The ids at ascending indices, as a vocabulary of their own."""
        if len(index) == len(self):
            return self
        starts, lengths = self.offsets[:-1][index], np.diff(self.offsets)[index]
        offsets = np.zeros(len(index) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # The bytes kept: for each id, its start in the old blob plus 0, 1, … within the id.
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        blob = self.blob[np.repeat(starts, lengths) + within]
        titles = tuple(self.titles[i] for i in index.tolist()) if self.titles else None
        return Vocabulary(self.what, blob, offsets, self.kind, titles)

    def with_titles(self, titles: dict[str, str]) -> Vocabulary:
        """The same ids, each with its title where ``titles`` has one."""
        named = tuple(titles.get(text, "") for text in self.texts)
        return Vocabulary(self.what, self.blob, self.offsets, self.kind, named if any(named) else None)


def _order(text: str) -> tuple[int, bytes]:
    encoded = text.encode()
    return len(encoded), encoded
