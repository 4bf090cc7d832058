"""Search in the titles and ids of a model's items, by positions in one text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from dgcf.recommend.lookup import bare
from dgcf.recommend.snapshot import Snapshot


def words_of(title: str | None) -> str:
    """Return the words of a title as they are searched, each after a space."""
    return f" {bare(title)}" if title else ""


class Lines:
    """Texts that are searched for the places of those with some content, ascending."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._text = "\n" + "\n".join(lines)
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]  # of the line feeds before them

    def find(self, content: str, place: int) -> Iterator[int]:
        """Yield the places from ``place`` on at which ``content`` occurs, a line feed standing for a line's start."""
        while place < len(self.lines):
            at = self._text.find(content, self._starts[place])
            if at < 0:
                return
            place = bisect_right(self._starts, at) - 1
            yield place
            place += 1


class Titles:
    """The items of a model in the order of their popularity; ``ids`` and ``titles`` are their lines."""

    def __init__(self, snapshot: Snapshot) -> None:
        items = snapshot.items
        self.order = np.argsort(-snapshot.train.item_degrees, kind="stable").tolist()
        self.ids = Lines([items.texts[index] for index in self.order])
        titles = items.titles
        self.titles = Lines([words_of(titles[index]) if titles else "" for index in self.order])
        self.place_of = {item: place for place, item in enumerate(self.ids.lines)}

    def with_words(self, words: Sequence[str], first: int) -> Iterator[int]:
        """Yield the places of the items whose titles have all words, each a space and the start of a word."""
        rarest = max(words, key=len)
        for place in self.titles.find(rarest, first):
            if all(word in self.titles.lines[place] for word in words):
                yield place

    def with_prefix(self, prefix: str, first: int) -> Iterator[int]:
        """Yield the places of the items whose ids begin with a text."""
        for place in self.ids.find(f"\n{prefix}", first):
            if self.ids.lines[place].startswith(prefix):
                yield place
