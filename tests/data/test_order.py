"""The order of each user's pairs, from what users have: by time, or by place in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset, load
from dgcf.data.convert import convert
from dgcf.data.dataset import SPLITS
from dgcf.data.interactions import RatingFilter
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Method, Split
from dgcf.data.statistics import statistics
from dgcf.errors import ConfigError, DataError
from tests.conftest import data_home

KEPT = Preparation(keep_order=True)
LISTS = ReadOptions(format="adjacency")
Places = dict[tuple[Any, Any], int]
rows_with_times = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=60
)  # times are often equal, and pairs often repeated


def places(dataset: Dataset, split: str) -> Places:
    pairs, users, items = dataset.split(split), list(dataset.users), list(dataset.items)
    assert pairs.place is not None
    columns = (pairs.user_idx.tolist(), pairs.indices.tolist(), pairs.place.tolist())
    return {(users[user], items[item]): place for user, item, place in zip(*columns, strict=True)}


def all_places(dataset: Dataset) -> Places:
    """Of all parts, which must have no pair in common."""
    parts = [places(dataset, split) for split in SPLITS]
    joined = {pair: place for part in parts for pair, place in part.items()}
    assert len(joined) == sum(map(len, parts))
    return joined


def by_time(rows: list[tuple[Any, Any, int]]) -> Places:
    """How many pairs of the same user have an earlier time, by plain loops; of a repeated one, the last time counts."""
    last = {(user, item): max(t for u, i, t in rows if (u, i) == (user, item)) for user, item, _ in rows}
    return {pair: sum(u == pair[0] and t < time for (u, _), t in last.items()) for pair, time in last.items()}


def frame_of(rows: list[tuple[int, int, int]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user", "item", "timestamp"])


@given(rows_with_times, st.sampled_from(["random", "global", "none", "leave-k-out", "user-temporal", "temporal"]))
def test_places_are_by_time_and_the_split_is_the_same_as_without_them(
    rows: list[tuple[int, int, int]], method: Method
) -> None:
    split = Split(method, seed=5)
    kept = prepare(frame_of(rows), Preparation(split=split, keep_order=True))
    assert all_places(kept) == by_time(rows)
    plain = prepare(frame_of(rows), Preparation(split=split))
    assert kept.fingerprint == plain.fingerprint
    assert kept.record["split"] == plain.record["split"]
    assert kept.record["filters"] == plain.record["filters"]
    if method in ("random", "global", "none"):
        assert plain.order is None
        assert all(plain.split(part).place is None for part in SPLITS)
    else:
        assert plain.order == kept.order, "a split by time keeps the order without being asked"


def test_lines_of_a_table_may_be_in_any_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(user, item, int(rng.integers(8))) for user in range(20) for item in range(user % 7 + 3)]
    orders = set()
    for seed in range(3):
        frame = frame_of(rows).sample(frac=1.0, random_state=seed)
        frame.to_csv(tmp_path / f"{seed}.csv", index=False)
        made = load(tmp_path / f"{seed}.csv", KEPT)
        assert all_places(made) == by_time([(str(user), str(item), time) for user, item, time in rows])
        orders.add(made.order)
    assert len(orders) == 1


def test_written_times_are_an_order_too(tmp_path: Path) -> None:
    times = ["2020-01-01T23:00:00-05:00", "2020-01-02T01:00:00+00:00", "2020-01-02T04:00:00Z", "2019-12-31"]
    lines = [f"1,{item},{time}" for item, time in zip("abcd", times, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,timestamp", *lines, ""]))
    assert all_places(load(tmp_path / "a.csv", KEPT)) == {("1", "d"): 0, ("1", "b"): 1, ("1", "a"): 2, ("1", "c"): 2}


def test_what_filters_remove_has_no_place() -> None:
    rng = np.random.default_rng(1)
    rows = [(user, item, int(rng.integers(9))) for user in range(12) for item in range(user % 9 + 1)]
    frame = frame_of(rows).assign(rating=rng.integers(1, 6, len(rows)))
    made = prepare(frame, Preparation(ratings=RatingFilter(minimum=3), user_core=2, item_core=2, keep_order=True))
    left = set(all_places(made))
    assert 10 < len(left) < len(rows)
    assert all_places(made) == by_time([row for row in rows if row[:2] in left])


def test_a_split_column_and_ready_made_tables_are_in_one_order_by_time() -> None:
    rows = [("a", 1, 30), ("a", 2, 10), ("a", 3, 20), ("b", 1, 5), ("b", 2, 5), ("b", 3, 9)]
    names = ["train", "train", "valid", "train", "test", "test"]
    frame = pd.DataFrame(rows, columns=["user", "item", "timestamp"])
    column = prepare(frame.assign(split=names), KEPT)
    part = {name: frame[[word == name for word in names]] for name in set(names)}
    files = prepare(part["train"], KEPT, validation=part["valid"], test=part["test"])
    for made in (column, files):
        assert all_places(made) == by_time(rows)
        assert set(places(made, "validation")) == {("a", 3)}
        assert made.train.count_later().tolist() == [0, 1, 0], "of the parts, each is in the order of all"
    assert prepare(frame.assign(split=names)).order is None


def write_lists(path: Path, lists: dict[int, list[int]]) -> Path:
    path.write_text("".join(f"{user} {' '.join(map(str, items))}\n" for user, items in lists.items() if items))
    return path


item_lists = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=8), min_size=3, max_size=3)


@given(st.dictionaries(st.integers(1, 30), item_lists, min_size=1, max_size=8))
def test_lists_give_their_places_and_validation_comes_after_train(
    tmp_path_factory: pytest.TempPathFactory, given_lists: dict[int, list[list[int]]]
) -> None:
    given_lists[0] = [[5, 3, 4], [1, 0], [2, 9]]  # no part is empty
    folder = tmp_path_factory.mktemp("lists")
    for number, split in enumerate(SPLITS):
        write_lists(folder / f"{split}.txt", {user: lists[number] for user, lists in given_lists.items()})
    made = load(folder, KEPT, LISTS)
    for number, split in enumerate(SPLITS):
        before = {user: sum(map(len, lists[:number])) for user, lists in given_lists.items()}
        expected = {
            (str(user), str(item)): before[user] + at
            for user, lists in given_lists.items()
            for at, item in enumerate(lists[number])
        }
        assert places(made, split) == expected
    plain = load(folder, read=LISTS)
    assert plain.fingerprint == made.fingerprint
    assert plain.order is None


@given(st.dictionaries(st.integers(0, 30), st.permutations(range(9)), min_size=1, max_size=6))
def test_one_file_of_lists_is_split_at_random_as_ever_or_at_the_end_of_each_list(
    tmp_path_factory: pytest.TempPathFactory, lists: dict[int, list[int]]
) -> None:
    path = write_lists(tmp_path_factory.mktemp("lists") / "a.txt", lists)
    expected = {(str(user), str(item)): at for user, items in lists.items() for at, item in enumerate(items)}
    made = load(path, KEPT, LISTS)
    assert all_places(made) == expected
    assert made.fingerprint == load(path, read=LISTS).fingerprint
    cut = load(path, Preparation(split=Split("user-temporal", (0.5, 0.2, 0.3)), keep_order=True), LISTS)
    assert all_places(cut) == expected
    ends = {"train": range(5), "validation": range(5, 6), "test": range(6, 9)}
    for split, end in ends.items():
        assert set(places(cut, split)) == {pair for pair, place in expected.items() if place in end}
    left = load(path, Preparation(split=Split("leave-k-out", k=2), keep_order=True), LISTS)
    assert set(places(left, "test")) == {pair for pair, place in expected.items() if place >= 7}
    assert left.record["notes"] == []


def test_an_item_that_a_list_repeats_stands_where_it_is_last(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 5 6 5 7\n2\n3  8\t5 \n")
    made = load(tmp_path / "a.txt", Preparation(split=Split("none"), keep_order=True), LISTS)
    assert places(made, "train") == {("1", "6"): 0, ("1", "5"): 1, ("1", "7"): 2, ("3", "8"): 0, ("3", "5"): 1}


def test_leave_k_out_without_times_has_no_order() -> None:
    frame = frame_of([(user, item, 0) for user in range(5) for item in range(6)])[["user", "item"]]
    assert prepare(frame, Preparation(split=Split("leave-k-out"))).order is None


def test_where_there_is_no_order_to_keep_that_is_said(tmp_path: Path) -> None:
    lists = write_lists(tmp_path / "lists.txt", {1: [2, 3], 2: [5, 3, 1]})
    (tmp_path / "plain.csv").write_text("user,item\na,1\nb,2\n")
    (tmp_path / "odd.csv").write_text("user,item,timestamp\na,1,5\nb,2,soon\n")
    (tmp_path / "units.csv").write_text("user,item,timestamp\na,1,1600000000\nb,2,1600000000000\n")
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    for source, how, sentence in (
        (tmp_path / "plain.csv", KEPT, "plain.csv has no timestamp column, so that there is no order to keep"),
        (matrix, KEPT, "the matrix has no timestamp column, so that there is no order to keep"),
        (frame_of([(1, 2, 3)])[["user", "item"]], KEPT, "the DataFrame has no timestamp column"),
        (tmp_path / "odd.csv", KEPT, "line 3 of odd.csv has a timestamp that is neither a number nor a date"),
        (tmp_path / "units.csv", KEPT, "which look like different units"),
        (lists, Preparation(split=Split("temporal"), keep_order=True), "use --split user-temporal"),
        (lists, Preparation(split=Split("user-temporal")), "to take the order of its lists for one, add --keep-order"),
    ):
        with pytest.raises(DataError) as caught:
            prepare(source, how, LISTS if source is lists else None)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"plain\.csv has no timestamp column, so that there is no order to keep"):
        prepare(lists, KEPT, test=tmp_path / "plain.csv")
    with pytest.raises(ConfigError, match="ready-made"):
        prepare(lists, Preparation(split=Split("user-temporal"), keep_order=True), test=lists)


def test_statistics_say_whether_the_order_is_known() -> None:
    frame = frame_of([(user, item, item) for user in range(5) for item in range(6)])
    assert statistics(prepare(frame, KEPT)).ordered
    assert not statistics(prepare(frame)).ordered


@pytest.mark.data("movielens/ml-100k")
@pytest.mark.parametrize("name", ["ml-100k", "paper/ml-100k"])
def test_movielens_is_in_the_order_of_its_times(name: str) -> None:
    made = load(name)
    path = data_home() / "movielens" / "ml-100k" / "ml-100k.inter"
    time = pd.read_csv(path, sep="\t", header=0, names=["user", "item", "rating", "timestamp"])
    stamps = {(str(u), str(i)): t for u, i, _, t in time.itertuples(index=False)}
    known = [(user, item, stamps[user, item]) for user, item in all_places(made) if int(user) < 40]
    assert len(known) > 300
    assert {pair: place for pair, place in all_places(made).items() if int(pair[0]) < 40} == by_time(known)


@pytest.mark.data("deoscirec/gowalla")
def test_the_authors_gowalla_is_in_the_order_of_its_lists() -> None:
    made = load("deoscirec/gowalla")
    assert statistics(made).ordered
    texts = np.array(made.items.texts)
    lists = {split: [] for split in SPLITS}  # type: dict[str, list[list[str]]]
    for split in SPLITS:
        lines = (data_home() / "deoscirec" / "gowalla" / f"{split}.txt").read_text().splitlines()
        listed = {user: items for user, *items in map(str.split, lines)}
        pairs = made.split(split)
        assert pairs.place is not None
        for number, user in enumerate(made.users.texts):
            mine = slice(pairs.indptr[number], pairs.indptr[number + 1])
            found = texts[pairs.indices[mine]][np.argsort(pairs.place[mine], kind="stable")].tolist()
            lists[split].append(found)
            assert found == listed.get(user, [])
    ends = [np.maximum.reduceat(p.place, p.indptr[:-1]) for p in (made.train, made.validation) if p.place is not None]
    assert all((p.user_degrees > 0).all() for p in map(made.split, SPLITS))
    assert (ends[0] < np.minimum.reduceat(made.validation.place, made.validation.indptr[:-1])).all()
    assert (ends[1] < np.minimum.reduceat(made.test.place, made.test.indptr[:-1])).all()


def test_sorted_lists_are_doubted(tmp_path: Path) -> None:
    by_id = {user: sorted((7 * user + 3 * at) % 40 for at in range(6)) for user in range(9)}
    chosen = {user: items[::-1] if user == 4 else items for user, items in by_id.items()}
    for lists, doubted in ((by_id, True), (chosen, False)):
        notes = load(write_lists(tmp_path / "lists.txt", lists), KEPT, LISTS).record["notes"]
        assert [note for note in notes if "by ascending id" in note] == notes
        assert len(notes) == doubted
    assert load(write_lists(tmp_path / "few.txt", {0: [1, 2, 3]}), KEPT, LISTS).record["notes"] == []


@given(st.dictionaries(st.integers(0, 30), st.permutations(range(9)), min_size=1, max_size=6))
def test_adjacency_lines_keep_the_order_of_each_part(
    tmp_path_factory: pytest.TempPathFactory, lists: dict[int, list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    how = Preparation(split=Split("user-temporal", (0.5, 0.2, 0.3)), keep_order=True)
    made = load(write_lists(folder / "a.txt", lists), how, LISTS)
    convert(made, folder / "again", "adjacency")
    again = load(folder / "again", KEPT, LISTS)
    assert all_places(again) == all_places(made)
    assert (again.fingerprint, again.order) == (made.fingerprint, made.order)


def test_what_is_ready_is_not_filtered_split_or_ordered_again(tmp_path: Path) -> None:
    frame = frame_of([(user, item, item) for user in range(5) for item in range(6)])
    prepare(frame, KEPT).save(tmp_path / "kept")
    prepare(frame).save(tmp_path / "plain")
    assert load(tmp_path / "kept", KEPT).order == prepare(frame, KEPT).order
    assert load(tmp_path / "plain", Preparation()).order is None
    with pytest.raises(DataError, match="does not know the order of its pairs, so that there is none to keep"):
        load(tmp_path / "plain", KEPT)
    for how in (Preparation(user_core=2), Preparation(split=Split("none")), Preparation(ratings=RatingFilter(4))):
        for source in (tmp_path / "kept", prepare(frame), "planted"):
            with pytest.raises(ConfigError, match="is filtered and split already, and is not done so again"):
                load(source, how)
