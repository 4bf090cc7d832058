"""Measure what a model keeps of users that are removed from it: compare it with one that is trained without them.

A model that is solved at once is computed exactly. Another one is trained again, for as many epochs and with the same
seed. Its random numbers differ all the same, because users and pairs are numbered anew; so it is also trained again
with the users and another seed, which shows how much a training differs by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dgcf.data import Dataset, Pairs
from dgcf.data.forget import others
from dgcf.data.forget import without_users as dataset_without
from dgcf.errors import ConfigError
from dgcf.ranking.arrays import Indices
from dgcf.ranking.rankings import Ranking
from dgcf.ranking.topk import NUMPY, top_k
from dgcf.recommend.prepared import require_k
from dgcf.recommend.snapshot import Snapshot
from dgcf.train import Recipe, resolve, train

K, MOST_USERS = 10, 2_000
MOST_STEPS = 100_000_000
"""Largest product of epochs and pairs of a training that is done again."""
Bar = Callable[[float, float | None], None]


@dataclass(frozen=True)
class Change:
    """How the lists of users differ from those of another model.

    ``same_items``: the mean share of the k best items that are in both; ``same_lists``: the share of lists with the
    same items in the same order; ``scores``: the mean absolute difference of the scores of the k best items, relative
    to their mean absolute value.
    """

    same_items: float
    same_lists: float
    scores: float


@dataclass(frozen=True)
class Measured:
    """The lists of the other users, compared with those of a model trained without the forgotten ones.

    ``by_chance``: compared with those of a model trained with them and another seed; None for one without a seed.
    """

    model: str
    users: int
    k: int
    without: Change
    by_chance: Change | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    snapshot: Snapshot,
    users: Collection[str],
    dataset: Dataset | None = None,
    *,
    k: int = K,
    device: str = "auto",
    update: Bar = lambda done, total: None,
) -> Measured:
    """Return the change of the other users' lists; ``dataset`` is the one that the model was trained on, if known."""
    k, recipe, seed = require_k(k), _recipe(snapshot), int(snapshot.about.get("seed", 0))
    empty = Pairs.empty(snapshot.n_users, snapshot.n_items)
    if dataset is None:  # with arrays that can be written to, as torch needs them
        train_pairs = snapshot.train.of_users(np.arange(snapshot.n_users))
        dataset = Dataset("data", snapshot.users, snapshot.items, train_pairs, empty, empty)
    whole = replace(dataset, validation=empty, test=empty)
    _require_small(recipe, len(whole.train))
    kept = others(snapshot.users, users)
    some = kept[:: -(-len(kept) // MOST_USERS)]
    before = _Lists.of(snapshot.ranking, some, snapshot.seen, k)
    steps = 1 + recipe.entry.seeded
    update(0, steps)
    without = _trained(dataset_without(whole, users, 0.0), recipe, seed, device)
    change = before.change(without, np.searchsorted(kept, some))
    update(1, steps)
    by_chance = None
    if recipe.entry.seeded:
        by_chance = before.change(_trained(whole, recipe, seed + 1, device), some)
        update(2, steps)
    return Measured(snapshot.model, len(some), k, change, by_chance)


def _recipe(snapshot: Snapshot) -> Recipe:
    """Return the recipe of the model, with the epochs and the item weights that were chosen."""
    about = snapshot.about
    settings = {**about.get("settings", {}), **about.get("blend", {})}
    recipe = resolve(snapshot.model, preset=about.get("preset", "plain"), settings=settings)
    if recipe.entry.solved:
        return recipe
    epochs = max(1, int(about.get("epochs", 1)))
    return resolve(recipe.name, preset=recipe.preset, settings={**recipe.settings(), "epochs": epochs})


def _require_small(recipe: Recipe, pairs: int) -> None:
    epochs = 1 if recipe.entry.solved else recipe.train.epochs
    if not recipe.entry.solved and epochs * pairs > MOST_STEPS:
        raise ConfigError(
            f"--measure would train again for {epochs:,} epochs on {pairs:,} pairs, expected at most {MOST_STEPS:,} "
            "pairs in all; leave it out."
        )


def _trained(dataset: Dataset, recipe: Recipe, seed: int, device: str) -> Ranking:
    trained = train(dataset, recipe, seed=seed, device=device)
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.ranking.to_numpy()


@dataclass(frozen=True)
class _Lists:
    """The k best items of some users, with their scores and the items that are hidden."""

    hidden: Pairs
    k: int
    items: Indices
    scores: Any

    @classmethod
    def of(cls, ranking: Ranking, users: Indices, seen: Pairs, k: int) -> _Lists:
        hidden = seen.take(users)
        best = top_k(ranking.index(), ranking.queries(users), hidden, k, NUMPY)
        return cls(hidden, k, best.item_idx, best.scores)

    def change(self, ranking: Ranking, users: Indices) -> Change:
        """Return how the lists of another ranking differ, which has these numbers for the same users."""
        other = top_k(ranking.index(), ranking.queries(users), self.hidden, self.k, NUMPY).item_idx
        there = self.items >= 0
        shared = [np.intersect1d(a[a >= 0], b[b >= 0]).size for a, b in zip(self.items, other, strict=True)]
        row, _ = np.nonzero(there)
        now = ranking.pair_scores(users[row], self.items[there])
        size = float(np.abs(self.scores[there]).mean())
        return Change(
            same_items=float(np.mean(np.array(shared) / np.maximum(there.sum(1), 1))),
            same_lists=float((self.items == other).all(1).mean()),
            scores=float(np.abs(now - self.scores[there]).mean() / max(size, 1e-12)),
        )
