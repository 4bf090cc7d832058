"""What has happened since the model was trained: events of users, records of items, users to forget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dgcf.data.vocabulary import Vocabulary
from dgcf.serve.errors import StoreDownError
from dgcf.serve.events.records import MAIN, NEGATIVE, Changes, ItemRecord, ModelRow, Position, StoredEvent, user_digest
from dgcf.serve.events.store import EventStore


@dataclass
class UserEvents:
    """``likes``: whether the newest event of each item is a positive one, in the order of first events."""

    likes: dict[str, bool] = field(default_factory=dict)

    @property
    def liked(self) -> list[str]:
        return [item for item, likes in self.likes.items() if likes]

    @property
    def avoided(self) -> list[str]:
        return [item for item, likes in self.likes.items() if not likes]


class Overlay:
    """The events, items and forgotten users of a store, in memory; ``sync`` takes over what was committed since.

    ``model`` is the newest published model. ``items_changed`` counts changes of records of items. ``touched`` are the
    items with new or removed events since ``take_touched``. ``forgets`` counts takings over of forgotten users.
    """

    def __init__(self, store: EventStore | None, arm: str = MAIN) -> None:
        """``arm``: whose models ``model`` is the newest of. Without a store, nothing is ever taken over."""
        self._store, self.arm = store, arm
        self.model: ModelRow | None = None
        self.items_changed = self.forgets = 0
        self._position, self._data_version = Position.START, -1
        self._clear()

    def _clear(self) -> None:
        self.users: dict[str, UserEvents] = {}
        self.items: dict[str, ItemRecord] = {}
        self._forgotten: set[str] = set()  # digests
        self.touched: set[str] = set()
        self._users_of: dict[str, dict[str, bool]] = {}  # of each item: its users, and whether they like it

    @property
    def store(self) -> EventStore:
        assert self._store is not None
        return self._store

    @classmethod
    def of(cls, events: Iterable[StoredEvent]) -> Overlay:
        """Return the overlay of some events, which stays as it is."""
        overlay = cls(None)
        for event in events:
            overlay._add(event)
        return overlay

    def sync(self) -> bool:
        """Take over all that was committed before this call; return whether there was anything."""
        version = self._data_version if self._store is None else self._store.version()
        if self._store is None or version == self._data_version:
            return False
        try:
            changes = self._store.changes(self._position, self.arm)
        except StoreDownError:  # answer from what was read before
            return False
        self._take(changes)
        self._position, self._data_version = changes.position, version
        return True

    @property
    def version(self) -> int:
        """The ``version`` of the store up to which all was taken over."""
        return self._data_version

    @property
    def change(self) -> int:
        """The number of the last change (``Position``) that was taken over."""
        return self._position.change

    def is_forgotten(self, user: str) -> bool:
        return bool(self._forgotten) and user_digest(user) in self._forgotten

    @property
    def n_forgotten(self) -> int:
        return len(self._forgotten)

    def _take(self, changes: Changes) -> None:
        if changes.reset:
            self._clear()
        self._forgotten |= changes.forgotten
        if changes.forgotten:
            self.forgets += 1
            for user in [user for user in self.users if user_digest(user) in changes.forgotten]:
                self._read_again(user, ())
        for user, events in changes.users.items():
            self._read_again(user, events)
        for event in changes.events:
            self._add(event)
        for item, record in changes.items.items():
            if record is None:
                self.items.pop(item, None)
            else:
                self.items[item] = record
        if changes.items or changes.reset:
            self.items_changed += 1
        self.model = changes.model or self.model

    def take_touched(self) -> set[str]:
        """Return the items with new or removed events, and forget that they have them."""
        touched, self.touched = self.touched, set()
        return touched

    def likers(self, item: str) -> list[str]:
        """Return the users who like an item by their events."""
        return [user for user, likes in self._users_of.get(item, {}).items() if likes]

    def knows_item(self, item: str) -> bool:
        """Return whether an item has an event or a record."""
        return item in self._users_of or item in self.items

    def unknown_to(self, items: Vocabulary) -> set[str]:
        """Return the items of events and of records that a model does not have."""
        return {item for of in (self._users_of, self.items) for item in of if item not in items}

    def title_of(self, item: str) -> str | None:
        record = self.items.get(item)
        return None if record is None else record.title

    def _add(self, event: StoredEvent) -> None:
        likes = event.kind not in NEGATIVE
        self.users.setdefault(event.user, UserEvents()).likes[event.item] = likes
        self._users_of.setdefault(event.item, {})[event.user] = likes
        self.touched.add(event.item)

    def _read_again(self, user: str, events: Iterable[StoredEvent]) -> None:
        """Take the events that are left of a user who lost some."""
        before = self.users.pop(user, UserEvents())
        self.touched |= before.likes.keys()
        for item in before.likes:
            users = self._users_of[item]
            del users[user]
            if not users:
                del self._users_of[item]
        for event in events:
            self._add(event)
