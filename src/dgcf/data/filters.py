"""Filters on interactions: each returns the remaining rows and the counts of what it removed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dgcf.data.history import Removed
from dgcf.data.interactions import Interactions
from dgcf.data.pairs import distinct
from dgcf.errors import ConfigError, DataError

REPEATED = "repeated pairs"


def drop_repeats(rows: Interactions) -> tuple[Interactions, Removed]:
    """Keep each pair of a part once, with the latest of its times and the sum of its weights, if they are known."""
    key = (rows.part.astype(np.int64) * len(rows.users) + rows.user_idx) * len(rows.items) + rows.item_idx
    if rows.timestamp is None and rows.weight is None:
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
        # Weights are summed in their own order, so that the order of the file does not matter.
        columns = [column for column in (rows.weight, rows.timestamp) if column is not None]
        order = np.lexsort((*columns, key))
        last = np.append(key[order][1:] != key[order][:-1], True)
        kept = rows.keep(order[last])
        if rows.weight is not None:
            firsts = np.append(0, np.flatnonzero(last)[:-1] + 1)
            kept = replace(kept, weight=np.add.reduceat(rows.weight[order], firsts))
    return kept, Removed(REPEATED, len(rows) + sum(rows.merged) - len(kept), 0, 0)


def core_of_events(
    rows: Interactions, user_k: int, item_k: int, *, iterate: bool = True
) -> tuple[Interactions, Removed]:
    """Keep the rows of the pairs that ``k_core`` keeps; rows may repeat a pair, which counts once."""
    pairs, _ = drop_repeats(replace(rows, part=np.zeros_like(rows.part)))
    core, removed = k_core(pairs, user_k, item_k, iterate=iterate)
    kept = rows.keep(np.isin(_pair_keys(rows), _pair_keys(core)))
    return kept, replace(removed, pairs=len(rows) - len(kept))


def held_out_repeats(rows: Interactions) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Return which rows repeat a pair of an earlier part, and their numbers; rows hold each pair of a part once.

    ``validation`` and ``test`` count pairs that are also in train, ``test_validation`` the other pairs of test that are
    also in validation. A part of a row is 0 for train, 1 for validation, 2 for test.
    """
    key = _pair_keys(rows)
    train, validation, test = (key[rows.part == part] for part in range(3))
    in_train, in_validation = np.isin(key, train), np.isin(key, validation)
    again = ((rows.part > 0) & in_train) | ((rows.part == 2) & in_validation)
    return again, {
        "validation": int(np.isin(validation, train).sum()),
        "test": int(np.isin(test, train).sum()),
        "test_validation": int(((rows.part == 2) & in_validation & ~in_train).sum()),
    }


def _pair_keys(rows: Interactions) -> NDArray[np.int64]:
    return rows.user_idx.astype(np.int64) * len(rows.items) + rows.item_idx


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
