"""The recommender: raw ids in, recommendations out; an estimator that is fitted, queried, saved and loaded.

``fit`` needs torch. A loaded recommender answers everything with NumPy and SciPy alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.data.update import HELD_OUT, seconds_of_window
from dgcf.errors import ConfigError, DataError, NotFittedError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Floats, Side
from dgcf.ranking.topk import EmbeddingIndex, joined, one_query, top_k
from dgcf.recommend import artifact, display
from dgcf.recommend.explain import Explanation
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.heldout import HeldOut, Measurement, validation_metrics
from dgcf.recommend.lookup import Ids, Names, Unknown, item_lists
from dgcf.recommend.prepared import Prepared, backend_on, note_if_short, require_k
from dgcf.recommend.rawids import RawIds
from dgcf.recommend.rerank import ItemRules
from dgcf.recommend.rules import RuleArguments, Rules
from dgcf.recommend.snapshot import Snapshot
from dgcf.recommend.table import Table
from dgcf.recommend.wording import in_python

if TYPE_CHECKING:
    from dgcf.recommend.batch import Update

OWN_PARAMETERS = ("model", "preset", "seed", "device")
Titles = Mapping[str, str] | str | Path


class Recommender:
    """A model of the catalogue, to be fitted to data; parameters as ``dgcf train --set`` takes them.

    >>> from dgcf.data.synthetic import planted
    >>> rec = Recommender("dgcf", layers=2, dim=16, epochs=20, seed=0, device="cpu").fit(planted())
    >>> rec.recommend("u00000", k=3).columns
    ['user', 'item', 'rank', 'score', 'title']
    """

    @in_python()
    def __init__(
        self, model: str = "dgcf", *, preset: str = "default", seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        from dgcf.recommend import estimator  # needs torch, as training does; a loaded recommender never comes by

        estimator.resolved(model, preset, settings)
        self._take(model, preset, seed, device, settings)

    def _take(self, model: str, preset: str, seed: int, device: str, settings: Mapping[str, Any]) -> None:
        self.model, self.preset, self.seed, self.device, self.given = model, preset, seed, device, dict(settings)
        self._fitted: Prepared | None = None
        self.measurements: dict[str, Measurement] = {}
        self._held_out = HeldOut()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that were given, without those that are None because the preset derives them from the data."""
        from dgcf.recommend import estimator

        return estimator.effective(self.model, self.preset, self.given)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters with their values: as given, else of the preset.

        A setting that the preset derives from the data is None. ``Recommender(**rec.get_params())`` is the same,
        unfitted.
        """
        from dgcf.recommend import estimator

        own = {name: getattr(self, name) for name in OWN_PARAMETERS}
        return {**own, **estimator.listed(self.model, self.preset, self.given)}

    @in_python()
    def set_params(self, **parameters: Any) -> Recommender:
        """Change parameters; a fitted recommender stays as it was fitted until ``fit`` is called again.

        Settings that have the value of the preset follow a change of the model, the preset or the loss.
        """
        from dgcf.recommend import estimator

        own = {name: parameters.get(name, getattr(self, name)) for name in OWN_PARAMETERS}
        settings = {name: value for name, value in parameters.items() if name not in OWN_PARAMETERS}
        settings = {**estimator.changed(self.model, self.preset, self.given), **settings}
        estimator.resolved(own["model"], own["preset"], settings)
        for name, value in own.items():
            setattr(self, name, value)
        self.given = settings
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.page(self)

    @in_python()
    def fit(
        self,
        data: Any,
        y: None = None,
        *,
        on: Literal["train", "everything"] = "train",
        user_col: str | int | None = None,
        item_col: str | int | None = None,
        rating_col: str | int | None = None,
        timestamp_col: str | int | None = None,
        title_col: str | int | None = None,
        weight_col: str | int | None = None,
        titles: Titles | None = None,
        progress: bool | None = None,
        observer: Any = None,
        **reading: Any,
    ) -> Recommender:
        """Train on a path, known name, frame, matrix or dataset.

        Columns are found by common names, or named here. ``reading`` are further fields of
        ``dgcf.data.columns.ReadOptions``, such as ``where``, ``missing`` and ``timestamp_format``. ``titles``: those of
        items by raw id, or a file of them. ``progress``: show a bar on stderr, by default if it is a terminal.

        Data without a split gets the default one, and validation decides when to stop. ``on="everything"`` trains on
        all pairs of all splits: for ``epochs`` epochs if given, else for as many as were best in a training on the
        split, which comes first.
        """
        if "torch" not in sys.modules:
            # Before torch starts its threads: on a busy machine, threads that wait by spinning train ten times slower.
            os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        from dgcf.recommend import estimator
        from dgcf.recommend.capture import fit_snapshot

        columns = {"user_col": user_col, "item_col": item_col, "rating_col": rating_col, "title_col": title_col}
        columns |= {"timestamp_col": timestamp_col, "weight_col": weight_col}
        dataset = estimator.read_data(self, data, on, titles, {**columns, **reading})
        with estimator.observed(observer, progress) as both:
            self.snapshot = fit_snapshot(self, dataset, on=on, titles=None, observer=both)
        self._held_out = HeldOut(dataset, everything=on == "everything")
        return self

    @in_python()
    def update(
        self,
        rows: Any,
        *,
        window: str | None = None,
        epochs: int | None = None,
        held_out: float = HELD_OUT,
        progress: bool | None = None,
        observer: Any = None,
        **reading: Any,
    ) -> Recommender:
        """Return a recommender with new ``rows``, a path, frame or dataset, added; this one stays as it is.

        Known users and items keep their ids and weights, new ones are folded in, and training continues for at most
        ``epochs`` epochs (2), of which the one is kept that ranks the ``held_out`` share of the new pairs best.
        ``window`` drops pairs older than this, such as ``"365d"``. ``reading`` are fields of
        ``dgcf.data.columns.ReadOptions``, such as ``user_col``. What changed is ``updated.snapshot.about["update"]``.
        """
        from dgcf.recommend import estimator
        from dgcf.recommend.update import How, updated_snapshot

        seconds = None if window is None else seconds_of_window(window)
        how, own = How(epochs, seconds, held_out), self._held_out.load()
        with estimator.observed(observer, progress) as both:
            result = updated_snapshot(self.snapshot, own, rows, how, reading, device=self.device, observer=both)
        return self if result is None else Recommender.of(result[0], HeldOut(result[1]))

    def forget(self, users: Ids) -> Recommender:
        """Return a recommender without some users, given by id; this one stays as it is.

        The lists of all others stay the same. `dgcf forget` rewrites files and removes events.
        """
        from dgcf.recommend.forget import forget

        return Recommender.of(*forget(self.snapshot, self._held_out, users))

    @classmethod
    def of(cls, trained: Snapshot | Prepared, held_out: HeldOut | None = None) -> Recommender:
        """Return a recommender of a model that was trained before; ``held_out`` is what it can be measured on."""
        prepared = trained if isinstance(trained, Prepared) else Prepared(trained)
        snapshot = prepared.snapshot
        about = snapshot.about
        rec = cls.__new__(cls)  # its parameters are not checked, which needs torch
        rec._take(snapshot.model, about.get("preset", "plain"), about.get("seed", 0), "auto", about.get("settings", {}))
        rec._fitted, rec._held_out = prepared, held_out or HeldOut()
        return rec

    @property
    def snapshot(self) -> Snapshot:
        """The trained model; raises ``NotFittedError`` before ``fit``."""
        return self._prepared.snapshot

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        self._fitted, self.measurements = Prepared(snapshot), {}

    @property
    def _prepared(self) -> Prepared:
        if self._fitted is None:
            raise NotFittedError("this recommender has seen no data yet; call fit(data), or load one with dgcf.load.")
        return self._fitted

    def save(self, path: str | Path, *, overwrite: bool = False, sign: str | Path | None = None) -> Path:
        """Write one ``.dgcf`` file, or a folder for any other name; ``sign`` is the file of a private key."""
        return artifact.save(self.snapshot, path, overwrite=overwrite, sign=sign)

    @property
    def names(self) -> dict[Side, Names]:
        """Lookup of users and items by id or title."""
        return self._prepared.names

    @property
    def users(self) -> RawIds:
        """The raw ids of all users."""
        return RawIds(self.snapshot.users)

    @property
    def items(self) -> RawIds:
        """The raw ids of all items."""
        return RawIds(self.snapshot.items)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The metrics on ``validation``, by which the best epoch was chosen, and on ``test`` after ``evaluate``."""
        measured = {split: dict(measurement) for split, measurement in self.measurements.items()}
        return {"validation": validation_metrics(self.snapshot), **measured}

    @in_python()
    def evaluate(
        self, data: Any = None, *, k: int | Sequence[int] = 20, split: str = "test", mask: str = "train", **reading: Any
    ) -> Measurement:
        """Return the metrics that `dgcf evaluate` prints, by ranking all items; needs torch.

        They are measured on the ``split`` of the data that the recommender was fitted to, or of other ``data`` with the
        same ids; of rows without a split, all are held-out pairs. ``reading``: options of ``fit`` such as ``user_col``,
        if they differ for ``data``. ``mask`` says whose items are hidden: ``train`` or ``train+validation``.
        """
        from dgcf.recommend.measure import measure

        measured = measure(self.snapshot, self._held_out, data, reading, k=k, split=split, mask=mask)
        if data is None:
            self.measurements[split] = measured
        return measured

    @property
    def folding(self) -> FoldIn:
        """Fold-in of new nodes into the graph; raises ``DataError`` for a model without one."""
        return self._prepared.folding

    def recommend(
        self,
        users: Ids,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        unknown: Unknown = "raise",
        device: str | None = None,
        rules: Rules | ItemRules | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> Table:
        """Return the k best items of each user: columns user, item, rank, score, and title where titles are known.

        ``unknown`` users are refused, skipped, or given the most popular items. Rules are given as an object or as
        arguments, the fields of ``Rules``: ``only``, ``exclude``, ``items_table``, ``where``, ``max_per``, ``boost``,
        ``mmr``. ``device`` ranks with torch there ("cpu", "cuda") instead of with NumPy, and gives the same.
        """
        prepared, k = self._prepared, require_k(k)
        under = prepared.resolve(rules, arguments)
        ids, index, notes = prepared.known_users(users, unknown)
        known = index[index >= 0]
        queries, hidden = self.snapshot.ranking.queries(known), self.snapshot.hidden_items(known, exclude_seen)
        best = prepared.ranker(under).top_k(queries, hidden, k, backend_on(device))
        if len(known) < len(index):
            popular = prepared.popular(under, Pairs.empty(1, self.snapshot.n_items), k)
            best = joined([best, popular]).take(np.where(index >= 0, np.cumsum(index >= 0) - 1, -1))
        return prepared.table({"user": ids}, best, prepared.notes(notes, under, best, k))

    def recommend_for(
        self,
        items: Ids | Iterable[Ids],
        k: int = 10,
        *,
        user: RawId | None = None,
        exclude_seen: bool = True,
        unknown: Unknown = "raise",
        rules: Rules | ItemRules | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> Table:
        """Return the k best items for a new user with ``items``, without any training.

        The user is folded into the graph; a model that represents users by their items alone is exact. With ``user``,
        for that known user, who has ``items`` in addition. Several lists of items are several new users; the column
        list then numbers them, instead of the column user. ``unknown`` items are refused or ignored; a list of such
        items alone is skipped, or gives the most popular items. Rules are as in ``recommend``.
        """
        prepared, k = self._prepared, require_k(k)
        under = prepared.resolve(rules, arguments)
        lists, several = item_lists(items)
        if several and user is not None:
            raise ConfigError(f"several lists of items were given for user {user!r}; give one list for a known user.")
        ranked = [prepared.rank_new(one, k, user, exclude_seen, unknown, under) for one in lists]
        notes = list(dict.fromkeys(note for _, notes in ranked for note in notes))
        kept = [number for number, (best, _) in enumerate(ranked) if len(best.item_idx)]
        best = joined([best for best, _ in ranked])
        raw_id = None if user is None else self.snapshot.users.id_of(self.names["user"].find(user))
        first = {"list": kept} if several else {"user": [raw_id]}
        return prepared.table(first, best, prepared.notes(notes, under, best, k))

    def recommend_all(
        self,
        target: str | Path,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        overwrite: bool = False,
        update: Update | None = None,
        rules: Rules | ItemRules | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> dict[str, Any]:
        """Write the k best items of all users to a Parquet, CSV or JSON-lines file, in bounded memory; return counts.

        ``update(done, total)`` is called after each chunk of users. Rules are as in ``recommend``.
        """
        from dgcf.recommend.batch import Batch  # here: answers about one user need no table engine

        batch = Batch(self.snapshot, k, exclude_seen, rules=self._prepared.resolve(rules, arguments))
        return batch.write(Path(target), overwrite=overwrite, update=update)

    def score(self, users: Ids, items: Ids) -> Floats:
        """Return the scores of pairs, (n,); one user against many items, or many against one, are repeated to fit."""
        user_idx, item_idx = self._prepared.find("user", users), self._prepared.find("item", items)
        if len({len(user_idx), len(item_idx)} - {1}) > 1:
            raise DataError(
                f"{len(user_idx)} users cannot be paired with {len(item_idx)} items; give as many of both, or one."
            )
        return self.snapshot.ranking.pair_scores(*np.broadcast_arrays(user_idx, item_idx))

    def similar_items(self, items: Ids, k: int = 10) -> Table:
        """Return the k items with the largest cosine of their embeddings.

        A model with weights between items ranks by these instead, and leaves out items that get none.
        """
        return self._similar("item", items, k)

    def similar_users(self, users: Ids, k: int = 10) -> Table:
        """Return the k users with the largest cosine of their embeddings."""
        return self._similar("user", users, k)

    def _similar(self, side: Side, names: Ids, k: int) -> Table:
        prepared = self._prepared
        index = prepared.find_some(side, names)
        best, left = prepared.similarity(side).nearest(index, require_k(k))
        first = {f"of_{side}": [self.snapshot.vocabulary(side).id_of(number) for number in index.tolist()]}
        return prepared.table(first, best, note_if_short(k, left, side), side)

    def similar_items_for(self, users: Ids, k: int = 10) -> Table:
        """Return the k items most similar to a new item that ``users`` have, which is folded into the graph."""
        folded = self.folding.fold("item", self._prepared.distinct("user", users)[0])
        best = self._prepared.item_cosines.nearest_to(folded.ranked[None], require_k(k))
        return self._prepared.table({"new": [None]}, best, note_if_short(k, self.snapshot.n_items))

    def audience_for(self, users: Ids, k: int = 10) -> Table:
        """Return the k users to show a new item to, given the ``users`` who have it already."""
        index = self._prepared.distinct("user", users)[0]
        folded = self.folding.fold("item", index)
        n_users = self.snapshot.n_users
        audience = EmbeddingIndex(self.snapshot.user_rows)
        best = top_k(audience, folded.ranked[None], one_query(index, n_users), require_k(k))
        return self._prepared.table({"new": [None]}, best, note_if_short(k, n_users - len(index), "user"), "user")

    def explain(self, user: RawId, item: RawId) -> Explanation:
        """Return the exact parts of the score that ``item`` has for ``user``."""
        return self._prepared.users.explain(self.names["user"].find(user), self.names["item"].find(item))

    def explain_for(self, items: Ids, item: RawId, *, user: RawId | None = None) -> Explanation:
        """Return the same for a user who is folded in, as in ``recommend_for``."""
        index, known, _ = self._prepared.user_items(items, user)
        return self._prepared.users.explain_new(index, self.names["item"].find(item), known)
