"""Boosts: numbers for items that are added to the scores, in a unit of each query's own.

A boost is one more dimension of the embeddings, ``⟨q, e_i⟩ + t b_i = ⟨(q, t), (e_i, b_i)⟩``. So a boosted ranking is
searched as exactly as any other, by the same code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Indices, Rows
from dgcf.ranking.blend import BlendIndex, BlendQueries
from dgcf.ranking.topk import EmbeddingIndex, ItemIndex, WeightIndex


def boosted_index(index: ItemIndex[Any], boost: Rows) -> ItemIndex[Any]:
    """Return the index of items with the boosts (n_items,), to be searched with ``boosted_queries``."""
    match index:
        case EmbeddingIndex(rows=rows):
            return EmbeddingIndex(_with_column(rows, boost))
        case BlendIndex(rows=rows, weights=weights):
            return BlendIndex(EmbeddingIndex(_with_column(rows.rows, boost)), weights)
        case WeightIndex():
            return BlendIndex(EmbeddingIndex(boost[:, None]), index)
    raise TypeError(f"{type(index).__name__} cannot be boosted")


def boosted_queries(queries: Any, unit: Rows) -> Any:
    """Return the queries for a boosted index; ``unit`` (n,) is what a boost of 1 adds to a score of each."""
    match queries:
        case BlendQueries(rows=rows):
            return queries._replace(rows=_with_column(rows, unit))
        case Pairs():
            return BlendQueries(unit[:, None], queries, np.ones(len(unit)))
        case _:
            return _with_column(queries, unit)


def take_queries(queries: Any, chosen: Indices) -> Any:
    """Return some of the queries of an index of any kind."""
    match queries:
        case BlendQueries(rows=rows, items=items, scale=scale):
            return BlendQueries(rows[chosen], items.take(chosen), scale[chosen])
        case Pairs():
            return queries.take(chosen)
        case _:
            return queries[chosen]


def _with_column(rows: Rows, column: Rows) -> Rows:
    return np.column_stack([rows, column]).astype(np.float32, copy=False)
