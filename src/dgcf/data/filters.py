"""Filters on interactions: each returns the remaining rows and the counts of what it removed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dgcf.data.history import Removed
from dgcf.data.interactions import Interactions
from dgcf.data.pairs import distinct
from dgcf.errors import ConfigError, DataError


def drop_repeats(rows: Interactions) -> tuple[Interactions, Removed]:
    """Keep each pair of a part once: the row with the latest time, if times are known."""
    key = (rows.part.astype(np.int64) * len(rows.users) + rows.user_idx) * len(rows.items) + rows.item_idx
    if rows.timestamp is None:
        key = distinct(key)
        part_user, item_idx = np.divmod(key, len(rows.items))
        part, user_idx = np.divmod(part_user, len(rows.users))
        kept = replace(
            rows,
            user_idx=user_idx.astype(np.int32),
            item_idx=item_idx.astype(np.int32),
            part=part.astype(np.int8),
        )
    else:
        order = np.lexsort((rows.timestamp, key))
        kept = rows.keep(order[np.append(key[order][1:] != key[order][:-1], True)])
    return kept, Removed("repeated pairs", len(rows) + sum(rows.merged) - len(kept), 0, 0)


def k_core(rows: Interactions, user_k: int, item_k: int, *, iterate: bool = True) -> tuple[Interactions, Removed]:
    """Keep users with at least ``user_k`` items and items with at least ``item_k`` users.

    Removing one can push another below its threshold; ``iterate`` repeats until none is below, which is the k-core.
    Otherwise the counts of the input decide.
    """
    if user_k < 0 or item_k < 0:
        raise ConfigError(f"a k-core of {min(user_k, item_k)} is not possible, expected 0 or more.")
    user_idx, item_idx = rows.user_idx, rows.item_idx
    kept: NDArray[np.int64] = np.arange(len(rows))
    while True:
        by_user = np.bincount(user_idx, minlength=len(rows.users))
        by_item = np.bincount(item_idx, minlength=len(rows.items))
        enough = (by_user >= user_k)[user_idx] & (by_item >= item_k)[item_idx]
        if enough.all():
            break
        kept, user_idx, item_idx = kept[enough], user_idx[enough], item_idx[enough]
        if not iterate:
            break
    before = (_present(rows.user_idx, len(rows.users)), _present(rows.item_idx, len(rows.items)))
    after = (_present(user_idx, len(rows.users)), _present(item_idx, len(rows.items)))
    name = f"users with < {user_k}, items with < {item_k}" + ("" if iterate else ", once")
    if not len(kept):
        raise DataError(
            f"none of {len(rows):,} interactions is left with at least {user_k} per user and {item_k} per item; "
            "lower --user-core or --item-core."
        )
    removed = Removed(name, len(rows) - len(kept), before[0] - after[0], before[1] - after[1])
    return (rows.keep(kept) if len(kept) < len(rows) else rows), removed


def _present(index: NDArray[np.int32], size: int) -> int:
    """Return the number of distinct indices."""
    return int(np.count_nonzero(np.bincount(index, minlength=size)))
