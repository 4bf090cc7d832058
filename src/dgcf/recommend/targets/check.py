"""Compare the lists that a target gives with those of the recommender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.ids import RawId
from dgcf.random import permutation
from dgcf.ranking.topk import EmbeddingIndex, top_k
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.targets.base import Search, Vectors


@dataclass(frozen=True)
class Check:
    """The mean share of the k best items of ``users`` sampled users that a target returned.

    ``recall``: of the items that ``Recommender.recommend`` ranks first, seen ones included; ``recall_of_vectors``: of
    those with the largest inner products, which the index alone can miss.
    """

    users: int
    k: int
    recall: float
    recall_of_vectors: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check(rec: Recommender, vectors: Vectors, search: Search, users: int, k: int) -> Check:
    """Search for some users and return the recall against the exact lists."""
    snapshot = rec.snapshot
    k = min(k, snapshot.n_items)
    sample = np.sort(permutation(0, "export/check", snapshot.n_users)[:users])
    returned = search(sample.tolist(), k)
    ids = [snapshot.users.id_of(user) for user in sample.tolist()]
    exact = rec.recommend(ids, k, exclude_seen=False)["item"]
    queries, hidden = vectors.rows["user"][sample], Pairs.empty(len(sample), snapshot.n_items)
    nearest = top_k(EmbeddingIndex(vectors.rows["item"]), queries, hidden, k).item_idx
    by_vectors = [[snapshot.items.id_of(item) for item in row] for row in nearest.tolist()]
    by_model = [exact[place * k : (place + 1) * k] for place in range(len(sample))]
    return Check(len(sample), k, _recall(returned, by_model), _recall(returned, by_vectors))


def _recall(returned: Sequence[Sequence[RawId]], exact: Sequence[Sequence[RawId]]) -> float:
    shares = [len(set(row) & set(best)) / len(best) for row, best in zip(returned, exact, strict=True)]
    return float(np.mean(shares))
