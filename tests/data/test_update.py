"""The pairs of an updated dataset against plain sets of raw ids, and its held-out part and window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.update import seconds_of_window, update
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError

Timed = dict[tuple[str, str], int]
DAY = 86_400
NOW = 1_700_000_000

ids = st.sampled_from("abcdefgh")
logs = st.dictionaries(st.tuples(ids, ids), st.integers(0, 40), min_size=1, max_size=40)
"""Days by raw pair, with equal ones."""


def dataset_of(log: Timed, held: int = 0) -> Dataset:
    """Return a dataset of raw pairs with their days; every ``held``-th pair is a test pair."""
    users, items = (
        Vocabulary.from_ids(what, {pair[side] for pair in log}) for side, what in enumerate(("user", "item"))
    )
    key = np.array([users.index_of(user) * len(items) + items.index_of(item) for user, item in log], dtype=np.int64)
    time = np.array([NOW + day * DAY for day in log.values()], dtype=np.int64)
    pairs = Pairs.from_keys(np.sort(key), len(users), len(items)).with_values(key, time=time)
    test = np.arange(len(pairs)) % held == held - 1 if held else np.zeros(len(pairs), dtype=bool)
    return Dataset("log", users, items, pairs.where(~test), Pairs.empty(len(users), len(items)), pairs.where(test))


def timed(dataset: Dataset, *splits: str) -> Timed:
    """Return the days of the pairs of some splits, by raw ids."""
    days: Timed = {}
    for split in splits:
        pairs = dataset.split(split)
        for user, item, time in zip(pairs.user_idx, pairs.indices, pairs.time, strict=True):
            days[dataset.users.texts[user], dataset.items.texts[item]] = round((time - NOW) / DAY)
    return days


ALL = ("train", "validation", "test")


@given(logs, logs, st.sampled_from([0.0, 0.1, 0.5, 0.9]))
def test_pairs_are_the_union_and_old_ids_keep_their_places(old: Timed, new: Timed, share: float) -> None:
    before, rows = dataset_of(old, held=5), dataset_of(new)
    after, counts = update(before, rows, held_out=share)
    assert timed(after, *ALL).keys() == old.keys() | new.keys()
    assert len(after.train) + len(after.validation) + len(after.test) == len(old.keys() | new.keys())
    assert (counts.new_pairs, counts.known_pairs) == (len(new.keys() - old.keys()), len(new.keys() & old.keys()))
    for one, other in ((before.users, after.users), (before.items, after.items)):
        assert other.texts[: len(one)] == one.texts
        assert len(set(other.texts)) == len(other.texts)
    assert counts.new_users == len({user for user, _ in new} - {user for user, _ in old})


@given(logs, logs, st.sampled_from([0.1, 0.3, 0.5, 0.9]))
def test_held_out_pairs_are_the_newest_new_ones_and_leave_every_node_a_pair(
    old: Timed, new: Timed, share: float
) -> None:
    after, counts = update(dataset_of(old), dataset_of(new), held_out=share)
    held = timed(after, "validation")
    fresh = {pair: day for pair, day in new.items() if pair not in old}
    assert held.keys() <= fresh.keys()
    assert len(held) == counts.held_out <= round(share * len(fresh))
    if held:
        newest = sorted(fresh.values())[-round(share * len(fresh)) :]
        assert min(held.values()) >= newest[0]
    assert not len(after.test)
    assert (after.train.user_degrees > 0).all()
    assert (after.train.item_degrees > 0).all()


@given(logs, logs, st.integers(1, 30))
def test_window_keeps_what_is_near_the_newest_pair(old: Timed, new: Timed, days: int) -> None:
    together = {pair: max(log[pair] for log in (old, new) if pair in log) for pair in {**old, **new}}
    kept = {pair for pair, day in together.items() if day >= max(together.values()) - days}
    after, counts = update(dataset_of(old), dataset_of(new), window=days * DAY, held_out=0.0)
    assert timed(after, *ALL).keys() == kept
    assert counts.expired_pairs == len(together) - len(kept)


def test_second_update_with_the_same_rows_changes_nothing() -> None:
    before = dataset_of({("a", "x"): 1, ("b", "x"): 2, ("b", "y"): 3})
    rows = dataset_of({("a", "y"): 4, ("c", "x"): 5})
    after, _ = update(before, rows)
    again, counts = update(after, rows)
    assert (counts.new_pairs, counts.new_users, counts.known_pairs) == (0, 0, 2)
    assert timed(again, *ALL) == timed(after, *ALL)
    assert [step["new_pairs"] for step in again.record["updates"]] == [2, 0]


def test_titles_of_new_items_are_added() -> None:
    before, rows = dataset_of({("a", "x"): 1, ("b", "y"): 2}), dataset_of({("a", "z"): 3})
    titled = replace(rows, items=rows.items.with_titles({"z": "The last"}))
    after, _ = update(before, titled, held_out=0.0)
    assert after.items.titles is not None
    assert after.items.titles[after.items.index_of("z")] == "The last"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("365d", 365 * DAY, id="days"),
        pytest.param(" 48 h", 2 * DAY, id="hours"),
        pytest.param("1.5w", 10.5 * DAY, id="weeks"),
    ],
)
def test_windows(text: str, seconds: float) -> None:
    assert seconds_of_window(text) == seconds


@pytest.mark.parametrize("text", ["", "0d", "365", "-1d", "1y", "d", "nan d"])
def test_wrong_windows_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a length above 0"):
        seconds_of_window(text)


def test_window_without_times_is_refused() -> None:
    before, rows = dataset_of({("a", "x"): 1}), dataset_of({("b", "x"): 2})
    bare = Pairs.from_keys(before.train.keys(), before.n_users, before.n_items)
    with pytest.raises(DataError, match="--keep-times"):
        update(Dataset("log", before.users, before.items, bare, before.validation, before.test), rows, window=DAY)
