"""A model together with the events since it was trained: lists, explanations and similar items under both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import DgcfError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Indices, Side
from dgcf.ranking.boost import boosted_index, boosted_queries, join_queries, score_all
from dgcf.ranking.topk import EmbeddingIndex, TopK
from dgcf.recommend.explain import Explanation
from dgcf.recommend.lookup import note_unknown
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.rerank import ItemRules, Limit, Ranker
from dgcf.recommend.snapshot import Snapshot
from dgcf.serve.engine.asks import Ask
from dgcf.serve.engine.extended import can_extend, extended
from dgcf.serve.engine.overlay import Overlay
from dgcf.serve.engine.served import Served
from dgcf.serve.errors import RequestError, UnknownError

NEGATIVE_WEIGHT = 0.5
"""c in the score ``s(liked) − c · s(negative)`` of a user with items to avoid."""
Attributes = Mapping[str, Mapping[str, str | float | bool]]
Source = Literal["model", "events", "popular"]
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Query:
    """A list to be ranked: ``user`` is the index of a known user, ``items`` all that the user has, ascending.

    ``row`` is the query of the index; None for a known user as trained, and where popular items are recommended.
    ``source`` says what the list follows from.
    """

    ask: Ask
    user: int | None
    items: Indices
    hidden: Indices
    source: Source
    row: Any = None
    negative: Indices = field(default_factory=lambda: _NONE)
    notes: tuple[str, ...] = ()


class View:
    """A served model, extended by the new items of an overlay, through which alone further events change it."""

    def __init__(self, served: Served, overlay: Overlay, attributes: Attributes) -> None:
        self.served, self.overlay, self._table = served, overlay, attributes
        self.new_items = self._unknown_items()
        self.prepared = self._extended()
        self.rec = Recommender.of(self.prepared)
        self._rules_at, self._items_changed = -1, overlay.items_changed

    @property
    def snapshot(self) -> Snapshot:
        return self.prepared.snapshot

    def _unknown_items(self) -> set[str]:
        """Return the items of events and records that the model does not have."""
        known = self.served.snapshot.items
        return {item for item in self.overlay.unknown_to(known) if known.kind == "text" or item.lstrip("-").isdecimal()}

    def _extended(self) -> Prepared:
        """Return the model with the new items that a known user likes."""
        base = self.served.prepared
        if not self.new_items or not can_extend(base.snapshot):
            return base
        users = base.snapshot.users
        audience: dict[str, Indices] = {}
        for item in sorted(self.new_items):
            likers = sorted(users.index_of(user) for user in self.overlay.likers(item) if self.in_model(user))
            if likers:
                audience[item] = np.array(likers, dtype=np.int64)
        if not audience:
            return base
        titles = {item: title for item in audience if (title := self.overlay.title_of(item))}
        snapshot = extended(base.snapshot, base.folding, audience, titles)
        return Prepared(snapshot, base.folding.with_items(snapshot))

    def outdated(self, touched: set[str]) -> bool:
        """Return whether a new view is needed, because new items have other users or other records."""
        if self.overlay.items_changed != self._items_changed:
            self._items_changed = self.overlay.items_changed
            if self._unknown_items() != self.new_items:
                return True
        known = self.served.snapshot.items
        return any(item not in known for item in touched)

    def in_model(self, user: str) -> bool:
        """Return whether the model has the user, who was not forgotten since."""
        return user in self.served.snapshot.users and user not in self.overlay.forgotten

    # Rules

    def refresh_rules(self) -> None:
        """Compute what follows from the records of items, if these have changed."""
        if self._rules_at == self.overlay.items_changed:
            return
        self._rules_at = self.overlay.items_changed
        self.allowed = np.ones(self.snapshot.n_items, dtype=bool)
        hidden = [record.item for record in self.overlay.items.values() if record.hidden]
        self.allowed[self.indices(hidden)[0]] = False
        self.rules = ItemRules(self.allowed)
        self.ranker = Ranker(self.prepared.index, self.rules)
        self._groups: dict[str, Indices] = {}

    @cached_property
    def _popularity(self) -> EmbeddingIndex:
        return EmbeddingIndex(self.snapshot.train.item_degrees[:, None].astype(np.float32))

    def indices(self, items: Iterable[RawId]) -> tuple[Indices, list[str]]:
        """Return the distinct indices of items in the model, ascending, and the ids of all others."""
        known, unknown = set[int](), list[str]()
        vocabulary = self.snapshot.items
        for item in items:
            if item in vocabulary:
                known.add(vocabulary.index_of(item))
            else:
                unknown.append(str(item))
        return np.array(sorted(known), dtype=np.int64), unknown

    def _rules_of(self, ask: Ask) -> ItemRules:
        allowed = self.allowed
        if ask.only is not None:
            index, _ = self.indices(ask.only)
            chosen = np.zeros_like(allowed)
            chosen[index] = True
            allowed = allowed & chosen
        limits = tuple(Limit(self._group(name), n) for name, n in ask.max_per.items())
        return ItemRules(allowed, limits)

    def _group(self, attribute: str) -> Indices:
        """Return the number of each item's value of an attribute, −1 for an item without it."""
        if attribute not in self._groups:
            numbers: dict[Any, int] = {}
            group = np.full(self.snapshot.n_items, -1, dtype=np.int64)
            for item in {**self._table, **self.overlay.items}:
                value = self.attributes_of(item).get(attribute)
                if value is not None and item in self.snapshot.items:
                    group[self.snapshot.items.index_of(item)] = numbers.setdefault(value, len(numbers))
            if not numbers:
                raise RequestError(
                    f"no item has the attribute {attribute!r}; give another in max_per, or store it by PUT /v1/items."
                )
            self._groups[attribute] = group
        return self._groups[attribute]

    def attributes_of(self, item: str) -> dict[str, str | float | bool]:
        """Return the attributes of an item: those of its record, else of the table of items."""
        record = self.overlay.items.get(item)
        return {**self._table.get(item, {}), **({} if record is None else record.attributes)}

    # Lists

    def query(self, ask: Ask) -> Query:
        """Return the query of a list: who the user is, and what the user has."""
        items, unknown = self.indices(ask.items)
        notes = note_unknown(unknown, "item", "ignored")
        user, liked, avoided = None, _NONE, _NONE
        if ask.user is not None:
            text = str(ask.user)
            user = self.served.snapshot.users.index_of(text) if self.in_model(text) else None
            if (events := self.overlay.users.get(text)) is not None:
                liked, avoided = self.indices(events.liked)[0], self.indices(events.avoided)[0]
        own = np.union1d(items, liked)
        negative, unknown = self.indices(ask.negative)
        excluded, _ = self.indices(ask.exclude)
        notes += note_unknown(unknown, "item", "ignored", " in negative")
        hidden = [avoided, negative, excluded]
        if not ask.seen:
            hidden += [own] if user is None else [own, self.snapshot.seen[user].astype(np.int64)]
        every = np.unique(np.concatenate(hidden))
        return self._ranked_by(ask, user, own, every, negative, notes)

    def _ranked_by(
        self, ask: Ask, user: int | None, own: Indices, hidden: Indices, negative: Indices, notes: list[str]
    ) -> Query:
        prepared, train = self.prepared, self.snapshot.train
        if user is not None:
            more = np.setdiff1d(own, train[user])
            if not prepared.informative(more):
                return Query(ask, user, train[user].astype(np.int64), hidden, "model", None, negative, tuple(notes))
            own = np.union1d(own, train[user])
        elif not prepared.informative(own):
            notes.append("nothing is known of this user yet; popular items are recommended.")
            return Query(ask, None, own, hidden, "popular", None, _NONE, tuple(notes))
        return Query(ask, user, own, hidden, "events", prepared.users.query(own, user), negative, tuple(notes))

    def rank(self, queries: Sequence[Query]) -> list[tuple[TopK, int] | Exception]:
        """Return the lists of queries, and the place of each among them; those without own rules are ranked at once."""
        results: dict[int, tuple[TopK, int] | Exception] = {}
        plain, folded = list[int](), list[int]()
        for place, query in enumerate(queries):
            if query.source == "popular" or query.ask.ruled:
                try:
                    results[place] = self._rank_alone(query), 0
                except DgcfError as problem:
                    results[place] = problem
            else:
                (plain if query.row is None else folded).append(place)
        if together := [*plain, *folded]:
            best = self._rank_together([queries[place] for place in plain], [queries[place] for place in folded])
            results |= {place: (best, row) for row, place in enumerate(together)}
        return [results[place] for place in range(len(queries))]

    def _rank_together(self, plain: Sequence[Query], folded: Sequence[Query]) -> TopK:
        """Return the lists of known users as trained, then those of users with a row of their own."""
        rows = [query.row for query in folded]
        if plain:
            rows.insert(0, self.snapshot.ranking.queries(np.array([query.user for query in plain], dtype=np.int64)))
        queries = [*plain, *folded]
        return self.ranker.top_k(join_queries(rows), self._hidden(queries), max(query.ask.k for query in queries))

    def _rank_alone(self, query: Query) -> TopK:
        ask, prepared = query.ask, self.prepared
        rules = self._rules_of(ask) if ask.ruled else self.rules
        hidden = self._hidden([query])
        if query.source == "popular":
            return Ranker(self._popularity, rules).top_k(np.ones((1, 1), dtype=np.float32), hidden, ask.k)
        row, index = self._row(query), prepared.index
        if len(query.negative):
            index = boosted_index(index, self._avoidance(query.negative))
            row = boosted_queries(row, np.ones(1, dtype=np.float32))
        return Ranker(index, rules).top_k(row, hidden, ask.k)

    def _row(self, query: Query) -> Any:
        return self.snapshot.ranking.queries(np.array([query.user])) if query.row is None else query.row

    def _avoidance(self, negative: Indices) -> NDArray[np.float32]:
        """Return ``−c · s(negative)`` of all items: c times the scores that a user with these items would have."""
        if not self.prepared.informative(negative):
            return np.zeros(self.snapshot.n_items, dtype=np.float32)
        scores = score_all(self.prepared.index, self.prepared.users.query(negative, None))
        return (-NEGATIVE_WEIGHT * scores).astype(np.float32)

    def _hidden(self, queries: Sequence[Query]) -> Pairs:
        lengths = [len(query.hidden) for query in queries]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        indices = np.concatenate([query.hidden for query in queries]).astype(np.int32)
        return Pairs(indptr, indices, self.snapshot.n_items)

    # Explanations, nodes

    def explain(self, query: Query, item: int) -> Explanation:
        """Return the explanation of an item's score in the list of a query."""
        users = self.prepared.users
        if query.source == "popular":
            raise RequestError(
                "nothing is known of this user, so no score can be explained; send events, or give items."
            )
        if query.user is not None and query.row is None:
            explanation = users.explain(query.user, item)
        else:
            explanation = users.explain_new(query.items, item, query.user)
        if self.prepared.informative(query.negative):
            explanation = explanation.minus(users.explain_new(query.negative, item, None), NEGATIVE_WEIGHT)
        return explanation

    def item_index(self, item: RawId) -> int:
        """Return the index of an item that can be ranked; raise ``UnknownError`` for any other."""
        if item in self.snapshot.items:
            return self.snapshot.items.index_of(item)
        known = str(item) in self.new_items
        reason = "has no event of a known user yet, so it has no score" if known else "is unknown"
        raise UnknownError(f"item {str(item)!r} {reason}; search for items by GET /v1/items?q=.")

    def user_index(self, user: RawId) -> int:
        """Return the index of a user of the model; raise ``UnknownError`` for any other."""
        if self.in_model(str(user)):
            return self.served.snapshot.users.index_of(user)
        raise UnknownError(f"user {str(user)!r} is not in the model; give one of its users, or the items of a new one.")

    def shown(self, side: Side, index: int) -> bool:
        """Return whether an item is not hidden, or a user not forgotten."""
        if side == "item":
            return bool(self.allowed[index])
        return not self.overlay.forgotten or self.snapshot.users.texts[index] not in self.overlay.forgotten

    def hidden_count(self, side: Side) -> int:
        """Return how many items are hidden, or users forgotten."""
        self.refresh_rules()
        return int((~self.allowed).sum()) if side == "item" else len(self.overlay.forgotten)

    def index_of(self, side: Side, name: RawId) -> int:
        return self.item_index(name) if side == "item" else self.user_index(name)

    def title(self, index: int) -> str | None:
        """Return the title of an item, of its record if it has one; None for an item without."""
        items = self.snapshot.items
        if self.overlay.items and (title := self.overlay.title_of(items.texts[index])) is not None:
            return title
        return (items.titles[index] or None) if items.titles else None
