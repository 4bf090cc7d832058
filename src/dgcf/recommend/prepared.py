"""A snapshot prepared for requests: the structures derived from it once, and the steps that requests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.ids import RawId
from dgcf.ranking.arrays import Indices, Side
from dgcf.ranking.similarity import CosineSimilarity, Similarity
from dgcf.ranking.topk import NUMPY, Backend, EmbeddingIndex, ItemIndex, TopK, one_query
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.lookup import Ids, Names, Unknown, as_list, note_unknown
from dgcf.recommend.rerank import ItemRules, Ranker
from dgcf.recommend.rules import RuleArguments, Rules
from dgcf.recommend.snapshot import Snapshot
from dgcf.recommend.table import Table
from dgcf.recommend.users import Users, users_of


class Prepared:
    """A snapshot and its derived structures, each computed on first use."""

    def __init__(self, snapshot: Snapshot, folding: FoldIn | None = None) -> None:
        self.snapshot = snapshot
        # Without a reference to this object, which would be in a cycle: models are large, and freed when unused.
        self._fold: Callable[[], FoldIn] = cache(partial(FoldIn, snapshot)) if folding is None else lambda: folding
        self._last_ranker: Ranker | None = None

    @cached_property
    def names(self) -> dict[Side, Names]:
        return {"user": Names(self.snapshot.users), "item": Names(self.snapshot.items)}

    @cached_property
    def folding(self) -> FoldIn:
        return self._fold()

    @cached_property
    def users(self) -> Users:
        return users_of(self.snapshot, self._fold)

    @cached_property
    def index(self) -> ItemIndex[Any]:
        return self.snapshot.ranking.index()

    @cached_property
    def item_cosines(self) -> CosineSimilarity:
        """Cosines of the items' embeddings; raises ``DataError`` for a model without embeddings."""
        return CosineSimilarity(self.snapshot.item_rows)

    @cached_property
    def _similarities(self) -> dict[Side, Similarity]:
        return {}

    def similarity(self, side: Side) -> Similarity:
        """Return the similarity of users or of items; raise ``DataError`` for a model without one."""
        embeddings = self.snapshot.ranking.embeddings
        if embeddings is not None and embeddings.dim == 1:
            raise DataError(
                f"model {self.snapshot.model} has one number for each {side} and no similarity between two; "
                "train another, such as item-knn or dgcf."
            )
        if side not in self._similarities:
            similarity = self.snapshot.ranking.similarity(side)
            if similarity is None:
                raise self.snapshot.no_embeddings()
            self._similarities[side] = similarity
        return self._similarities[side]

    def find(self, side: Side, names: Ids) -> Indices:
        """Return the indices of names, in their order."""
        return np.array(self.names[side].find_all(as_list(names)), dtype=np.int64)

    def find_some(self, side: Side, names: Ids) -> Indices:
        """Return the indices of names, in their order; raise ``DataError`` for an empty list."""
        index = self.find(side, names)
        if not len(index):
            raise DataError(f"the list of {side}s is empty; give at least one {side}.")
        return index

    def known_users(self, users: Ids, unknown: Unknown) -> tuple[list[RawId], Indices, list[str]]:
        """Return raw ids of users, their indices, −1 for an unknown one, and a note on these; ``skip`` drops them."""
        ids, index, absent = self.names["user"].find_known(users, unknown)
        effect = "left out" if unknown == "skip" else "given popular items"
        notes = note_unknown(absent, "user", effect)
        if unknown == "skip":
            ids, index = [name for name, number in zip(ids, index, strict=True) if number >= 0], index[index >= 0]
        return ids, index, notes

    def distinct(self, side: Side, names: Ids, unknown: Unknown = "raise") -> tuple[Indices, list[str]]:
        """Return the distinct indices of names, ascending, and notes on unknown and repeated ones."""
        ids, given, absent = self.names[side].find_known(names, unknown)
        if not ids:
            raise DataError(f"the list of {side}s is empty; give at least one {side}.")
        index, counts = np.unique(given[given >= 0], return_counts=True)
        title = self.snapshot.vocabulary(side).title_of
        repeated = [title(number) for number in index[counts > 1].tolist()]
        notes = [f"{name} was given more than once and counts once." for name in repeated]
        return index, [*note_unknown(absent, side, "ignored"), *notes]

    def user_items(
        self, items: Ids, user: RawId | None, unknown: Unknown = "raise"
    ) -> tuple[Indices, int | None, list[str]]:
        """Return all items of a new user, or of a known one with new ``items``, ascending; the user's index; notes."""
        index, notes = self.distinct("item", items, unknown)
        if user is None:
            return index, None, notes
        known = self.names["user"].find(user)
        return np.union1d(index, self.snapshot.train[known]), known, notes

    def informative(self, items: Indices) -> bool:
        """Return whether any user has one of the items in training."""
        return bool(self.snapshot.train.item_degrees[items].any())

    def ranker(self, rules: ItemRules | None = None) -> Ranker:
        """Return what ranks under rules; the one used last is kept."""
        rules = self._no_rules if rules is None else rules
        ranker = self._last_ranker
        if ranker is None or ranker.rules is not rules:
            ranker = self._last_ranker = self._ranker_of(self.index, rules)
        return ranker

    @cached_property
    def _no_rules(self) -> ItemRules:
        return ItemRules(np.ones(self.snapshot.n_items, dtype=bool))

    def _ranker_of(self, index: ItemIndex[Any], rules: ItemRules) -> Ranker:
        return Ranker(index, rules, self.similarity("item") if rules.mmr else None)

    def rank_new(
        self, items: Ids, k: int, user: RawId | None, exclude_seen: bool, unknown: Unknown, rules: ItemRules | None
    ) -> tuple[TopK, list[str]]:
        """Return the k best items for one user with ``items``, and notes; no list at all for a skipped user."""
        index, known, notes = self.user_items(items, user, unknown)
        seen = index if known is None else np.union1d(index, self.snapshot.seen[known])
        hidden = one_query(seen if exclude_seen else seen[:0], self.snapshot.n_items)
        if self.informative(index):
            return self.ranker(rules).top_k(self.users.query(index, known), hidden, k), notes
        nothing = "no user has any of these items in training, so nothing is known of them"
        if unknown == "raise":
            raise DataError(f"{nothing}; give others.")
        popular = self.popular(rules, hidden, k)
        skip = unknown == "skip"
        effect = "the list is left out" if skip else "popular items are recommended"
        return popular.take(np.arange(0 if skip else 1)), [*notes, f"{nothing}; {effect}."]

    def popular(self, rules: ItemRules | None, hidden: Pairs, k: int) -> TopK:
        """Return the items that most users have in training, under rules; a score is their number.

        ``hidden`` has one row, the items to leave out.
        """
        degrees = self.snapshot.train.item_degrees[:, None].astype(np.float32)
        ranker = self._ranker_of(EmbeddingIndex(degrees), self._no_rules if rules is None else rules)
        return ranker.top_k(np.ones((1, 1), dtype=np.float32), hidden, k)

    def resolve(self, rules: Rules | ItemRules | None, arguments: RuleArguments) -> ItemRules | None:
        """Return rules by item index, given as an object or as keyword arguments; None if there are none."""
        if rules is not None and arguments:
            raise ConfigError(f"rules are given twice, as an object and as {', '.join(arguments)}; give one of them.")
        names = [each.name for each in fields(Rules)]
        for name in set(arguments) - set(names):
            near = did_you_mean(name, names) or "."
            raise ConfigError(f"there is no argument {name!r}; rules are {', '.join(names)}{near}")
        given = Rules(**arguments) if rules is None and arguments else rules
        trained_on = self.snapshot.about.get("dataset", {}).get("item_col")
        return given.resolve(self.names["item"], trained_on) if isinstance(given, Rules) else given

    def notes(self, notes: Sequence[str], rules: ItemRules | None, best: TopK, k: int) -> list[str]:
        """Return all notes on lists: those given, those on the rules, and one if a list is shorter than k."""
        lengths = (best.item_idx >= 0).sum(1)
        ruled = () if rules is None else rules.notes
        return [*notes, *ruled, *(note_if_short(k, int(lengths.min())) if len(lengths) else [])]

    def table(self, first: Mapping[str, Sequence[Any]], best: TopK, notes: Sequence[str], side: Side = "item") -> Table:
        """Return a table with a row per ranked item or user; ``first`` are leading columns with a value per query."""
        vocabulary = self.snapshot.vocabulary(side)
        row, place = np.nonzero(best.item_idx >= 0)
        index = best.item_idx[row, place].tolist()
        columns: dict[str, Any] = {name: [values[n] for n in row.tolist()] for name, values in first.items()}
        columns[side] = [vocabulary.id_of(number) for number in index]
        columns["rank"] = (place + 1).tolist()
        columns["score"] = best.scores[row, place].tolist()
        if vocabulary.titles:
            columns["title"] = [vocabulary.title_of(number) for number in index]
        return Table(columns, notes)


def backend_on(device: str | None) -> Backend:
    """Return the NumPy backend if no device is named, else torch's on that device."""
    if device is None:
        return NUMPY
    from dgcf.ranking.torch_backend import TorchBackend
    from dgcf.train import pick_device

    return TorchBackend(str(pick_device(device)))


def require_k(k: int) -> int:
    """Return k as an int, or raise ``ConfigError`` unless it is a whole number from 1 on."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"k is {k!r}; give a whole number from 1 on.")
    return int(k)


def note_if_short(k: int, left: int, side: Side = "item") -> list[str]:
    """Return a note if a query has fewer than k candidates left."""
    nodes = f"{left} {side} is" if left == 1 else f"{left} {side}s are"
    return [f"k is {k}, but only {nodes} left; the list is shorter."] if k > left else []
