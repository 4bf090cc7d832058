"""Extend a snapshot by new items, which are folded into the graph from the users who like them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError
from dgcf.ranking.arrays import Rows
from dgcf.ranking.blend import Blend
from dgcf.ranking.rankings import Embeddings
from dgcf.ranking.user_rules import ConstantRow
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.snapshot import Snapshot


def can_extend(prepared: Prepared) -> bool:
    """Return whether a new item can be folded into the model."""
    if not isinstance(prepared.snapshot.ranking, Embeddings | Blend):
        return False
    try:
        _ = prepared.folding
    except DataError:
        return False
    return True


def extended(snapshot: Snapshot, folding: FoldIn, items: Mapping[str, Rows], titles: Mapping[str, str]) -> Snapshot:
    """Return the snapshot with more items, each given with its row (dim,), folded in.

    A new item has an embedding, but no training pairs: it can be recommended, and does not change who is recommended
    what else. The indices of all other items stay.
    """
    if not items:
        return snapshot
    rows = np.stack(list(items.values()))
    known, n_items = snapshot.items, snapshot.n_items + len(items)
    return replace(
        snapshot,
        items=known.with_more({item: titles.get(item, "") for item in items}),
        train=_wider(snapshot.train, n_items),
        seen=_wider(snapshot.seen, n_items),
        ranking=_ranking(snapshot.ranking, rows, n_items),
        load_layers=lambda: folding.layers,
    )


def _ranking(ranking: Any, rows: Rows, n_items: int) -> Any:
    if isinstance(ranking, Blend):
        base, weights, prior = _embeddings(ranking.base, rows), ranking.weights.with_empty(len(rows)), ranking.prior
        if prior is not None:
            prior = np.concatenate([prior, np.zeros(len(rows), dtype=np.float32)])
        return Blend(base, _wider(ranking.pairs, n_items), weights, prior)
    return _embeddings(ranking, rows)


def _embeddings(embeddings: Embeddings[Rows], rows: Rows) -> Embeddings[Rows]:
    rule = embeddings.user_rule
    assert not isinstance(rule, ConstantRow)
    return Embeddings(embeddings.users, np.concatenate([embeddings.items, rows.astype(np.float32)]), rule)


def _wider(pairs: Pairs, n_items: int) -> Pairs:
    return replace(pairs, n_items=n_items)
