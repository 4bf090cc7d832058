"""Check of a candidate: the lists that the service would give with it and without it, on the newest events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.data.vocabulary import Vocabulary
from dgcf.evaluate.bootstrap import bootstrap_intervals
from dgcf.evaluate.metrics import hit_matrix, ndcg
from dgcf.random import permutation
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.snapshot import Snapshot
from dgcf.serve.engine import answers
from dgcf.serve.engine.asks import Ask
from dgcf.serve.engine.overlay import Overlay
from dgcf.serve.engine.served import Served
from dgcf.serve.engine.view import View
from dgcf.serve.events.records import StoredEvent

K = 20
SHARE = 0.2
"""The share of the new pairs, the newest ones, that both models are compared on."""
LEAST_USERS = 20
MOST_USERS = 2_000
"""Users that are compared: with fewer the check says that there are too few; of more, a random choice is taken."""
_TOGETHER = 32

Likes = list[tuple[str, str]]
"""Pairs of a user and an item, by their raw ids as text."""


@dataclass(frozen=True)
class Check:
    """NDCG@20 of the served model and of the candidate, over the same ``users``, on ``pairs`` of the newest events.

    ``interval``: of the mean difference (95 %, bootstrap over users). ``margin``: the share of the served model's
    NDCG@20 that the candidate may lack.
    """

    users: int
    pairs: int
    served: float
    candidate: float
    interval: tuple[float, float]
    margin: float

    @property
    def worse(self) -> bool:
        """Whether the whole interval is below what the margin allows."""
        return self.interval[1] < -self.margin * self.served

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"on the newest {self.pairs:,} new pairs, of {self.users:,} users, NDCG@{K} is {self.served:.4f} with the "
            f"served model and {self.candidate:.4f} with the update (difference {self.candidate - self.served:+.4f}, "
            f"95 % interval {low:+.4f} to {high:+.4f}, margin {self.margin:.1%})"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "k": K, "interval": list(self.interval)}


def compare(served: Snapshot, candidate: Snapshot, rest: Likes, held_out: Likes, margin: float) -> Check | None:
    """Return the check of two models that both know the events of ``rest``; None if there are too few users.

    The served model takes these events into account as the service does: by fold-in. Users of the held-out pairs who
    have no other pair are left out.
    """
    known = {user for user, _ in rest}
    users = sorted({user for user, _ in held_out if user in known or user in served.users})
    if len(users) < LEAST_USERS:
        return None
    chosen = [users[place] for place in np.sort(permutation(0, "refresh/check", len(users))[:MOST_USERS])]
    relevant = _relevant(chosen, held_out)
    first, second = (_values(snapshot, rest, chosen, *relevant) for snapshot in (served, candidate))
    difference = (second - first)[:, None]
    low, high = bootstrap_intervals(difference, seed=0)[0].tolist()
    return Check(len(chosen), len(relevant[1]), float(first.mean()), float(second.mean()), (low, high), margin)


def _relevant(users: Sequence[str], held_out: Likes) -> tuple[dict[str, int], Pairs]:
    """Return a number for each item, and the held-out pairs of some users."""
    place = {user: index for index, user in enumerate(users)}
    items = {item: index for index, item in enumerate(sorted({item for _, item in held_out}))}
    pairs = np.array([(place[user], items[item]) for user, item in held_out if user in place], dtype=np.int64)
    return items, Pairs.from_indices(pairs[:, 0], pairs[:, 1], len(users), len(items))


def _values(
    snapshot: Snapshot, rest: Likes, users: Sequence[str], items: dict[str, int], relevant: Pairs
) -> NDArray[np.float64]:
    """Return NDCG@20 of the lists of users, as the service gives them."""
    overlay = Overlay.of([StoredEvent(n, "", user, item, "like", 1.0, 0.0) for n, (user, item) in enumerate(rest, 1)])
    view = View(Served(0, "", Path(), Prepared(snapshot), datetime.now(UTC)), overlay, {})
    ranked = np.full((len(users), K), -1, dtype=np.int64)
    for start in range(0, len(users), _TOGETHER):
        lists = answers.recommend(view, [Ask(user, k=K) for user in users[start : start + _TOGETHER]])
        for row, answer in enumerate(lists, start):
            if isinstance(answer, Exception):
                raise answer
            best = [items.get(str(entry["item"]), -1) for entry in answer["recommendations"]]
            ranked[row, : len(best)] = best
    return ndcg(hit_matrix(ranked, np.arange(len(users)), relevant), relevant.user_degrees, K)


def likes_of(users: Vocabulary, items: Vocabulary, pairs: Pairs) -> Likes:
    """Return pairs by the raw ids."""
    rows = zip(pairs.user_idx.tolist(), pairs.indices.tolist(), strict=True)
    return [(users.texts[user], items.texts[item]) for user, item in rows]
