"""Splits: partitions of exact sizes, determined by the seed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset, Vocabulary
from dgcf.data.dataset import SPLITS
from dgcf.data.interactions import Interactions
from dgcf.data.prepare import Preparation, prepare, prepare_rows
from dgcf.data.splits import Method, Split, _cut, assign
from dgcf.errors import ConfigError, DataError
from tests.data.rows import rows_of


def frame_of(n_users: int = 30, n_items: int = 50, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random((n_users, n_items)) < 0.4)
    return pd.DataFrame({"user": user, "item": item, "timestamp": rng.integers(0, 100, len(user))})


def parts(dataset: Dataset) -> list[set[tuple[object, object]]]:
    users, items = list(dataset.users), list(dataset.items)
    return [
        {(users[u], items[i]) for u, i in zip(p.user_idx.tolist(), p.indices.tolist(), strict=True)}
        for p in map(dataset.split, SPLITS)
    ]


@pytest.mark.parametrize("method", ["random", "global", "temporal", "user-temporal", "leave-k-out", "none"])
def test_split_is_a_partition_determined_by_the_seed(method: str) -> None:
    frame = frame_of()
    made = prepare(frame, Preparation(split=Split(method, seed=3)))  # type: ignore[arg-type]
    train, validation, test = parts(made)
    assert train | validation | test == set(zip(frame.user, frame.item, strict=True))
    assert len(train) + len(validation) + len(test) == len(frame)
    shuffled = frame.sample(frac=1.0, random_state=0)
    assert prepare(shuffled, Preparation(split=Split(method, seed=3))).fingerprint == made.fingerprint  # type: ignore[arg-type]
    other = prepare(frame, Preparation(split=Split(method, seed=4))).fingerprint  # type: ignore[arg-type]
    assert (other == made.fingerprint) == (method == "none")


@given(st.integers(1, 300), st.sampled_from([(0.7, 0.1, 0.2), (0.8, 0.1, 0.1), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0)]))
def test_user_sizes_follow_the_ratios_with_a_training_pair(n: int, ratios: tuple[float, float, float]) -> None:
    made = prepare_rows(rows_of([(1, item) for item in range(n)]), Preparation(split=Split(ratios=ratios)))
    sizes = [len(made.split(name)) for name in SPLITS]
    assert sum(sizes) == n
    assert sizes[0] >= 1
    if n >= 10:
        assert all(abs(size - n * ratio) <= 1 for size, ratio in zip(sizes, ratios, strict=True))


def random_rows(sizes: list[int], seed: int) -> Interactions:
    """Return rows of users with ``sizes`` items, in random order, at random times."""
    rng = np.random.default_rng(seed)
    n, items = sum(sizes), max(sizes)
    shuffled = rng.permutation(n)
    return Interactions(
        users=Vocabulary.from_ids("user", range(len(sizes)), "integer"),
        items=Vocabulary.from_ids("item", range(items), "integer"),
        user_idx=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[shuffled],
        item_idx=np.concatenate([rng.permutation(items)[:size] for size in sizes]).astype(np.int32)[shuffled],
        part=np.zeros(n, dtype=np.int8),
        timestamp=rng.integers(0, 5, n).astype(np.float64),
        rows_read=n,
    )


def expected_sizes(size: int, split: Split) -> tuple[int, int, int]:
    """What a group of ``size`` pairs is cut into, in exact numbers; halves are rounded up."""
    if split.method == "leave-k-out":
        return (size - 2 * split.k, split.k, split.k) if size > 2 * split.k else (size, 0, 0)
    train_share, validation_share, test_share = (Fraction(str(ratio)) for ratio in split.ratios)
    train = max(1, floor(size * train_share + Fraction(1, 2)))
    held = size - train
    validation = max(0, floor(size * (train_share + validation_share) + Fraction(1, 2)) - train)
    if validation_share and held > 1:
        validation = max(1, validation)
    validation = min(validation, held) if test_share else held
    return train, validation, held - validation


RATIOS = [(0.7, 0.1, 0.2), (0.5, 0.25, 0.25), (0.8, 0.0, 0.2), (0.5, 0.5, 0.0), (0.9, 0.05, 0.05), (1.0, 0.0, 0.0)]


@pytest.mark.parametrize(
    "split", [*(Split(ratios=ratios) for ratios in RATIOS), *(Split("leave-k-out", k=k) for k in (1, 2, 5))], ids=str
)
def test_cuts_equal_exact_rounding_for_all_sizes(split: Split) -> None:
    for size in range(1, 61):
        part = _cut(np.arange(size), np.full(size, size), split)
        assert tuple(np.bincount(part, minlength=3)) == expected_sizes(size, split)
        assert (np.diff(part) >= 0).all()


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.sampled_from(["random", "global", "temporal", "user-temporal", "leave-k-out"]),
    st.sampled_from(RATIOS),
    st.integers(1, 3),
    st.integers(0, 1000),
)
def test_groups_are_cut_independently_of_row_order(
    sizes: list[int], method: Method, ratios: tuple[float, float, float], k: int, seed: int
) -> None:
    split, rows = Split(method, ratios, k, seed), random_rows(sizes, seed)
    part = assign(rows, split)
    assert part.dtype == assign(rows, Split("none")).dtype == np.int8
    group = np.zeros_like(rows.user_idx) if method in ("global", "temporal") else rows.user_idx
    for index in np.unique(group):
        of_group = part[group == index]
        assert tuple(np.bincount(of_group, minlength=3)) == expected_sizes(len(of_group), split)
    order = np.random.default_rng(seed + 1).permutation(len(rows))
    assert np.array_equal(assign(rows.keep(order), split), part[order])
    if method in ("random", "global"):
        assert np.array_equal(assign(replace(rows, timestamp=None), split), part)


def test_ratio_zero_gives_an_empty_split() -> None:
    """Shares may miss 1 by a millionth, which is a whole pair where there are millions."""
    n = 4_000_000
    split = Split("global", (0.7, 0.2999995, 0.0))
    assert _cut(np.array([0, n - 1]), np.array([n, n]), split).tolist() == [0, 1]


def test_split_record_holds_only_decisive_fields() -> None:
    assert Split("none", k=3, seed=5).to_dict() == {"method": "none"}
    assert Split("leave-k-out", k=3, seed=5).to_dict() == {"method": "leave-k-out", "k": 3, "seed": 5}
    ratios = (0.8, 0.1, 0.1)
    for method in ("random", "global", "temporal", "user-temporal"):
        described = Split(method, ratios, k=3, seed=5).to_dict()  # type: ignore[arg-type]
        assert described == {"method": method, "ratios": [0.8, 0.1, 0.1], "seed": 5}


def test_rounding_keeps_a_validation_pair() -> None:
    rows = [(user, item) for user in range(40) for item in range(8)]
    made = prepare(pd.DataFrame(rows, columns=["user", "item"]))
    assert [len(made.split(name)) for name in SPLITS] == [40 * 6, 40, 40]


def test_temporal_split_trains_on_the_past_only() -> None:
    frame = frame_of()
    time = {(u, i): t for u, i, t in frame.itertuples(index=False)}
    train, validation, test = parts(prepare(frame, Preparation(split=Split("temporal"))))
    assert max(time[p] for p in train) <= min(time[p] for p in validation)
    assert max(time[p] for p in validation) <= min(time[p] for p in test)
    train, validation, test = parts(prepare(frame, Preparation(split=Split("user-temporal"))))
    for user in set(frame.user):
        before = [time[p] for p in train if p[0] == user]
        after = [time[p] for p in validation | test if p[0] == user]
        assert not after or max(before) <= min(after)


def test_leave_k_out_takes_k_pairs_of_large_users() -> None:
    frame = pd.concat([frame_of(), pd.DataFrame({"user": [99] * 4, "item": range(4), "timestamp": range(4)})])
    train, validation, test = parts(prepare(frame, Preparation(split=Split("leave-k-out", k=2))))
    for user in set(frame.user):
        n = (frame.user == user).sum()
        expected = (n, 0, 0) if n < 5 else (n - 4, 2, 2)
        assert tuple(sum(u == user for u, _ in part) for part in (train, validation, test)) == expected


def test_leave_k_out_takes_the_last_pairs_or_notes_missing_times() -> None:
    frame = frame_of()
    frame["timestamp"] = np.random.default_rng(2).permutation(len(frame))
    dataset = prepare(frame, Preparation(split=Split("leave-k-out", k=2)))
    time = {(u, i): t for u, i, t in frame.itertuples(index=False)}
    _, validation, test = parts(dataset)
    for user in set(frame.user):
        ordered = sorted((p for p in time if p[0] == user), key=time.__getitem__)
        assert {p for p in test if p[0] == user} == set(ordered[-2:])
        assert {p for p in validation if p[0] == user} == set(ordered[-4:-2])
    assert dataset.record["notes"] == []
    untimed = prepare(frame[["user", "item"]], Preparation(split=Split("leave-k-out")))
    assert "drawn at random" in untimed.record["notes"][0]


def test_split_column_is_used_unless_a_split_is_given() -> None:
    frame = pd.DataFrame({"user": list("aaab"), "item": [1, 2, 3, 1], "split": ["train", "valid", "test", "Train"]})
    kept = prepare(frame)
    assert parts(kept) == [{("a", 1), ("b", 1)}, {("a", 2)}, {("a", 3)}]
    assert kept.record["split"] == {"method": "given"}
    assert len(prepare(frame, Preparation(split=Split("none"))).train) == 4
    with pytest.raises(DataError, match="row 2 of the DataFrame has a split that is none of"):
        prepare(frame.assign(split=["train", "holdout", "test", "train"]))


def test_mixed_units_and_missing_times_are_refused() -> None:
    frame = pd.DataFrame({"user": [1] * 3, "item": range(3)})
    for times, sentence in (
        ([1.6e9, 1.6e12, 1.6e9], "different units"),
        ([20200102.0, 1.6e9, 1.6e9], "different units"),
        ([1.6e9, float("inf"), 1.6e9], "neither a number nor a date"),
        (["2020-01-01", "soon", "2020-01-02"], "neither a number nor a date"),
    ):
        with pytest.raises(DataError, match=sentence):
            prepare(frame.assign(timestamp=times), Preparation(split=Split("temporal")))


def test_time_zone_offsets_are_applied() -> None:
    times = ["2020-01-01T23:00:00-05:00", "2020-01-02T01:00:00+00:00", "2020-01-02T03:00:00Z"]
    frame = pd.DataFrame({"user": [1] * 3, "item": ["last", "first", "second"], "timestamp": times})
    made = prepare(frame, Preparation(split=Split("user-temporal", (0.34, 0.33, 0.33))))
    assert parts(made) == [{(1, "first")}, {(1, "second")}, {(1, "last")}]


def test_seed_gives_fixed_bits() -> None:
    made = prepare(pd.DataFrame({"user": [1] * 10, "item": range(10)}), Preparation(split=Split(seed=7)))
    assert made.test.indices.tolist() == [2, 9]
    assert made.validation.indices.tolist() == [1]


def test_ready_made_splits_are_kept() -> None:
    train = pd.DataFrame({"user": ["a", "a", "b", "a"], "item": [1, 2, 1, 1]})
    test = pd.DataFrame({"user": ["a", "c"], "item": [1, 3]})
    made = prepare(train, test=test)
    assert parts(made) == [{("a", 1), ("a", 2), ("b", 1)}, set(), {("a", 1), ("c", 3)}]
    assert dict(made.repeats) == {"train": 1, "test": 0}
    with pytest.raises(ConfigError, match="ready-made"):
        prepare(train, Preparation(user_core=2), test=test)


def test_bad_splits_are_refused() -> None:
    for bad, sentence in (
        ({"method": "randm"}, "did you mean 'random'"),
        ({"ratios": (0.7, 0.1, 0.1)}, "sum to 1"),
        ({"ratios": (0.0, 0.5, 0.5)}, "sum to 1"),
        ({"ratios": (1.5, -0.5, 0.0)}, "sum to 1"),
        ({"ratios": (float("nan"), 0.5, 0.5)}, "sum to 1"),
        ({"k": 0}, "1 or more"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Split(**bad)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no timestamp column"):
        prepare(frame_of()[["user", "item"]], Preparation(split=Split("temporal")))
    with pytest.raises(ConfigError, match="negative"):
        prepare(frame_of(), Preparation(split=Split(seed=-1)))
