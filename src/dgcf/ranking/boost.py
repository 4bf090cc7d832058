"""Boosts: numbers for items that are added to the scores, in a unit of each query's own.

A boost is one more dimension of the embeddings, ``⟨q, e_i⟩ + t b_i = ⟨(q, t), (e_i, b_i)⟩``. So a boosted ranking is
searched as exactly as any other, by the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Floats, Indices, Rows
from dgcf.ranking.blend import BlendIndex, BlendQueries, with_column
from dgcf.ranking.topk import Candidates, EmbeddingIndex, ItemIndex, WeightIndex, exact_scores


def boosted_index(index: ItemIndex[Any], boost: Rows) -> ItemIndex[Any]:
    """Return the index of items with the boosts (n_items,), to be searched with ``boosted_queries``."""
    match index:
        case EmbeddingIndex(rows=rows):
            return EmbeddingIndex(with_column(rows, boost))
        case BlendIndex(rows=rows, weights=weights):
            return BlendIndex(EmbeddingIndex(with_column(rows.rows, boost)), weights)
        case WeightIndex():
            return BlendIndex(EmbeddingIndex(boost[:, None]), index)
    raise TypeError(f"{type(index).__name__} cannot be boosted")


def boosted_queries(queries: Any, unit: Rows) -> Any:
    """Return the queries for a boosted index; ``unit`` (n,) is what a boost of 1 adds to a score of each."""
    match queries:
        case BlendQueries(rows=rows):
            return queries._replace(rows=with_column(rows, unit))
        case Pairs():
            return BlendQueries(unit[:, None], queries, np.ones(len(unit)))
        case _:
            return with_column(queries, unit)


def take_queries(queries: Any, chosen: Indices) -> Any:
    """Return some of the queries of an index of any kind."""
    match queries:
        case BlendQueries(rows=rows, items=items, scale=scale):
            return BlendQueries(rows[chosen], items.take(chosen), scale[chosen])
        case Pairs():
            return queries.take(chosen)
        case _:
            return queries[chosen]


def join_queries(parts: Sequence[Any]) -> Any:
    """Return the queries of all parts, which are of one index."""
    if len(parts) == 1:
        return parts[0]
    match parts[0]:
        case BlendQueries():
            rows, items, scale = zip(*parts, strict=True)
            return BlendQueries(np.concatenate(rows), stacked(items), np.concatenate(scale))
        case Pairs():
            return stacked(parts)
        case _:
            return np.concatenate(parts)


def score_all(index: ItemIndex[Any], query: Any) -> Floats:
    """Return the exact scores of all items for a single query, (n_items,)."""
    match index:
        case EmbeddingIndex(rows=rows):
            everything = Candidates(np.zeros(len(rows), dtype=np.int64), np.arange(len(rows)))
            return exact_scores(query, rows, everything)
        case BlendIndex(rows=rows, weights=weights):
            sums = weights.scores(query.items[0]) * query.scale[0]
            return score_all(rows, query.rows) + np.asarray(sums, dtype=np.float64)
        case WeightIndex() as sums:
            return sums.scores(query[0])
    raise TypeError(f"{type(index).__name__} cannot score all items")


def stacked(parts: Sequence[Pairs]) -> Pairs:
    """Return the rows of all parts, one below the other."""
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Pairs(indptr, np.concatenate([part.indices for part in parts]), parts[0].n_items)
