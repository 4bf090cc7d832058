"""The recommender: raw ids in, recommendations out; an estimator that is fitted, asked, saved and loaded.

``fit`` needs torch. A loaded recommender answers everything with NumPy and SciPy alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError, NotFittedError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Floats, Indices, Rows
from dgcf.ranking.topk import (
    Backend,
    Candidates,
    EmbeddingIndex,
    ItemIndex,
    TopK,
    exact_scores,
    top_k,
)
from dgcf.ranking.weights import WeightMatrix
from dgcf.recommend import artifact
from dgcf.recommend.explain import Explanation
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.lookup import Names
from dgcf.recommend.people import People, people_of
from dgcf.recommend.snapshot import Side, Snapshot, catalogue_of, queries_of
from dgcf.recommend.table import Table

Ids = RawId | Iterable[RawId]
OWN_PARAMETERS = ("model", "preset", "seed", "device")


class Recommender:
    """A model of the catalogue, to be fitted to data; parameters as ``dgcf train --set`` takes them.

    >>> from dgcf.data.synthetic import planted
    >>> rec = Recommender("dgcf", layers=2, dim=16, epochs=20, seed=0, device="cpu").fit(planted())
    >>> rec.recommend("u00000", k=3).columns
    ['user', 'item', 'rank', 'score', 'title']
    """

    def __init__(
        self, model: str = "dgcf", *, preset: str = "plain", seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self.model, self.preset, self.seed, self.device = model, preset, seed, device
        self.settings = settings

    # -- an estimator in scikit-learn's manner ----------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What ``__init__`` was given: ``Recommender(**rec.get_params())`` is the same, unfitted."""
        return {**{name: getattr(self, name) for name in OWN_PARAMETERS}, **self.settings}

    def set_params(self, **parameters: Any) -> Recommender:
        """Change parameters; a fitted recommender stays as it was fitted until ``fit`` is called again."""
        for name, value in parameters.items():
            if name in OWN_PARAMETERS:
                setattr(self, name, value)
            else:
                self.settings = {**self.settings, name: value}
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "snapshot" in vars(self)

    def __repr__(self) -> str:
        words = [repr(self.model), *(f"{key}={value!r}" for key, value in self.get_params().items() if key != "model")]
        known = vars(self).get("snapshot")
        fitted = f": {known.n_users:,} users, {known.n_items:,} items" if known else ", not fitted"
        return f"<Recommender({', '.join(words)}){fitted}>"

    def fit(
        self,
        data: Any,
        y: None = None,
        *,
        on: Literal["train", "everything"] = "train",
        titles: Mapping[str, str] | None = None,
        observer: Any = None,
    ) -> Recommender:
        """Train on a path, known name, frame, matrix or dataset.

        What has no split yet gets the default one, and validation decides when to stop. ``on="everything"`` trains on
        all pairs of all splits: for ``epochs`` epochs where they were given, else for as many as were best when
        training on the split, which comes first.
        """
        if "torch" not in sys.modules:
            # Before torch starts its threads: on a busy machine, threads that wait by spinning train ten times slower.
            os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        from dgcf.recommend.fitting import fit_snapshot

        self.snapshot = fit_snapshot(self, data, on=on, titles=titles, observer=observer)
        return self

    @classmethod
    def of(cls, snapshot: Snapshot) -> Recommender:
        """A recommender that was trained before."""
        about = snapshot.about
        rec = cls(
            snapshot.model, preset=about.get("preset", "plain"), seed=about.get("seed", 0), **about.get("settings", {})
        )
        rec.snapshot = snapshot
        return rec

    def __getattr__(self, name: str) -> Any:
        if name == "snapshot":
            raise NotFittedError("this recommender has seen no data yet; call fit(data), or load one with dgcf.load.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "snapshot":  # what was derived from an older one goes with it
            for derived in ("names", "folding", "_people", "_catalogue", "_directions"):
                vars(self).pop(derived, None)
        super().__setattr__(name, value)

    def save(self, path: str | Path, *, overwrite: bool = False, sign: str | Path | None = None) -> Path:
        """Write one ``.dgcf`` file, or a folder for any other name; ``sign`` is the file of a private key."""
        return artifact.save(self.snapshot, path, overwrite=overwrite, sign=sign)

    # -- recommendations --------------------------------------------------------------------------------------------

    def recommend(
        self,
        users: Ids,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        items: Ids | None = None,
        exclude: Ids | None = None,
        device: str | None = None,
    ) -> Table:
        """The k best items of each user: columns user, item, rank, score, and title where titles are known.

        ``items`` are the only candidates, ``exclude`` is none; ``device`` ranks with torch there ("cpu", "cuda")
        instead of with NumPy, and gives the same.
        """
        index = np.array(self.names["user"].find_all(as_list(users)), dtype=np.int64)
        hidden = self._seen(index, exclude_seen)
        ranked, notes = self._rank(queries_of(self.snapshot, index), hidden, k, items, exclude, device)
        return self._table({"user": [self.snapshot.users.id_of(u) for u in index.tolist()]}, ranked, notes)

    def recommend_for(
        self,
        items: Ids,
        k: int = 10,
        *,
        user: RawId | None = None,
        exclude_seen: bool = True,
        candidates: Ids | None = None,
        exclude: Ids | None = None,
    ) -> Table:
        """The k best items for somebody unknown who likes ``items``, without any training: folded into the graph, or
        exactly where the model knows people by their items alone.

        With ``user``, for that known user, who now also likes ``items``.
        """
        across, node, notes = self._likes(items, user)
        query = self._people.query(across, node)
        if not self.snapshot.train.item_degrees[across].any():
            raise DataError("nobody had any of these items in training, so nothing is known of them; give others.")
        hidden = across if node is None else np.union1d(across, self.snapshot.seen[node])
        ranked, more = self._rank(
            query,
            _one_row(hidden if exclude_seen else hidden[:0], self.snapshot.n_items),
            k,
            candidates,
            exclude,
            None,
        )
        return self._table({"user": [None if node is None else self.snapshot.users.id_of(node)]}, ranked, notes + more)

    def score(self, users: Ids, items: Ids) -> Floats:
        """(n,) the scores of pairs; one user against many items, or many against one, are repeated to fit."""
        found = [self.names["user"].find_all(as_list(users)), self.names["item"].find_all(as_list(items))]
        lengths = {len(side) for side in found}
        if len(lengths - {1}) > 1:
            raise DataError(
                f"{len(found[0])} users cannot be paired with {len(found[1])} items; give as many of both, or one."
            )
        user_idx, item_idx = np.broadcast_arrays(*(np.array(side, dtype=np.int64) for side in found))
        ranking = self.snapshot.ranking
        if isinstance(ranking, WeightMatrix):
            totals = {user: ranking.total(self.snapshot.train[user]) for user in set(user_idx.tolist())}
            return np.array([totals[user][item] for user, item in zip(user_idx, item_idx, strict=True)])
        return exact_scores(ranking.users, ranking.items, Candidates(user_idx, item_idx))

    # -- likeness ---------------------------------------------------------------------------------------------------

    def similar_items(self, items: Ids, k: int = 10) -> Table:
        """The k items whose embeddings point most nearly the same way, by cosine.

        A model that weighs items by items says it itself: those for which having the item alone speaks most, and none
        for which it does not speak.
        """
        return self._similar("item", items, k)

    def similar_users(self, users: Ids, k: int = 10) -> Table:
        """The k users whose embeddings point most nearly the same way, by cosine."""
        return self._similar("user", users, k)

    def similar_items_for(self, users: Ids, k: int = 10) -> Table:
        """The k items most similar to a new one that ``users`` took, folded into the graph."""
        folded = self.folding.fold("item", self._distinct("user", users)[0])
        nothing = _one_row(np.zeros(0, dtype=np.int64), self.snapshot.n_items)
        ranked = top_k(self._directions["item"], normalised(folded.ranked[None]), nothing, _checked(k))
        return self._table({"new": [None]}, ranked, self._short(ranked, k, self.snapshot.n_items))

    def audience_for(self, users: Ids, k: int = 10) -> Table:
        """The k users to whom a new item should be shown, given the ``users`` who took it already."""
        index = self._distinct("user", users)[0]
        folded = self.folding.fold("item", index)
        everybody, takers = EmbeddingIndex(self.snapshot.user_rows), _one_row(index, self.snapshot.n_users)
        ranked = top_k(everybody, folded.ranked[None], takers, _checked(k))
        return self._table({"new": [None]}, ranked, self._short(ranked, k, self.snapshot.n_users - len(index)), "user")

    # -- reasons ----------------------------------------------------------------------------------------------------

    def explain(self, user: RawId, item: RawId) -> Explanation:
        """Why ``item`` has the score that it has for ``user``, exactly."""
        return self._people.explain(self.names["user"].find(user), self.names["item"].find(item))

    def explain_for(self, items: Ids, item: RawId, *, user: RawId | None = None) -> Explanation:
        """The same for somebody who was folded in, as in ``recommend_for``."""
        across, node, _ = self._likes(items, user)
        return self._people.explain_new(across, self.names["item"].find(item), node)

    # -- what the above share ---------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> dict[Side, Names]:
        return {"user": Names(self.snapshot.users), "item": Names(self.snapshot.items)}

    @cached_property
    def folding(self) -> FoldIn:
        return FoldIn(self.snapshot)

    @cached_property
    def _people(self) -> People:
        return people_of(self.snapshot, lambda: self.folding)

    @cached_property
    def _catalogue(self) -> ItemIndex[Any]:
        return catalogue_of(self.snapshot)

    @cached_property
    def _directions(self) -> dict[Side, EmbeddingIndex]:
        return {
            "user": EmbeddingIndex(normalised(self.snapshot.user_rows)),
            "item": EmbeddingIndex(normalised(self.snapshot.item_rows)),
        }

    def _seen(self, index: Indices, exclude_seen: bool) -> Pairs:
        """One row of items for each asked user."""
        seen = self.snapshot.seen
        return seen.take(index) if exclude_seen else Pairs.empty(len(index), seen.n_items)

    def _likes(self, items: Ids, user: RawId | None) -> tuple[Indices, int | None, list[str]]:
        """All items of the person who is folded in, ascending, and their index where they are known."""
        across, notes = self._distinct("item", items)
        if user is None:
            return across, None, notes
        node = self.names["user"].find(user)
        return np.union1d(across, self.snapshot.train[node]), node, notes

    def _distinct(self, side: Side, names: Ids) -> tuple[Indices, list[str]]:
        """The indices of names, ascending and each once, and a sentence on those that came twice."""
        asked = as_list(names)
        if not asked:
            raise DataError(f"the list of {side}s is empty; give at least one {side}.")
        found = self.names[side].find_all(asked)
        index, counts = np.unique(np.array(found, dtype=np.int64), return_counts=True)
        title = self.snapshot.vocabulary(side).title_of
        twice = [title(number) for number in index[counts > 1].tolist()]
        return index, [f"{name} was given more than once and counts once." for name in twice]

    def _rank(
        self, queries: Any, hidden: Pairs, k: int, only: Ids | None, exclude: Ids | None, device: str | None
    ) -> tuple[TopK, list[str]]:
        """Rank all items, or ``only`` some, without the hidden and the excluded ones."""
        k, n_items = _checked(k), self.snapshot.n_items
        allowed = np.ones(n_items, dtype=bool)
        if only is not None:
            allowed[:] = False
            allowed[self._distinct("item", only)[0]] = True
        if exclude is not None:
            allowed[self.names["item"].find_all(as_list(exclude))] = False
        if allowed.all():
            ranked = top_k(self._catalogue, queries, hidden, k, backend_on(device))
            left = n_items - hidden.user_degrees
        else:
            kept = np.flatnonzero(allowed)
            within = _restricted(hidden, allowed)
            ranked = _nothing(hidden.n_users)
            if len(kept):
                ranked = top_k(self._catalogue.only(kept), queries, within, k, backend_on(device))
                ranked = TopK(np.where(ranked.item_idx >= 0, kept[ranked.item_idx], -1), ranked.scores)
            left = len(kept) - within.user_degrees
        return ranked, self._short(ranked, k, int(left.min(initial=n_items)))

    def _short(self, ranked: TopK, k: int, left: int) -> list[str]:
        if k <= left:
            return []
        return [f"{k} were asked for, but as few as {left} are left to recommend; the list is shorter."]

    def _similar(self, side: Side, names: Ids, k: int) -> Table:
        index = np.array(self.names[side].find_all(as_list(names)), dtype=np.int64)
        vocabulary = self.snapshot.vocabulary(side)
        if not isinstance(self.snapshot.ranking, WeightMatrix) and self.snapshot.dim == 1:
            raise DataError(
                f"model {self.snapshot.model} has one number for each {side} and knows no likeness; "
                "train another, such as item-knn or dgcf."
            )
        itself = Pairs(np.arange(len(index) + 1), index.astype(np.int32), len(vocabulary))
        if side == "item" and isinstance(self.snapshot.ranking, WeightMatrix):
            hidden = itself.union(_unrelated(self.snapshot.ranking, index))
            ranked = top_k(self._catalogue, itself, hidden, _checked(k))
        else:
            hidden, directions = itself, self._directions[side]
            ranked = top_k(directions, directions.rows[index], itself, _checked(k))
        first = {f"of_{side}": [vocabulary.id_of(i) for i in index.tolist()]}
        left = len(vocabulary) - int(hidden.user_degrees.max(initial=0))
        return self._table(first, ranked, self._short(ranked, k, left), side)

    def _table(
        self, first: Mapping[str, Sequence[Any]], ranked: TopK, notes: Sequence[str], side: Side = "item"
    ) -> Table:
        vocabulary = self.snapshot.vocabulary(side)
        row, place = np.nonzero(ranked.item_idx >= 0)
        index = ranked.item_idx[row, place].tolist()
        columns: dict[str, Any] = {name: [values[n] for n in row.tolist()] for name, values in first.items()}
        columns[side] = [vocabulary.id_of(number) for number in index]
        columns["rank"] = (place + 1).tolist()
        columns["score"] = ranked.scores[row, place].tolist()
        if vocabulary.titles:
            columns["title"] = [vocabulary.title_of(number) for number in index]
        return Table(columns, notes)


def as_list(names: Ids) -> list[RawId]:
    """One id, or many: a list, a tuple, an array, a column of a frame."""
    if isinstance(names, (str, int)):
        return [names]
    if isinstance(names, np.generic):
        return [names.item()]
    if not isinstance(names, Iterable):
        raise DataError(f"{names!r} is no id, expected text, a whole number, or a list of them.")
    # An array's numbers are NumPy's own; ids are Python's.
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def normalised(rows: Rows) -> Rows:
    """Rows of length one; a row of zeros stays one."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def backend_on(device: str | None) -> Backend | None:
    """NumPy's where no device is named, else torch's on that device."""
    if device is None:
        return None
    from dgcf.ranking.torch_backend import TorchBackend
    from dgcf.train import pick_device

    return TorchBackend(str(pick_device(device)))


def _checked(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"k is {k!r}; give a whole number from 1 on.")
    return int(k)


def _one_row(hidden: Indices, n_items: int) -> Pairs:
    return Pairs(np.array([0, len(hidden)]), hidden.astype(np.int32), n_items)


def _unrelated(weights: WeightMatrix, items: Indices) -> Pairs:
    """For each item those for which it does not speak."""
    rows = [np.flatnonzero(weights.total(items[place : place + 1]) <= 0) for place in range(len(items))]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Pairs(indptr, np.concatenate(rows).astype(np.int32), weights.shape[1])


def _nothing(n: int) -> TopK:
    """The ranking where no candidate is left."""
    return TopK(np.empty((n, 0), dtype=np.int64), np.empty((n, 0)))


def _restricted(hidden: Pairs, allowed: Any) -> Pairs:
    """The hidden items among the allowed ones, renumbered within them."""
    keep = allowed[hidden.indices]
    number = np.cumsum(allowed) - 1
    indptr = np.concatenate([[0], np.cumsum(keep)])[hidden.indptr]
    return Pairs(indptr.astype(np.int64), number[hidden.indices[keep]].astype(np.int32), int(allowed.sum()))
