"""Look up users and items by raw id or title; unknown names get the nearest as a hint."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Literal, cast, get_args

import numpy as np

from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.ids import RawId
from dgcf.ranking.arrays import Indices

Ids = RawId | Iterable[RawId]

Unknown = Literal["raise", "skip", "popular"]
"""What to do about a user who is not in the training data."""

_OFFERED = 5
_NAMED, _LONGEST = 3, 40
_YEAR = re.compile(r"\s*\(\d{4}\)\s*$")
_ARTICLE = re.compile(r"^(.*), (the|a|an|le|la|les|il|el|das|der|die)$", re.IGNORECASE)
_SIGNS = re.compile(r"[^\w]+")


def bare(title: str) -> str:
    """Return a title in lower case, without year, punctuation and accents, and with its article in front.

    >>> bare("Lion King, The (1994)")
    'the lion king'
    """
    text = _ARTICLE.sub(r"\2 \1", _YEAR.sub("", title).strip())
    plain = unicodedata.normalize("NFKD", text.casefold())
    return _SIGNS.sub(" ", "".join(sign for sign in plain if not unicodedata.combining(sign))).strip()


def _without_article(name: str) -> str:
    first, _, rest = name.partition(" ")
    return rest if rest and first in ("the", "a", "an") else name


class Names:
    """Finds the index of a user or an item by its id, its title, or a part of the title."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def find(self, name: RawId) -> int:
        """Return the index of an id, else of a full title, a title without year and article, or words of a title."""
        index = self.look_up(name)
        if index is not None:
            return index
        if not self.vocabulary.titles or not isinstance(name, str):
            return self.vocabulary.index_of(name)  # which offers the nearest id
        raise DataError(f"no {self.vocabulary.what} has the id or the title {name!r}{self._nearest(name)}")

    def look_up(self, name: RawId) -> int | None:
        """Return the same, or None for an unknown name; raise ``DataError`` for one that matches several titles."""
        if name in self.vocabulary:
            return self.vocabulary.index_of(name)
        for matches in self._matches(name) if self.vocabulary.titles and isinstance(name, str) else ():
            if len(matches) > 1:
                raise DataError(
                    f"{name!r} matches {len(matches)} titles: {self._offer(matches[:_OFFERED])}"
                    f"{', …' if len(matches) > _OFFERED else ''}; give one in full, or its id."
                )
            if matches:
                return matches[0]
        return None

    def find_all(self, names: Iterable[RawId]) -> list[int]:
        return [self.find(name) for name in names]

    def find_known(self, names: Ids, unknown: Unknown) -> tuple[list[RawId], Indices, list[str]]:
        """Return raw ids, their indices, −1 for an unknown one, and the unknown names; ``raise`` refuses these."""
        if unknown not in get_args(Unknown):
            near = did_you_mean(str(unknown), get_args(Unknown)) or "."
            raise ConfigError(f"unknown is {unknown!r}, expected one of {', '.join(get_args(Unknown))}{near}")
        given = as_list(names)
        if unknown == "raise":
            index = self.find_all(given)
        else:
            index = [-1 if number is None else number for number in map(self.look_up, given)]
        pairs = list(zip(given, index, strict=True))
        ids = [name if number < 0 else self.vocabulary.id_of(number) for name, number in pairs]
        return ids, np.array(index, dtype=np.int64), [str(name) for name, number in pairs if number < 0]

    def _matches(self, name: str) -> Iterable[list[int]]:
        """Yield the indices of the titles that match a name, by ever looser comparisons."""
        folded = name.strip().casefold()
        titles = self.vocabulary.titles or ()
        yield [index for index, title in enumerate(titles) if title and title.casefold() == folded]
        wanted = bare(name)
        if not wanted:
            return
        yield self._by_bare.get(_without_article(wanted), [])
        words = f" {wanted} "
        yield [index for index, title in enumerate(self._bare) if words in f" {title} "]

    def _nearest(self, name: str) -> str:
        near = get_close_matches(_without_article(bare(name)), list(self._by_bare), n=3, cutoff=0.6)
        offered = [index for title in near for index in self._by_bare[title]][:_OFFERED]
        return f"; did you mean {self._offer(offered)}?" if offered else "."

    def _offer(self, indices: list[int]) -> str:
        return ", ".join(f"'{self.vocabulary.title_of(index)}'" for index in indices)

    @cached_property
    def _bare(self) -> list[str]:
        return [bare(title) if title else "" for title in self.vocabulary.titles or ()]

    @cached_property
    def _by_bare(self) -> dict[str, list[int]]:
        by_title: dict[str, list[int]] = {}
        for index, title in enumerate(self._bare):
            if title:
                by_title.setdefault(_without_article(title), []).append(index)
        return by_title


def note_unknown(ids: Sequence[str], what: str, effect: str, place: str = "") -> list[str]:
    """Return a note that counts unknown ids and names the first of them, or nothing if there are none."""
    if not ids:
        return []
    nodes, are = (f"{len(ids):,} {what}s", "are") if len(ids) > 1 else (f"1 {what}", "is")
    more = ", …" if len(ids) > _NAMED else ""
    return [f"{nodes}{place} {are} unknown and {effect}: {quoted(ids)}{more}."]


def quoted(ids: Sequence[str]) -> str:
    """Return the first ids, shortened, as one line."""
    return ", ".join(repr(text[:_LONGEST]) for text in ids[:_NAMED])


def as_list(names: Ids) -> list[RawId]:
    """Return ids as a list: from one id, or from a list, tuple, array or column of a frame."""
    if isinstance(names, (str, int)):
        return [names]
    if isinstance(names, np.generic):
        return [names.item()]
    if not isinstance(names, Iterable):
        raise DataError(f"{names!r} is no id, expected text, a whole number, or a list of them.")
    # An array's numbers are NumPy's own; ids are Python's.
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def item_lists(items: Ids | Iterable[Ids]) -> tuple[list[Ids], bool]:
    """Return lists of items, and whether several were given; one list of ids is the only one."""
    if isinstance(items, Iterable) and not isinstance(items, str):
        parts = list(items)
        several = [isinstance(part, Iterable) and not isinstance(part, (str, np.generic)) for part in parts]
        if any(several):
            if not all(several):
                raise DataError("some of the items are lists and some are not; give one list of items, or lists alone.")
            return parts, True
        return [cast(Ids, parts)], False
    return [items], False
