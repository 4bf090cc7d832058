"""Generated interaction logs with the structure of a shop and of a film service, for benchmarks of quality.

Both are drawn in the same way: the items of a user are a weighted sample without replacement, with a weight for every
pair of user and item that the structure gives. All numbers come from ``dgcf.random``, so a seed gives the same log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dgcf.files import atomic_file
from dgcf.random import permutation, uniform

Matrix = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Log:
    """The pairs of a log, each once, ascending: ``user_idx`` (n,) and ``item_idx`` (n,)."""

    user_idx: Indices
    item_idx: Indices

    def __len__(self) -> int:
        return len(self.user_idx)

    def write(self, path: Path) -> Path:
        """Write the log as a CSV file with the columns ``user_id`` and ``item_id``."""
        lines = (f"u{user:05d},i{item:05d}\n" for user, item in zip(self.user_idx, self.item_idx, strict=True))
        with atomic_file(path) as beside:
            beside.write_text("user_id,item_id\n" + "".join(lines), encoding="utf-8")
        return path


def retail(n_users: int = 4000, n_items: int = 3600, seed: int = 0) -> Log:
    """Return the log of a shop: clusters of items bought together, complements, items of power-law popularity.

    Clusters have 40 items. A user has two to six of them, with random shares; 60% of the base purchases are divided by
    these shares, 40% are independent of clusters, and both are ∝ popularity. Each item has a complement in another
    cluster: who has bought an item buys its complement with probability .35, and the reverse does not hold. The numbers
    of base purchases follow a power law from 9 on.
    """
    stream = "retail"
    n_clusters = max(2, n_items // 40)
    cluster = permutation(seed, f"{stream}/cluster", n_items) % n_clusters
    popularity = _popularity(seed, stream, n_items, shift=15.0, power=1.0)
    mass = np.bincount(cluster, popularity, n_clusters)
    share = _cluster_shares(seed, stream, n_users, n_clusters)
    weight = popularity * (0.4 / popularity.sum() + 0.6 * (share / mass)[:, cluster])
    degree = 9.0 * (1.0 - uniform(seed, f"{stream}/degree", n_users)) ** -0.65
    base = _sample(seed, stream, weight, np.minimum(degree, n_items // 8).astype(np.int64))
    followed = uniform(seed, f"{stream}/follow", len(base)) < 0.35
    complement = _complement(seed, stream, cluster)[base.item_idx[followed]]
    return _distinct(
        np.concatenate([base.user_idx, base.user_idx[followed]]), np.concatenate([base.item_idx, complement]), n_items
    )


def movies(n_users: int = 3000, n_items: int = 2000, seed: int = 0) -> Log:
    """Return the log of a film service: preferences of low rank, and popularity that they do not explain.

    The weight of a pair is ``popularity_i · exp(2 ⟨p_u, q_i⟩)``. The vectors have 12 normal coordinates, the k-th of
    variance ∝ 1 / k, scaled so that ⟨p_u, q_i⟩ has variance 1. The number of films of a user is log-normal, from 15 on.
    """
    stream, rank = "movies", 12
    variance = 1.0 / np.arange(1, rank + 1)
    scale = np.sqrt(variance / np.sqrt((variance**2).sum()))
    users = _normal(seed, f"{stream}/users", n_users * rank).reshape(n_users, rank) * scale
    items = _normal(seed, f"{stream}/items", n_items * rank).reshape(n_items, rank) * scale
    popularity = _popularity(seed, stream, n_items, shift=30.0, power=1.3)
    # Coordinate by coordinate: the sum does not depend on the blocks of a matrix product.
    taste = np.zeros((n_users, n_items))
    for k in range(rank):
        taste += users[:, k, None] * items[:, k]
    degree = np.exp(3.85 + 0.8 * _normal(seed, f"{stream}/degree", n_users))
    return _sample(seed, stream, popularity * np.exp(2.0 * taste), np.clip(degree, 15, n_items // 4).astype(np.int64))


def _popularity(seed: int, stream: str, n_items: int, *, shift: float, power: float) -> Matrix:
    """Return ``(rank + shift)^-power`` (n_items,) for a random order of the items."""
    return np.asarray((permutation(seed, f"{stream}/popularity", n_items) + shift) ** -power, dtype=np.float64)


def _cluster_shares(seed: int, stream: str, n_users: int, n_clusters: int) -> Matrix:
    """Return the shares (n_users, n_clusters) of two to six clusters per user; a row sums to 1.

    A cluster is drawn with probability ∝ (rank + 10)^-0.5; shares are ∝ exponential numbers.
    """
    attraction = np.tile((np.arange(n_clusters) + 10.0) ** -0.5, (n_users, 1))
    count = 2 + (5 * uniform(seed, f"{stream}/clusters", n_users)).astype(np.int64)
    chosen = _sample(seed, f"{stream}/clusters of users", attraction, np.minimum(count, n_clusters))
    share = np.zeros((n_users, n_clusters))
    share[chosen.user_idx, chosen.item_idx] = _exponential(seed, f"{stream}/shares", len(chosen))
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def _complement(seed: int, stream: str, cluster: Indices) -> Indices:
    """Return the complement of each item (n_items,): a random item of the next cluster."""
    order = np.argsort(cluster, kind="stable")
    size = np.bincount(cluster)
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    beside = (cluster + 1) % len(size)
    place = (uniform(seed, f"{stream}/complement", len(cluster)) * size[beside]).astype(np.int64)
    return np.asarray(order[start[beside] + place])


def _sample(seed: int, stream: str, weight: Matrix, degree: Indices) -> Log:
    """Draw ``degree`` items for each user without replacement, with the given weights (n_users, n_items)."""
    # The k smallest of Exp(1) / weight.
    race = _exponential(seed, f"{stream}/race", weight.size).reshape(weight.shape) / weight
    first = np.argsort(race, axis=1, kind="stable")
    rank = np.arange(weight.shape[1])
    chosen = rank < degree[:, None]
    return _distinct(np.nonzero(chosen)[0], first[chosen], weight.shape[1])


def _distinct(user_idx: Indices, item_idx: Indices, n_items: int) -> Log:
    key = np.unique(user_idx * n_items + item_idx)
    return Log(key // n_items, key % n_items)


def _exponential(seed: int, stream: str, n: int) -> Matrix:
    return -np.log1p(-uniform(seed, stream, n))


def _normal(seed: int, stream: str, n: int) -> Matrix:
    return np.asarray(ndtri(uniform(seed, stream, n) + 2.0**-54))
