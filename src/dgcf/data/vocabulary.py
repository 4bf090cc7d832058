"""The vocabulary: maps raw ids of users or items to contiguous indices and back."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import ReadArray, row_entries
from dgcf.errors import DataError, did_you_mean
from dgcf.ids import RawId

IdKind = Literal["text", "integer"]


class IdKinds(TypedDict):
    """The kinds of ids that a file holds."""

    users: IdKind
    items: IdKind


_WHOLE = re.compile(r"-?[0-9]{1,4000}")  # int() refuses more than 4300 digits


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Distinct raw ids in a fixed order; the index of an id is its position.

    Ids are ordered by length, then by bytes (2 before 10), whatever the order in the file. ``what`` is ``user`` or
    ``item``. ``kind`` is ``integer`` if the source column had an integer type; it only decides the type of returned
    ids. Text such as ``007`` stays text.

    ``blob``: the concatenated UTF-8 bytes of the ids; ``offsets``: (n + 1,) int64, the start of each id in ``blob``.
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
        """Return the vocabulary of texts that are distinct and sorted already."""
        encoded = [text.encode() for text in ids]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        blob = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls(what, blob, offsets, kind, tuple(titles) if titles is not None else None)

    @classmethod
    def from_ids(cls, what: str, ids: Iterable[RawId], kind: IdKind = "text") -> Vocabulary:
        """Return the vocabulary of ids in any order, which may repeat."""
        return cls.from_sorted(what, sorted({str(raw) for raw in ids}, key=_order), kind)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store, their names prefixed by ``what``; kind and titles are stored apart."""
        return {f"{self.what}_ids": self.blob, f"{self.what}_offsets": self.offsets}

    @classmethod
    def from_arrays(cls, what: str, read: ReadArray, kind: IdKind, titles: Sequence[str] | None) -> Vocabulary:
        """Return the vocabulary that ``to_arrays`` stored; raise ValueError unless it holds distinct UTF-8 ids."""
        blob, offsets = read(f"{what}_ids", "|u1"), read(f"{what}_offsets", "<i8")
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
        """All ids as text, in index order."""
        raw, ends = self.blob.tobytes(), self.offsets.tolist()
        return [raw[start:end].decode() for start, end in itertools.pairwise(ends)]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.texts)}

    def id_of(self, index: int) -> RawId:
        """Return the raw id at an index, in its original type."""
        text = self.texts[index]
        return int(text) if self.kind == "integer" else text

    def index_of(self, raw: RawId) -> int:
        """Return the index of a raw id; ``196`` and ``"196"`` are the same id. Raise DataError if it is unknown."""
        try:
            return self._index[str(raw)]
        except KeyError:
            near = did_you_mean(str(raw), self.texts) if len(self) <= 100_000 else ""
            shown = ", ".join(self.texts[:3])
            advice = near or (f"; give an id as in the training data, such as {shown}." if shown else ".")
            raise DataError(f"unknown {self.what} {str(raw)!r} among {len(self):,}{advice}") from None

    def title_of(self, index: int) -> str:
        """Return the title at an index, or the id if there is none."""
        return (self.titles[index] if self.titles else "") or self.texts[index]

    def take(self, index: NDArray[np.integer]) -> Vocabulary:
        """Return the vocabulary of the ids at ascending indices."""
        if len(index) == len(self):
            return self
        kept, lengths = row_entries(self.offsets, index)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        titles = tuple(self.titles[i] for i in index.tolist()) if self.titles else None
        return Vocabulary(self.what, self.blob[kept], offsets, self.kind, titles)

    def with_more(self, titles: dict[str, str]) -> Vocabulary:
        """Return these ids, with new ones and their titles (or "") at the end; what is derived is not derived again."""
        ids = list(titles)
        if not all(len(text) and text not in self._index for text in ids):
            raise ValueError("an id is known already, or empty")
        more = Vocabulary.from_sorted(self.what, ids)
        named = None
        if self.titles is not None or any(titles.values()):
            named = (*(self.titles or ("",) * len(self)), *titles.values())
        blob = np.concatenate([self.blob, more.blob])
        offsets = np.concatenate([self.offsets, self.offsets[-1] + more.offsets[1:]])
        wider = Vocabulary(self.what, blob, offsets, self.kind, named)
        wider.__dict__["texts"] = [*self.texts, *ids]
        wider.__dict__["_index"] = {**self._index, **{text: len(self) + place for place, text in enumerate(ids)}}
        return wider

    def with_titles(self, titles: dict[str, str]) -> Vocabulary:
        """Return these ids with the titles that ``titles`` has for them."""
        named = tuple(titles.get(text, "") for text in self.texts)
        return Vocabulary(self.what, self.blob, self.offsets, self.kind, named if any(named) else None)


def _order(text: str) -> tuple[int, bytes]:
    encoded = text.encode()
    return len(encoded), encoded
