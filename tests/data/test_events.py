"""Splits of events by time against plain pandas: what lies where, what is dropped, and that every event is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset, load
from dgcf.data.dataset import SPLITS
from dgcf.data.prepare import REPEATS, Preparation, Repeats, prepare, prepare_rows
from dgcf.data.splits import Split, assign
from dgcf.data.statistics import statistics
from dgcf.data.weights import Weighting
from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.evaluator import Evaluator
from tests.data.rows import rows_of

events = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=60)
"""Users, items and times; pairs are often repeated, and times often equal."""
divisions = st.sampled_from(
    [
        *(Split(method, seed=3) for method in ("temporal", "user-temporal", "leave-k-out")),
        Split("temporal", (0.5, 0.25, 0.25)),
        Split("leave-k-out", k=2),
    ]
)
Pair = tuple[int, int]


def made_of(rows: list[tuple[int, int, int]], how: Preparation) -> Dataset:
    return prepare_rows(rows_of([row[:2] for row in rows], [float(time) for *_, time in rows]), how)


def pairs_of(dataset: Dataset, values: str = "") -> list[dict[Pair, float]]:
    """Return the pairs of each split by their ids, with one of their values."""
    users, items = list(dataset.users), list(dataset.items)
    found: list[dict[Pair, float]] = []
    for pairs in map(dataset.split, SPLITS):
        numbers = getattr(pairs, values) if values else np.zeros(len(pairs))
        columns = (pairs.user_idx.tolist(), pairs.indices.tolist(), numbers.tolist())
        found.append({(users[u], items[i]): n for u, i, n in zip(*columns, strict=True)})  # type: ignore[misc]
    return found


def parts_of(rows: list[tuple[int, int, int]], split: Split) -> pd.DataFrame:
    """Return the events with their parts: the split is trusted here, and tested by ``test_splits``."""
    frame = pd.DataFrame(rows, columns=["user", "item", "time"])
    read = rows_of([row[:2] for row in rows], [float(time) for *_, time in rows])
    return frame.assign(part=assign(read, split))


@given(events, divisions, st.sampled_from(sorted(REPEATS)))
def test_events_are_divided_before_repeats_are_dropped(
    rows: list[tuple[int, int, int]], split: Split, repeats: Repeats
) -> None:
    dataset = made_of(rows, Preparation(split=split, repeats=repeats))
    frame = parts_of(rows, split)
    merged = frame.groupby(["part", "user", "item"], as_index=False).time.max()
    seen: set[Pair] = set()
    expected: list[dict[Pair, float]] = []
    counts = {"validation": 0, "test": 0, "test_validation": 0}
    earlier: list[set[Pair]] = []
    for part in range(3):
        rows_of_part = merged[merged.part == part]
        times = {(int(u), int(i)): float(t) for _, u, i, t in rows_of_part.itertuples(index=False)}
        again = {pair for pair in times if pair in seen}
        if part:
            counts[SPLITS[part]] = len(times.keys() & earlier[0])
        if part == 2:
            counts["test_validation"] = len((times.keys() & earlier[1]) - earlier[0])
        earlier.append(set(times))
        seen |= times.keys()
        expected.append({pair: time for pair, time in times.items() if repeats != "drop" or pair not in again})
    assert pairs_of(dataset, "time") == expected
    assert dataset.record["held_out"] == {"repeats": repeats, **counts}


@given(events, divisions)
def test_every_event_is_kept_merged_or_dropped(rows: list[tuple[int, int, int]], split: Split) -> None:
    dataset = (
        made_of(rows, Preparation(split=split, user_core=2))
        if can_core(rows)
        else made_of(rows, Preparation(split=split))
    )
    removed = sum(step["pairs"] for step in dataset.record["filters"])
    assert sum(len(dataset.split(name)) for name in SPLITS) + removed == dataset.record["rows"] == len(rows)
    train, validation, test = pairs_of(dataset)
    assert not train.keys() & validation.keys()
    assert not (train.keys() | validation.keys()) & test.keys()


def can_core(rows: list[tuple[int, int, int]]) -> bool:
    pairs = {row[:2] for row in rows}
    return any(sum(user == other for other, _ in pairs) >= 2 for user, _ in pairs)


@given(events, divisions)
def test_first_purchases_are_where_a_split_of_first_events_has_them(
    rows: list[tuple[int, int, int]], split: Split
) -> None:
    """A held-out pair has no event in an earlier part, and a training pair has an event in train."""
    dataset = made_of(rows, Preparation(split=split))
    first = parts_of(rows, split).groupby(["user", "item"]).part.min().to_dict()
    for part, pairs in enumerate(pairs_of(dataset)):
        assert pairs.keys() == {pair for pair, earliest in first.items() if earliest == part}


@given(events, st.integers(0, 4))
def test_core_counts_distinct_pairs(rows: list[tuple[int, int, int]], least: int) -> None:
    pairs = {row[:2] for row in rows}
    enough = {user for user, _ in pairs if sum(user == other for other, _ in pairs) >= least}
    how = Preparation(split=Split("temporal", (1.0, 0.0, 0.0)), user_core=least)
    if not enough:
        with pytest.raises(DataError, match="is left with at least"):
            made_of(rows, how)
        return
    dataset = made_of(rows, how)
    assert set(pairs_of(dataset)[0]) == {pair for pair in pairs if pair[0] in enough}
    if least > 1:
        (cored,) = (step for step in dataset.record["filters"] if "users with" in step["filter"])
        assert cored["pairs"] == sum(user not in enough for user, *_ in rows)
        assert cored["users"] == len({user for user, _ in pairs} - enough)


@given(events, st.sampled_from(["random", "global", "temporal", "user-temporal", "leave-k-out"]))
def test_data_without_repeats_is_split_as_pairs(rows: list[tuple[int, int, int]], method: Any) -> None:
    """Without repeats, an event is a pair: the parts are those that ``assign`` gives the pairs."""
    once = list({row[:2]: row for row in rows}.values())
    split = Split(method, seed=7)
    dataset = made_of(once, Preparation(split=split))
    frame = parts_of(once, split)
    for part, pairs in enumerate(pairs_of(dataset)):
        chosen = frame[frame.part == part]
        assert pairs.keys() == {(int(u), int(i)) for u, i in zip(chosen.user, chosen.item, strict=True)}


@given(events, st.integers(1, 9))
def test_cut_divides_at_the_time(rows: list[tuple[int, int, int]], cut: int) -> None:
    times = [time for *_, time in rows]
    how = Preparation(split=Split("temporal", cut=cut), carve=0.25)
    if not min(times) < cut <= max(times):
        with pytest.raises(
            DataError, match=r"the cut at \d is outside the data, whose times run from \d to \d; choose"
        ):
            made_of(rows, how)
        return
    if sum(time < cut for time in times) == 1:
        return  # a single event stays in train
    dataset = made_of(rows, Preparation(split=Split("temporal", cut=cut), carve=0.25, repeats="keep"))
    train, validation, test = pairs_of(dataset, "time")
    assert test.keys() == {row[:2] for row in rows if row[2] >= cut}
    assert train.keys() | validation.keys() == {row[:2] for row in rows if row[2] < cut}
    assert max(train.values()) <= min(validation.values(), default=cut)


def test_two_cuts_and_dates_in_any_unit() -> None:
    days = pd.date_range("2011-01-01", periods=10, freq="D")
    frame = pd.DataFrame({"user": [1] * 10, "item": range(10), "timestamp": days.astype("datetime64[ns]")})
    split = Split("temporal", cut="2011-01-08", validation_cut="2011-01-06T00:00")
    expected = [set(range(5)), {5, 6}, {7, 8, 9}]
    seconds = days.astype("int64").to_numpy() // (10**9 if days.unit == "ns" else 10**6)
    for per_second in (None, 1, 1_000, 1_000_000):
        times = frame.timestamp if per_second is None else seconds * per_second
        made = prepare(frame.assign(timestamp=times), Preparation(split=split))
        assert [{item for _, item in pairs} for pairs in pairs_of(made)] == expected
        assert made.record["split"] == {"method": "temporal", "cut": "2011-01-08", "validation_cut": "2011-01-06T00:00"}
    outside = Preparation(split=Split("temporal", cut="2012-01-01"))
    with pytest.raises(DataError, match=r"run from 2011-01-01 to 2011-01-10; choose a time after the first"):
        prepare(frame.assign(timestamp=seconds * 1_000), outside)
    with pytest.raises(DataError, match=r"cut for validation at 2011-01-09 is not between .* 2011-01-01, and the cut"):
        prepare(frame, Preparation(split=Split("temporal", cut="2011-01-08", validation_cut="2011-01-09")))


def test_bad_cuts_are_refused() -> None:
    for given_split, sentence in (
        ({"method": "temporal", "cut": "November"}, "neither a date such as 2011-11-01"),
        ({"method": "temporal", "cut": "nan"}, "not a finite number"),
        ({"method": "user-temporal", "cut": "2011-11-01"}, "with the split user-temporal, expected temporal"),
        ({"method": "temporal", "validation_cut": "2011-11-01"}, "without a cut for test"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Split(**given_split)  # type: ignore[arg-type]


def test_share_is_carved_out_of_a_given_train_part(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    train = pd.DataFrame({"user": np.repeat(np.arange(20), 10), "item": np.tile(np.arange(10), 20)})
    train["timestamp"] = rng.permutation(len(train))
    test = pd.DataFrame({"user": range(20), "item": [10] * 20, "timestamp": 1_000})
    whole = prepare(train, test=test)
    made = prepare(train, Preparation(carve=0.2), test=test)
    assert made.test == whole.test
    assert made.train.union(made.validation) == whole.train
    assert set(made.validation.user_degrees.tolist()) == {2}
    assert made.record["split"] == {"method": "given", "carved": {"share": 0.2, "method": "random", "seed": 0}}
    timed = prepare(train, Preparation(carve=0.2, split=Split("temporal")), test=test)
    assert timed.train.time is not None
    assert timed.validation.time is not None
    assert timed.train.time.max() < timed.validation.time.min()
    assert (len(timed.train), len(timed.validation)) == (160, 40)
    # The same of a folder of files, and of a prepared dataset.
    for name, frame in (("train", train), ("test", test)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    folder = load(tmp_path, Preparation(carve=0.2))
    assert folder.validation == made.validation
    prepared = whole.save(tmp_path / "prepared")
    assert load(prepared, Preparation(carve=0.2)).validation == made.validation
    assert load(prepared, Preparation(carve=0.2)).record["split"] == made.record["split"]
    with pytest.raises(ConfigError, match="has a validation part already"):
        prepare(train, Preparation(carve=0.2), validation=test)
    with pytest.raises(ConfigError, match="has a validation part already"):
        load(made, Preparation(carve=0.2))
    with pytest.raises(ConfigError, match=r"share 1.5 of the training part .* not between 0 and 1"):
        prepare(train, Preparation(carve=1.5), test=test)
    with pytest.raises(ConfigError, match="carved out of a ready-made training part"):
        prepare(train, Preparation(carve=0.1))


def test_masked_repeats_are_no_relevant_items() -> None:
    rows = [(user, item, 10 * item + user) for user in range(6) for item in range(10)]
    rows += [(user, user, 200 + user) for user in range(6)]  # each user buys one item again
    scores = np.random.default_rng(1).random((6, 10))

    class Ranking:
        def scores(self, user_idx: Any) -> Any:
            return scores[np.asarray(user_idx)]

    values = {}
    for repeats in ("drop", "keep", "mask"):
        how = Preparation(split=Split("temporal", cut=85, validation_cut=70), repeats=repeats)  # type: ignore[arg-type]
        dataset = made_of(rows, how)
        evaluator = Evaluator(dataset, split="test", ks=(3,))
        values[repeats] = evaluator.evaluate(Ranking()).value("recall@3").tolist()
        assert evaluator.leaked_pairs == (6 if repeats == "keep" else 0)
        assert (len(dataset.test) == len(made_of(rows, Preparation(split=how.split)).test)) == (repeats == "drop")
        noted = [text for text in statistics(dataset).warnings if "also in train" in text]
        assert len(noted) == (repeats != "drop")
    assert values["drop"] == values["mask"]
    assert values["drop"] != values["keep"]


def test_repeats_belong_to_splits_that_have_them() -> None:
    with pytest.raises(ConfigError, match=r"repeats is 'dorp', .*did you mean 'drop'"):
        Preparation(repeats="dorp")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="which the split random never has"):
        made_of([(1, 1, 1), (1, 2, 2)], Preparation(repeats="keep"))
    train, test = (pd.DataFrame({"user": [1, 1], "item": items}) for items in ([1, 2], [2, 3]))
    kept, dropped = (prepare(train, Preparation(repeats=rule), test=test) for rule in (None, "drop"))  # type: ignore[arg-type]
    assert (len(kept.test), len(dropped.test)) == (2, 1)
    assert "held_out" not in kept.record


@given(events, st.sampled_from(["none", "log1p", "cap:2"]), st.sampled_from(["random", "temporal", "none"]))
def test_weights_are_sums_over_the_events_of_a_part(
    rows: list[tuple[int, int, int]], transform: str, method: Any
) -> None:
    split = Split(method, seed=2)
    frame = parts_of(rows, split).assign(quantity=[(item + time) / 4 for _, item, time in rows])
    if method == "random":
        frame = frame.assign(part=0)  # compared over all parts: pairs are divided, not events
    sums = frame.groupby(["part", "user", "item"]).quantity.sum()
    made = prepare_rows(
        rows_of([row[:2] for row in rows], [float(time) for *_, time in rows], weights=frame.quantity.tolist()),
        Preparation(
            split=split,
            repeats=None if method != "temporal" else "keep",
            weighting=Weighting.parse(transform, count=False),
        ),
    )
    change = {"none": lambda w: w, "log1p": np.log1p, "cap:2": lambda w: min(w, 2.0)}[transform]
    for part, pairs in enumerate(pairs_of(made, "weight")):
        for pair, weight in pairs.items():
            assert weight == pytest.approx(change(sums[0 if method == "random" else part, *pair]), rel=1e-6)


def test_number_of_events_is_a_weight(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": ["a", "a", "a", "b"], "item": ["x", "x", "y", "x"]})
    made = prepare(frame, Preparation(split=Split("none"), weighting=Weighting.parse("none", count=True)))
    assert pairs_of(made, "weight")[0] == {("a", "x"): 2.0, ("a", "y"): 1.0, ("b", "x"): 1.0}
    assert made.record["weights"] == {"from": "number of events", "transform": "none"}
    again = load(made.save(tmp_path / "set"))
    assert again.values == ("weight",)
    assert again.weighting == made.weighting != prepare(frame, Preparation(split=Split("none"))).weighting
    assert again.fingerprint == prepare(frame, Preparation(split=Split("none"))).fingerprint
    assert statistics(again).weights == {**made.record["weights"], "min": 1.0, "mean": pytest.approx(4 / 3), "max": 2.0}


def test_bad_transforms_are_refused() -> None:
    for text in ("log", "cap", "cap:", "cap:x", "cap:-1", "cap:inf", "none:3", ""):
        with pytest.raises(ConfigError, match=r"expected log1p, none, or cap:N"):
            Weighting.parse(text, count=True)
    with pytest.raises(DataError, match="too large"):
        Weighting.parse("none", count=False).apply(np.array([1e300]))
