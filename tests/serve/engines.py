"""Engines in this process over small trained models, and their scores written out with dense arrays."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dgcf.data import Dataset, Pairs
from dgcf.data.synthetic import planted
from dgcf.ids import RawId
from dgcf.ranking.rankings import ItemWeights
from dgcf.recommend import Recommender
from dgcf.serve.events.records import Event, ItemRecord
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.split import engine_of
from dgcf.serve.experiments.tally import Tally
from dgcf.serve.settings import Settings
from tests.recommend.conftest import random_dataset

T = TypeVar("T")
Dense = NDArray[np.float64]
MODELS = ("composed", "dgcf", "lightgcn", "bpr-mf", "ease", "item-knn", "popularity")
LEARNING = [name for name in MODELS if name != "bpr-mf"]
"""Models that learn from events."""
EXTENDING = ("composed", "dgcf", "lightgcn")
"""Models that a new item can be folded into."""
INTEGER = ("lightgcn", "item-knn")
"""Models of data whose ids are integers."""
SECONDS = 60


@cache
def data(integer: bool) -> Dataset:
    """Return 60 users and 70 items; all have a training pair."""
    if not integer:
        return planted(n_users=60, n_items=70)
    dataset = random_dataset(60, 70, seed=3, density=0.4)
    missing = np.flatnonzero(dataset.train.item_degrees == 0)
    keys = np.union1d(dataset.train.keys(), missing)  # of user 0
    return Dataset(
        "random", dataset.users, dataset.items, Pairs.from_keys(keys, 60, 70), dataset.validation, dataset.test
    )


@cache
def trained(name: str, seed: int = 0) -> Recommender:
    settings: dict[str, Any] = {"item-knn": {"neighbours": 12}, "ease": {"l2": 20.0}, "popularity": {}}.get(
        name, {"dim": 8, "epochs": 3, "learning_rate": 1e-2}
    )
    if name == "composed":
        settings |= {"blend": "gf-cf(rank=8)", "blend_weights": "0.5", "blend_neighbours": 30}
    model = "dgcf" if name == "composed" else name
    rec = Recommender(model, preset="plain", device="cpu", seed=seed, **settings).fit(data(name in INTEGER))
    assert (rec.snapshot.ranking.item_weights is not None) == (name in ("composed", "ease", "item-knn"))
    return rec


def dense_scores(rec: Recommender, items: Sequence[RawId], user: RawId | None = None) -> Dense:
    """The scores of a user with ``items`` (and those of the training), in float64 with dense arrays."""
    snapshot, names = rec.snapshot, rec.snapshot.items
    index = {names.index_of(item) for item in items}
    known = None if user is None else snapshot.users.index_of(user)
    if known is not None:
        index |= set(snapshot.train[known].tolist())
    own = np.array(sorted(index), dtype=np.int64)
    weights = snapshot.ranking.item_weights
    sums = np.zeros(snapshot.n_items)
    if weights is not None:
        for item in own:
            sums += weights.row(int(item), np.arange(snapshot.n_items))
    if isinstance(snapshot.ranking, ItemWeights):
        return sums
    if snapshot.model == "popularity":
        row = snapshot.user_rows[0]
    elif known is not None and set(own.tolist()) == set(snapshot.train[known].tolist()):
        row = snapshot.user_rows[known]
    else:
        row = rec.folding.fold("user", own, known).ranked
    return snapshot.item_rows.astype(np.float64) @ row.astype(np.float64) + sums / np.sqrt(max(len(own), 1))


def best(rec: Recommender, scores: Dense, hidden: Iterable[RawId], k: int) -> list[RawId]:
    """The k best items by a full sort; ties go to the smaller index."""
    left_out = {str(item) for item in hidden}
    order = np.lexsort((np.arange(len(scores)), -scores))
    return [item for index in order if str(item := rec.snapshot.items.id_of(int(index))) not in left_out][:k]


def seen(rec: Recommender, user: RawId) -> list[RawId]:
    """All items that a user has, in any split."""
    items = rec.snapshot.items
    return [items.id_of(int(index)) for index in rec.snapshot.seen[rec.snapshot.users.index_of(user)]]


def items_of(answer: dict[str, Any]) -> list[RawId]:
    return [row["item"] for row in answer["recommendations"]]


def scores_of(answer: dict[str, Any]) -> list[float]:
    return [row["score"] for row in answer["recommendations"]]


class Running:
    """An engine that is started, with the event loop that it runs in; a call runs a coroutine of it."""

    def __init__(self, model: Path, folder: Path, *, fresh: bool = True, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.settings = Settings(model, folder, **settings)
        self.store = EventStore.open(self.settings.events_file)
        self.tally = Tally()
        self.engine = engine_of(self.settings, self.store, self.tally)
        self._fresh = fresh

    def __enter__(self) -> Self:
        self(self.engine.start(fresh=self._fresh))
        return self

    def __exit__(self, *problem: object) -> None:
        self(self.engine.close())
        self.store.close()
        self.loop.close()

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, SECONDS))

    def recommend(self, user: RawId, **more: Any) -> dict[str, Any]:
        return self(self.engine.recommend(user, **more))

    def recommend_for(self, items: Sequence[RawId], negative: Sequence[RawId] = (), **more: Any) -> dict[str, Any]:
        return self(self.engine.recommend_for(items, negative, **more))

    def add(self, user: RawId, *items: RawId, kind: str = "like") -> list[str]:
        """Store an event for each item and return their keys."""
        events = [Event(str(user), str(item), kind) for item in items]
        assert all(self.store.submit(events).result(SECONDS))
        return [event.key for event in events]

    def put(self, item: RawId, **more: Any) -> None:
        self.store.put_item(ItemRecord(str(item), **more)).result(SECONDS)
