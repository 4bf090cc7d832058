"""Filters compared with plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.filters import drop_repeats, k_core
from dgcf.data.interactions import Interactions, RatingFilter, collect
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Split
from dgcf.errors import ConfigError, DataError
from tests.data.rows import rows_of

pair_lists = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=50)


def pairs_of(rows: Interactions) -> set[tuple[object, object]]:
    rows = rows.compact()
    users, items = list(rows.users), list(rows.items)
    return {(users[u], items[i]) for u, i in zip(rows.user_idx, rows.item_idx, strict=True)}


def naive_core(pairs: set[tuple[int, int]], user_k: int, item_k: int, iterate: bool) -> set[tuple[int, int]]:
    while True:
        users = {u for u, _ in pairs if sum(a == u for a, _ in pairs) >= user_k}
        items = {i for _, i in pairs if sum(b == i for _, b in pairs) >= item_k}
        kept = {(u, i) for u, i in pairs if u in users and i in items}
        if kept == pairs or not iterate:
            return kept
        pairs = kept


@given(pair_lists, st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_k_core_equals_the_plain_loop(pairs: list[tuple[int, int]], user_k: int, item_k: int, iterate: bool) -> None:
    rows, _ = drop_repeats(rows_of(pairs))
    expected = naive_core(set(pairs), user_k, item_k, iterate)
    if not expected:
        with pytest.raises(DataError, match="interactions is left with at least"):
            k_core(rows, user_k, item_k, iterate=iterate)
        return
    kept, removed = k_core(rows, user_k, item_k, iterate=iterate)
    assert pairs_of(kept) == expected
    assert removed.pairs == len(set(pairs)) - len(expected)
    assert removed.users == len({u for u, _ in pairs}) - len({u for u, _ in expected})
    assert removed.items == len({i for _, i in pairs}) - len({i for _, i in expected})


@given(pair_lists)
def test_repeats_are_dropped_and_counted(pairs: list[tuple[int, int]]) -> None:
    rows, removed = drop_repeats(rows_of(pairs))
    assert pairs_of(rows) == set(pairs)
    assert len(rows) == len(set(pairs))
    assert removed.pairs == len(pairs) - len(set(pairs))


def test_latest_of_repeated_pairs_is_kept() -> None:
    frame = pd.DataFrame({"user": [1, 1, 1], "item": [5, 5, 6], "timestamp": [3.0, 9.0, 4.0]})
    rows, _ = drop_repeats(collect([frame], ReadOptions(), RatingFilter(), time="needed"))
    assert rows.timestamp is not None
    assert dict(zip(rows.item_idx.tolist(), rows.timestamp.tolist(), strict=True)) == {0: 9.0, 1: 4.0}


def test_rating_filters_report_removed_pairs() -> None:
    frame = pd.DataFrame({"user": range(6), "item": range(6), "rating": [1.0, 2.0, 3.0, 4.0, 4.5, 5.0]})
    whole = Split("none")
    for ratings, users in ((RatingFilter(4.0), [3, 4, 5]), (RatingFilter(values=(2.0, 5.0)), [1, 5])):
        dataset = prepare(frame, Preparation(ratings=ratings, split=whole))
        assert list(dataset.users) == users
        assert dataset.record["filters"][0]["pairs"] == 6 - len(users)
    with pytest.raises(DataError, match="'rating >= 6' leaves no interaction of 6"):
        prepare(frame, Preparation(ratings=RatingFilter(6.0)))
    with pytest.raises(DataError, match="no rating column"):
        prepare(frame[["user", "item"]], Preparation(ratings=RatingFilter(1.0)))
    with pytest.raises(ConfigError, match="not a finite number"):
        RatingFilter(float("nan"))
    with pytest.raises(ConfigError, match="both"):
        RatingFilter(1.0, (1.0,))


def test_negative_core_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected 0 or more"):
        k_core(rows_of([(0, 0)]), -1, 0)


def test_compact_keeps_the_ids_of_rows() -> None:
    rows = rows_of([(3, 1), (5, 2), (9, 1)])
    kept = rows.keep(np.array([False, True, True]) if rows.user_idx[0] == 0 else rows.user_idx != 0)
    assert pairs_of(kept) == {(5, 2), (9, 1)}
    assert list(kept.compact().users) == [5, 9]
