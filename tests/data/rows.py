"""Rows of indices built in memory, as `collect` would read them: tests of pure functions need no DuckDB connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgcf.data.interactions import Interactions
from dgcf.data.source import Source
from dgcf.data.vocabulary import Vocabulary
from dgcf.ids import RawId

LISTED = Source(label="lists", listed=True)


def rows_of(
    pairs: Sequence[tuple[RawId, RawId]],
    times: Sequence[float] | None = None,
    part: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
    sources: tuple[Source, ...] = (Source(label="rows"),),
) -> Interactions:
    """Return the rows of raw pairs; ids are numbered in the vocabulary's order, integers stay integers."""
    vocabularies: dict[str, Vocabulary] = {}
    columns: dict[str, Any] = {}
    for what, ids in zip(("user", "item"), zip(*pairs, strict=True), strict=True):
        kind = "integer" if all(isinstance(raw, int) for raw in ids) else "text"
        vocabularies[what] = Vocabulary.from_ids(what, ids, kind)
        columns[what] = np.array([vocabularies[what].index_of(raw) for raw in ids], dtype=np.int32)
    return Interactions(
        vocabularies["user"],
        vocabularies["item"],
        columns["user"],
        columns["item"],
        np.array(part or [0] * len(pairs), dtype=np.int8),
        None if times is None else np.array(times, dtype=np.float64),
        rows_read=len(pairs),
        sources=sources,
        weight=None if weights is None else np.array(weights, dtype=np.float64),
    )
