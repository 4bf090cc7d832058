"""A model together with the events since it was trained: lists, explanations and similar items under both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import DgcfError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Indices, Rows, Side
from dgcf.ranking.boost import boosted_index, boosted_queries, join_queries, score_all
from dgcf.ranking.topk import EmbeddingIndex, TopK
from dgcf.recommend.explain import Explanation
from dgcf.recommend.lookup import note_unknown
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.rerank import ItemRules, Limit, Ranker
from dgcf.recommend.snapshot import Snapshot
from dgcf.serve.engine.asks import Ask
from dgcf.serve.engine.extended import extended
from dgcf.serve.engine.lists import Lists, Ranked
from dgcf.serve.engine.overlay import Overlay
from dgcf.serve.engine.served import Served
from dgcf.serve.errors import RequestError, UnknownError

NEGATIVE_WEIGHT = 0.5
"""c in the score ``s(liked) − c · s(negative)`` of a user with items to avoid."""
Attributes = Mapping[str, Mapping[str, str | float | bool]]
Source = Literal["model", "events", "popular"]
_NONE = np.zeros(0, dtype=np.int64)
_FEW_HIDDEN = 256
_WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")  # new ids of items, where those of the model are integers


@dataclass(frozen=True, eq=False)
class Query:
    """A list to be ranked: ``user`` is the index of a known user, ``items`` all that the user has, ascending.

    ``row`` is the query of the index; None for a known user as trained, and where popular items are recommended.
    ``source`` says what the list follows from. ``as_trained``: from the training and the rules for all users alone.
    """

    ask: Ask
    user: int | None
    items: NDArray[np.integer]
    hidden: NDArray[np.integer]
    source: Source
    row: Any = None
    negative: Indices = field(default_factory=lambda: _NONE)
    notes: tuple[str, ...] = ()
    as_trained: bool = False


class View:
    """A served model, extended by the new items of an overlay, through which alone further events change it."""

    def __init__(
        self,
        served: Served,
        overlay: Overlay,
        attributes: Attributes,
        folded: dict[tuple[int, ...], Rows] | None = None,
    ) -> None:
        """``folded``: rows of new items by their users, as far as they are known."""
        self.served, self.overlay, self._table = served, overlay, attributes
        self._folded = {} if folded is None else folded
        self.new_items = overlay.unknown_to(served.snapshot.items)
        self._audience = self._audience_of(self.new_items)
        self.prepared = self._extended()
        self.snapshot: Snapshot = self.prepared.snapshot
        self.rec = Recommender.of(self.prepared)
        self._rules_at, self._items_changed = -1, overlay.items_changed
        self._lists = Lists()
        self.allowed = np.zeros(0, dtype=bool)
        self.refresh_rules()

    def _audience_of(self, items: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the users of the model who like each of some new items, ascending; none for an item without any."""
        if not self.served.extends:
            return {}
        known, users = self.served.snapshot.items, self.served.snapshot.users
        audience: dict[str, tuple[int, ...]] = {}
        for item in items:
            if known.kind == "text" or _WHOLE.fullmatch(item):
                likers = sorted(users.index_of(user) for user in self.overlay.likers(item) if self.in_model(user))
                if likers:
                    audience[item] = tuple(likers)
        return audience

    def _extended(self) -> Prepared:
        """Return the model with the new items that a user of the model likes."""
        base = self.served.prepared
        if not self._audience:
            return base
        for users in self._audience.values():
            if users not in self._folded:
                self._folded[users] = base.folding.fold("item", np.array(users, dtype=np.int64)).ranked
        rows = {item: self._folded[users] for item, users in sorted(self._audience.items())}
        titles = {item: title for item in rows if (title := self.overlay.title_of(item))}
        snapshot = extended(base.snapshot, base.folding, rows, titles)
        return Prepared(snapshot, base.folding.with_items(snapshot))

    def renewed(self) -> View:
        """Return a view of the same model with the present new items."""
        used = set(self._audience.values())
        folded = {users: row for users, row in self._folded.items() if users in used}
        return View(self.served, self.overlay, self._table, folded)

    def outdated(self, touched: set[str]) -> bool:
        """Take note of new items; return whether a new view is needed, because other users of the model like them."""
        known = self.served.snapshot.items
        if self.overlay.items_changed != self._items_changed:
            self._items_changed = self.overlay.items_changed
            self.new_items = self.overlay.unknown_to(known)
        changed = {item for item in touched if item not in known}
        now_known = {item for item in changed if self.overlay.knows_item(item)}
        if now_known != changed & self.new_items:
            self.new_items = self.new_items - changed | now_known
        audience = self._audience_of(changed)
        return any(self._audience.get(item) != audience.get(item) for item in changed)

    def in_model(self, user: str) -> bool:
        """Return whether the model has the user, who was not forgotten since."""
        return user in self.served.snapshot.users and not self.overlay.is_forgotten(user)

    # Rules

    def refresh_rules(self) -> None:
        """Compute what follows from the records of items, if these have changed."""
        if self._rules_at == self.overlay.items_changed:
            return
        self._rules_at = self.overlay.items_changed
        self._groups: dict[str, Indices] = {}
        allowed = np.ones(self.snapshot.n_items, dtype=bool)
        hidden = [record.item for record in self.overlay.items.values() if record.hidden]
        allowed[self.indices(hidden)[0]] = False
        if not np.array_equal(allowed, self.allowed):
            self._lists = Lists()
            self.allowed, self.rules = allowed, ItemRules(allowed)
            # A few hidden items are left out of each list; to leave them out of the index takes longer.
            self._hidden_items = np.flatnonzero(~allowed)
            if len(self._hidden_items) > _FEW_HIDDEN:
                self._hidden_items, everything = _NONE, allowed
            else:
                everything = np.ones_like(allowed)
            self.ranker = Ranker(self.prepared.index, ItemRules(everything))

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

    def kept(self, ask: Ask) -> tuple[Query, Ranked] | None:
        """Return the list of a known user without events if it was ranked before; any thread may call it."""
        user = self._as_trained(ask)
        ranked = None if user is None else self._lists.get(user, ask.k, ask.seen)
        return None if ranked is None else (Query(ask, user, _NONE, _NONE, "model", as_trained=True), ranked)

    def keep(self, query: Query, ranked: Ranked) -> None:
        """Keep a list if it is that of a known user without events."""
        if query.as_trained and query.user is not None:
            self._lists.put(query.user, query.ask.k, query.ask.seen, ranked)

    def _as_trained(self, ask: Ask) -> int | None:
        """Return the user whose list follows from the training and the rules for all users; None for any other list."""
        text = str(ask.user)
        if not ask.plain or text in self.overlay.users or not self.in_model(text):
            return None
        return self.served.snapshot.users.index_of(text)

    def query(self, ask: Ask) -> Query:
        """Return the query of a list: who the user is, and what the user has."""
        if (known := self._as_trained(ask)) is not None:
            seen = _NONE if ask.seen else self.snapshot.seen[known]
            return Query(ask, known, self.snapshot.train[known], seen, "model", as_trained=True)
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
        notes += note_unknown(unknown, "item", "ignored", " in negative")
        excluded, unknown = self.indices(ask.exclude)
        notes += note_unknown(unknown, "item", "ignored", " in exclude")
        notes += note_unknown(self.indices(ask.only or ())[1], "item", "ignored", " in only")
        hidden = [avoided, negative, excluded]
        if not ask.seen:
            hidden += [own] if user is None else [own, self.snapshot.seen[user].astype(np.int64)]
        every = np.unique(np.concatenate(hidden))
        if not self.served.learns and self.prepared.informative(negative):
            notes.append(f"model {self.snapshot.model} cannot score the items to avoid; these alone are left out.")
            negative = _NONE
        return self._ranked_by(ask, user, own, every, negative, notes)

    def _ranked_by(
        self, ask: Ask, user: int | None, own: Indices, hidden: Indices, negative: Indices, notes: list[str]
    ) -> Query:
        """Return the query of a user who has ``own`` items beside those of the training."""
        prepared, train = self.prepared, self.snapshot.train
        new = prepared.informative(own if user is None else np.setdiff1d(own, train[user]))
        row = None
        if new and not self.served.learns:
            others = "popular items" if user is None else "items as trained"
            notes.append(
                f"model {self.snapshot.model} cannot learn from new items of a user; they are left out, and {others} "
                "are recommended."
            )
        elif new:
            own = own if user is None else np.union1d(own, train[user])
            row = prepared.users.query(own, user)
        elif user is None:
            notes.append("nothing is known of this user yet; popular items are recommended.")
        if row is not None:
            return Query(ask, user, own, hidden, "events", row, negative, tuple(notes))
        if user is None:
            return Query(ask, None, own, hidden, "popular", None, _NONE, tuple(notes))
        return Query(ask, user, train[user].astype(np.int64), hidden, "model", None, negative, tuple(notes))

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
        hidden = self._hidden(queries, self._hidden_items)
        return self.ranker.top_k(join_queries(rows), hidden, max(query.ask.k for query in queries))

    def _rank_alone(self, query: Query) -> TopK:
        ask, prepared = query.ask, self.prepared
        rules = self._rules_of(ask) if ask.ruled else self.rules
        hidden = self._hidden([query], _NONE)
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

    def _hidden(self, queries: Sequence[Query], more: Indices) -> Pairs:
        """Return the hidden items of each query, with some ``more`` in each row."""
        hidden = [query.hidden for query in queries]
        if len(more):
            hidden = [np.union1d(own, more) for own in hidden]
        indptr = np.concatenate([[0], np.cumsum([len(own) for own in hidden])]).astype(np.int64)
        return Pairs(indptr, np.concatenate(hidden).astype(np.int32), self.snapshot.n_items)

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
            explanation = users.explain_new(query.items.astype(np.int64), item, query.user)
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
        return not self.overlay.is_forgotten(self.snapshot.users.texts[index])

    def hidden_count(self, side: Side) -> int:
        """Return how many items are hidden, or users forgotten."""
        return int((~self.allowed).sum()) if side == "item" else self.overlay.n_forgotten

    def index_of(self, side: Side, name: RawId) -> int:
        return self.item_index(name) if side == "item" else self.user_index(name)

    def ids(self, index: Sequence[int]) -> list[RawId]:
        """Return the raw ids of items."""
        items = self.snapshot.items
        texts = [items.texts[item] for item in index]
        return [int(text) for text in texts] if items.kind == "integer" else list(texts)

    def titles(self, index: Sequence[int]) -> list[str | None]:
        """Return the titles of items, of their records if they have one; None for an item without."""
        items, records = self.snapshot.items, self.overlay.items
        given = items.titles or ()
        titles: list[str | None] = [given[item] or None for item in index] if given else [None] * len(index)
        if not records:
            return titles
        own = (self.overlay.title_of(items.texts[item]) for item in index)
        return [title if new is None else new for title, new in zip(titles, own, strict=True)]

    def title(self, index: int) -> str | None:
        """Return the title of an item, of its record if it has one; None for an item without."""
        return self.titles([index])[0]
