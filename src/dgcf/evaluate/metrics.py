"""The definitions of the metrics: from rankings to hits, from hits to a value per user.

Notation: R_u is the set of relevant items of user u, |R_u| ≥ 1; ``hit_r`` is 1 if the item at rank r = 1 … K is
relevant, else 0. A list shorter than K counts as one with misses at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError, did_you_mean

ANY_DATA_K = 1000
Hits = NDArray[np.bool_]
PerUser = NDArray[np.float64]
Metric = Callable[[Hits, NDArray[np.int64], int], PerUser]


def hit_matrix(item_idx: NDArray[np.int64], user_idx: NDArray[np.int64], relevant: Pairs) -> Hits:
    """Return (n, K) whether each item of ``item_idx`` (n, K) is relevant to its user; −1 stands for no item."""
    if len(relevant) == 0:
        return np.zeros(item_idx.shape, dtype=np.bool_)
    keys = relevant.keys()  # ascending
    ranked = user_idx[:, None].astype(np.int64) * relevant.n_items + item_idx
    place = np.minimum(np.searchsorted(keys, ranked), len(keys) - 1)
    return np.asarray((keys[place] == ranked) & (item_idx >= 0))


def recall(hits: Hits, n_relevant: NDArray[np.int64], k: int) -> PerUser:
    """``Recall@K = Σ_{r ≤ K} hit_r / |R_u|``: (n, ≥ k) hits, (n,) sizes → (n,)."""
    return np.asarray(_first(hits, n_relevant, k).sum(1) / n_relevant)


def precision(hits: Hits, n_relevant: NDArray[np.int64], k: int) -> PerUser:
    """``Precision@K = Σ_{r ≤ K} hit_r / K``."""
    return np.asarray(_first(hits, n_relevant, k).sum(1) / k)


def hit(hits: Hits, n_relevant: NDArray[np.int64], k: int) -> PerUser:
    """``Hit@K = max_{r ≤ K} hit_r``; its mean over users is the hit rate."""
    return np.asarray(_first(hits, n_relevant, k).any(1), dtype=np.float64)


def reciprocal_rank(hits: Hits, n_relevant: NDArray[np.int64], k: int) -> PerUser:
    """``RR@K = max_{r ≤ K} hit_r / r``, the reciprocal rank of the first hit; its mean is MRR@K."""
    return np.asarray((_first(hits, n_relevant, k) / _ranks(k)).max(1))


def ndcg(hits: Hits, n_relevant: NDArray[np.int64], k: int) -> PerUser:
    """``NDCG@K = Σ_{r ≤ K} hit_r / log₂(r + 1)  ÷  Σ_{r ≤ min(K, |R_u|)} 1 / log₂(r + 1)``.

    Gains are binary. The ideal ranking has hits at its first min(K, |R_u|) ranks, so a perfect list scores 1 for any K.
    """
    first = _first(hits, n_relevant, k)
    discount = 1 / np.log2(_ranks(k) + 1)
    ideal = np.cumsum(discount)[np.minimum(n_relevant, k) - 1]
    gained = np.cumsum(first * discount, axis=1)[:, -1]  # summed in the order of the ideal: perfect is exactly 1
    return np.asarray(gained / ideal)


def average_precision(hits: Hits, n_relevant: NDArray[np.int64], k: int) -> PerUser:
    """``AP@K = Σ_{r ≤ K} hit_r · Precision@r  ÷  min(K, |R_u|)``; its mean over users is MAP@K.

    trec_eval's ``map_cut`` divides by |R_u| instead, so a perfect list of K < |R_u| items scores below 1.
    """
    first = _first(hits, n_relevant, k)
    return np.asarray((first * first.cumsum(1) / _ranks(k)).sum(1) / np.minimum(n_relevant, k))


METRICS: Mapping[str, Metric] = {
    "recall": recall,
    "ndcg": ndcg,
    "precision": precision,
    "hit": hit,
    "mrr": reciprocal_rank,
    "map": average_precision,
}


def popularity(item_idx: NDArray[np.int64], item_degrees: NDArray[np.int64], k: int) -> PerUser:
    """Return the mean number of train interactions of the first K items of each user; 0 for an empty list."""
    first = item_idx[:, :k]
    ranked = first >= 0
    degree = np.where(ranked, item_degrees[first], 0)
    return np.asarray(degree.sum(1) / np.maximum(ranked.sum(1), 1))


def coverage(item_idx: NDArray[np.int64], n_items: int, k: int) -> float:
    """Return the share of all items that are among the first K of at least one user."""
    first = item_idx[:, :k]
    return float(len(np.unique(first[first >= 0])) / n_items)


def parse_metric(name: str) -> tuple[str, int]:
    """Return the name and the cut-off of a metric: ``"recall@20"`` → ``("recall", 20)``."""
    metric, _, k = name.partition("@")
    known = [*METRICS, "popularity", "coverage"]
    if metric not in known:
        raise ConfigError(
            f"'{name}' is not a metric, expected one of {', '.join(known)} with a cut-off, as in recall@20"
            f"{did_you_mean(metric, known) or '.'}"
        )
    if re.fullmatch(r"[1-9][0-9]{0,17}", k) is None:
        raise ConfigError(f"'{name}' has no valid cut-off; write the metric as {metric}@20.")
    return metric, int(k)


def require_cut_offs(ks: Sequence[int], n_items: int) -> tuple[int, ...]:
    """Return the cut-offs, ascending; raise ``ConfigError`` for one that is not positive or too large.

    Cut-offs up to ``ANY_DATA_K`` are valid for any data, since a shorter list counts as one with misses at its end. A
    larger one must not exceed ``n_items``.
    """
    whole = all(isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k >= 1 for k in ks)
    if not ks or not whole:
        raise ConfigError(f"the cut-offs are {list(ks)}; give one or more whole numbers from 1 on.")
    if max(ks) > max(n_items, ANY_DATA_K):
        raise ConfigError(f"the cut-off k is {max(ks)}, but {n_items:,} items can be ranked; give k up to that number.")
    return tuple(sorted({int(k) for k in ks}))


def _first(hits: Hits, n_relevant: NDArray[np.int64], k: int) -> Hits:
    """Return the hits at the first k ranks; raise if fewer were ranked or a user has no relevant item."""
    if not 1 <= k <= hits.shape[1]:
        raise ConfigError(f"k is {k}, but {hits.shape[1]} items were ranked; give k from 1 to that number.")
    if len(n_relevant) and n_relevant.min() < 1:
        raise DataError("a user has no relevant item, so the metric has no value; leave such users out.")
    return hits[:, :k]


def _ranks(k: int) -> NDArray[np.float64]:
    return np.arange(1, k + 1, dtype=np.float64)
