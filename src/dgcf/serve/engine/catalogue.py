"""Search of items and users: titles, records, histories."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from typing import Any

from dgcf.ids import RawId
from dgcf.recommend.lookup import bare
from dgcf.serve.engine.search import words_of
from dgcf.serve.engine.view import View
from dgcf.serve.errors import RequestError, UnknownError
from dgcf.serve.events.records import ItemRecord, StoredEvent


class Catalogue:
    """The items of a view, in the order of their popularity; those that the model does not have come last."""

    def __init__(self, view: View) -> None:
        self.view, self.items_changed = view, view.overlay.items_changed
        self._model = view.served.titles
        records = view.overlay.items.values()
        renamed = {self._model.place_of[record.item]: record.title for record in records if self._renames(record)}
        self._renamed = {place: words_of(renamed[place]) for place in sorted(renamed)}
        self._new_items: set[str] = set()
        self._others: list[tuple[str, str]] = []

    def _renames(self, record: ItemRecord) -> bool:
        return record.title is not None and record.item in self._model.place_of

    def search(self, query: str, cursor: str | None, limit: int) -> dict[str, Any]:
        """Return the items whose titles have all words of the query, or whose id begins with it."""
        first = _place_of(cursor)
        items: list[dict[str, Any]] = []
        following: str | None = None
        for place, item in self._matches(query, first):
            if len(items) == limit:
                following = _cursor_at(place)
                break
            items.append(describe(self.view, item))
        return {"items": items, "next": following, "model": self.view.served.version}

    def _matches(self, query: str, first: int) -> Iterator[tuple[int, str]]:
        """Yield the place and the id of each item that matches, from a place on."""
        words, prefix, ids = [f" {word}" for word in bare(query).split()], query.strip(), self._model.ids.lines
        if not prefix:
            known: Iterable[int] = range(first, len(ids))
        else:
            by_title = self._model.with_words(words, first) if words else ()
            own = (place for place, text in self._renamed.items() if place >= first and words and _has_all(text, words))
            as_trained = (place for place in by_title if place not in self._renamed)
            known = _distinct(merge(self._model.with_prefix(prefix, first), as_trained, own))
        yield from ((place, ids[place]) for place in known)
        for place, (item, text) in enumerate(self._new(), len(ids)):
            if place >= first and (not prefix or item.startswith(prefix) or (words and _has_all(text, words))):
                yield place, item

    def _new(self) -> list[tuple[str, str]]:
        """Return the items that the model does not have, and their words."""
        if self._new_items is not self.view.new_items:
            self._new_items = self.view.new_items
            self._others = [(item, words_of(self.view.overlay.title_of(item))) for item in sorted(self._new_items)]
        return self._others


def _has_all(text: str, words: Iterable[str]) -> bool:
    return all(word in text for word in words)


def _distinct(places: Iterable[int]) -> Iterator[int]:
    """Yield each of ascending places once."""
    return (place for place, _ in groupby(places))


def describe(view: View, item: str) -> dict[str, Any]:
    """Return what is known of an item."""
    items, record = view.snapshot.items, view.overlay.items.get(item)
    index = items.index_of(item) if item in items else None
    trained = item in view.served.snapshot.items
    likers = len(view.overlay.likers(item))
    users = likers if index is None or not trained else int(view.snapshot.train.item_degrees[index])
    return {
        "item": item if index is None else items.id_of(index),
        "title": view.overlay.title_of(item) if index is None else view.title(index),
        "users": users,
        "known": trained,
        "hidden": record is not None and record.hidden,
        "attributes": view.attributes_of(item),
    }


def item(view: View, name: RawId) -> dict[str, Any]:
    """Return what is known of an item; raise ``UnknownError`` for an unknown one."""
    text = str(name)
    if text not in view.snapshot.items and text not in view.new_items and text not in view.overlay.items:
        raise UnknownError(f"item {text!r} is unknown; search for items by GET /v1/items?q=, or store it by PUT.")
    return describe(view, text) | {"model": view.served.version}


def user(view: View, name: RawId, events: Sequence[StoredEvent], limit: int) -> dict[str, Any]:
    """Return the history of a user: the training items, and the newest of the user's events."""
    text, snapshot = str(name), view.served.snapshot
    known = view.in_model(text)
    if not known and text not in view.overlay.users:
        raise UnknownError(f"user {text!r} is unknown; give a user of the model, or one with events.")
    index = snapshot.users.index_of(text) if known else None
    history = [] if index is None else snapshot.seen[index].tolist()
    return {
        "user": text if index is None else snapshot.users.id_of(index),
        "known": known,
        "history": [{"item": snapshot.items.id_of(place), "title": view.title(place)} for place in history[:limit]],
        "history_size": len(history),
        "events": [
            {
                "item": event.item,
                "title": _title(view, event.item),
                "kind": event.kind,
                "weight": event.weight,
                "time": datetime.fromtimestamp(event.time, UTC).isoformat(),
                "key": event.key,
            }
            for event in reversed(events[-limit:])
        ],
        "model": view.served.version,
    }


def _title(view: View, item: str) -> str | None:
    items = view.snapshot.items
    return view.title(items.index_of(item)) if item in items else view.overlay.title_of(item)


def _cursor_at(place: int) -> str:
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def _place_of(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise RequestError("the cursor is not one of an answer; leave it out, or give `next` as it was answered.")
    return int(text)
