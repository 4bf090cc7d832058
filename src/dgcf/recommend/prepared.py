"""A snapshot prepared for requests: the structures derived from it once, and the steps that requests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Indices, Side
from dgcf.ranking.similarity import CosineSimilarity, Similarity
from dgcf.ranking.topk import NUMPY, Backend, ItemIndex, TopK, top_k_among
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.lookup import Ids, Names, as_list
from dgcf.recommend.snapshot import Snapshot
from dgcf.recommend.table import Table
from dgcf.recommend.users import Users, users_of


class Prepared:
    """A snapshot and its derived structures, each computed on first use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def names(self) -> dict[Side, Names]:
        return {"user": Names(self.snapshot.users), "item": Names(self.snapshot.items)}

    @cached_property
    def folding(self) -> FoldIn:
        return FoldIn(self.snapshot)

    @cached_property
    def users(self) -> Users:
        return users_of(self.snapshot, lambda: self.folding)

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

    def distinct(self, side: Side, names: Ids) -> tuple[Indices, list[str]]:
        """Return the distinct indices of names, ascending, and a note on each repeated name."""
        index, counts = np.unique(self.find_some(side, names), return_counts=True)
        title = self.snapshot.vocabulary(side).title_of
        repeated = [title(number) for number in index[counts > 1].tolist()]
        return index, [f"{name} was given more than once and counts once." for name in repeated]

    def user_items(self, items: Ids, user: RawId | None) -> tuple[Indices, int | None, list[str]]:
        """Return all items of a new user, or of a known one with new ``items``, ascending; the user's index; notes."""
        index, notes = self.distinct("item", items)
        if user is None:
            return index, None, notes
        known = self.names["user"].find(user)
        return np.union1d(index, self.snapshot.train[known]), known, notes

    def rank(
        self,
        queries: Any,
        hidden: Pairs,
        k: int,
        only: Ids | None = None,
        exclude: Ids | None = None,
        device: str | None = None,
    ) -> tuple[TopK, list[str]]:
        """Return the k best items, restricted to ``only``, without hidden and excluded ones; and notes."""
        k = require_k(k)
        allowed = np.ones(self.snapshot.n_items, dtype=bool)
        if only is not None:
            allowed[:] = False
            allowed[self.distinct("item", only)[0]] = True
        if exclude is not None:
            allowed[self.find("item", exclude)] = False
        best, left = top_k_among(self.index, queries, hidden, k, allowed, backend_on(device))
        return best, note_if_short(k, left)

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
