"""The order of each user's pairs: by time, or by position in a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset, load
from dgcf.data.convert import convert
from dgcf.data.dataset import SPLITS
from dgcf.data.interactions import APART, Interactions, RatingFilter
from dgcf.data.prepare import Preparation, prepare, prepare_rows
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Method, Split
from dgcf.data.statistics import statistics
from dgcf.errors import ConfigError, DataError
from tests.conftest import data_home
from tests.data.rows import LISTED, rows_of

KEPT = Preparation(keep_order=True)
LISTS = ReadOptions(format="adjacency")
METHODS: tuple[Method, ...] = get_args(Method)
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
    """Places of all splits, which must have no pair in common."""
    parts = [places(dataset, split) for split in SPLITS]
    joined = {pair: place for part in parts for pair, place in part.items()}
    assert len(joined) == sum(map(len, parts))
    return joined


def by_time(rows: list[tuple[Any, Any, int]]) -> Places:
    """Number of pairs of the same user with an earlier time, by plain loops; a repeated pair has its latest time."""
    last = {(user, item): max(t for u, i, t in rows if (u, i) == (user, item)) for user, item, _ in rows}
    return {pair: sum(u == pair[0] and t < time for (u, _), t in last.items()) for pair, time in last.items()}


def timed_pairs(dataset: Dataset) -> list[tuple[Any, Any, int]]:
    """Return the pairs of all splits with the times that the dataset holds."""
    users, items = list(dataset.users), list(dataset.items)
    rows: list[tuple[Any, Any, int]] = []
    for pairs in map(dataset.split, SPLITS):
        assert pairs.time is not None
        columns = (pairs.user_idx.tolist(), pairs.indices.tolist(), pairs.time.tolist())
        rows += [(users[user], items[item], int(time)) for user, item, time in zip(*columns, strict=True)]
    return rows


def frame_of(rows: list[tuple[int, int, int]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user", "item", "timestamp"])


def check_places(make: Callable[[Preparation], Dataset], rows: list[tuple[int, int, int]], method: Method) -> None:
    """Places are ranks of times, and recording them does not change the split."""
    split = Split(method, seed=5)
    kept, plain = make(Preparation(split=split, keep_order=True)), make(Preparation(split=split))
    divided = method in ("temporal", "user-temporal", "leave-k-out")
    # A split by time keeps a pair's latest event of the first part that has the pair.
    assert {row[:2] for row in timed_pairs(kept)} == {row[:2] for row in rows}
    assert set(timed_pairs(kept)) <= set(rows)
    assert all_places(kept) == by_time(timed_pairs(kept) if divided else rows)
    assert kept.fingerprint == plain.fingerprint
    assert kept.record["split"] == plain.record["split"]
    assert kept.record["filters"] == plain.record["filters"]
    if method in ("random", "global", "none"):
        assert plain.order is None
        assert all(plain.split(part).place is None for part in SPLITS)
    else:
        assert plain.order == kept.order, "a split by time always records the order"


@given(rows_with_times, st.sampled_from(METHODS))
def test_places_are_ranks_of_times_and_do_not_change_the_split(
    rows: list[tuple[int, int, int]], method: Method
) -> None:
    def make(how: Preparation) -> Dataset:
        timed = how.keep_order or Split(method).time != "ignored"
        times = [float(time) for _, _, time in rows] if timed else None
        return prepare_rows(rows_of([(user, item) for user, item, _ in rows], times), how)

    check_places(make, rows, method)


@pytest.mark.parametrize("method", METHODS)
def test_times_of_a_table_give_places(method: Method) -> None:
    rng = np.random.default_rng(3)
    columns = [rng.integers(0, most, 200).tolist() for most in (12, 25, 7)]
    rows: list[tuple[int, int, int]] = list(zip(*columns, strict=True))
    assert len({row[:2] for row in rows}) < len(rows), "some pairs repeat"
    check_places(lambda how: prepare(frame_of(rows), how), rows, method)


def test_order_of_lines_does_not_matter(tmp_path: Path) -> None:
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


def test_dates_give_places(tmp_path: Path) -> None:
    times = ["2020-01-01T23:00:00-05:00", "2020-01-02T01:00:00+00:00", "2020-01-02T04:00:00Z", "2019-12-31"]
    lines = [f"1,{item},{time}" for item, time in zip("abcd", times, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,timestamp", *lines, ""]))
    assert all_places(load(tmp_path / "a.csv", KEPT)) == {("1", "d"): 0, ("1", "b"): 1, ("1", "a"): 2, ("1", "c"): 2}


def test_filtered_pairs_have_no_place() -> None:
    rng = np.random.default_rng(1)
    rows = [(user, item, int(rng.integers(9))) for user in range(12) for item in range(user % 9 + 1)]
    frame = frame_of(rows).assign(rating=rng.integers(1, 6, len(rows)))
    made = prepare(frame, Preparation(ratings=RatingFilter(minimum=3), user_core=2, item_core=2, keep_order=True))
    left = set(all_places(made))
    assert 10 < len(left) < len(rows)
    assert all_places(made) == by_time([row for row in rows if row[:2] in left])


def test_places_of_a_split_column_and_ready_made_tables_are_by_time() -> None:
    rows = [("a", 1, 30), ("a", 2, 10), ("a", 3, 20), ("b", 1, 5), ("b", 2, 5), ("b", 3, 9)]
    names = ["train", "train", "valid", "train", "test", "test"]
    frame = pd.DataFrame(rows, columns=["user", "item", "timestamp"])
    column = prepare(frame.assign(split=names), KEPT)
    part = {name: frame[[word == name for word in names]] for name in set(names)}
    files = prepare(part["train"], KEPT, validation=part["valid"], test=part["test"])
    for made in (column, files):
        assert all_places(made) == by_time(rows)
        assert set(places(made, "validation")) == {("a", 3)}
        assert made.train.count_later().tolist() == [0, 1, 0], "places count over all splits"
    assert prepare(frame.assign(split=names)).order is None


def write_lists(path: Path, lists: dict[int, list[int]]) -> Path:
    path.write_text("".join(f"{user} {' '.join(map(str, items))}\n" for user, items in lists.items() if items))
    return path


item_lists = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=8), min_size=3, max_size=3)


def expected_places(lists_by_user: dict[int, list[list[int]]], number: int) -> Places:
    """Positions in the lists of one split, after those of the splits before."""
    return {
        (str(user), str(item)): sum(map(len, lists[:number])) + at
        for user, lists in lists_by_user.items()
        for at, item in enumerate(lists[number])
    }


@given(st.dictionaries(st.integers(1, 30), item_lists, min_size=1, max_size=8))
def test_places_in_lists_of_ready_made_splits_count_on(lists_by_user: dict[int, list[list[int]]]) -> None:
    lists_by_user[0] = [[5, 3, 4], [1, 0], [2, 9]]  # no split is empty
    rows = [
        ((str(user), str(item)), at + number * APART, number)
        for user, lists in lists_by_user.items()
        for number in range(3)
        for at, item in enumerate(lists[number])
    ]
    pairs, times, part = zip(*rows, strict=True)
    dataset = prepare_rows(rows_of(pairs, times, part, sources=(LISTED,) * 3), KEPT, SPLITS)
    for number, split in enumerate(SPLITS):
        assert places(dataset, split) == expected_places(lists_by_user, number)


@pytest.mark.parametrize("seed", range(3))
def test_files_of_lists_give_places(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists_by_user = {user: [rng.permutation(13)[: rng.integers(0, 9)].tolist() for _ in SPLITS] for user in range(20)}
    for number, split in enumerate(SPLITS):
        write_lists(tmp_path / f"{split}.txt", {user: lists[number] for user, lists in lists_by_user.items()})
    dataset = load(tmp_path, KEPT, LISTS)
    for number, split in enumerate(SPLITS):
        assert places(dataset, split) == expected_places(lists_by_user, number)
    plain = load(tmp_path, read=LISTS)
    assert plain.fingerprint == dataset.fingerprint
    assert plain.order is None


def check_split_of_lists(make: Callable[[Preparation], Dataset], lists: dict[int, list[int]]) -> None:
    """Lists of nine items: split at random as without an order, or at the end of each list."""
    expected = {(str(user), str(item)): at for user, items in lists.items() for at, item in enumerate(items)}
    dataset = make(KEPT)
    assert all_places(dataset) == expected
    assert dataset.fingerprint == make(Preparation()).fingerprint
    by_position = make(Preparation(split=Split("user-temporal", (0.5, 0.2, 0.3)), keep_order=True))
    assert all_places(by_position) == expected
    for split, positions in {"train": range(5), "validation": range(5, 6), "test": range(6, 9)}.items():
        assert set(places(by_position, split)) == {pair for pair, place in expected.items() if place in positions}
    left_out = make(Preparation(split=Split("leave-k-out", k=2), keep_order=True))
    assert set(places(left_out, "test")) == {pair for pair, place in expected.items() if place >= 7}
    assert left_out.record["notes"] == []


nine_items = st.dictionaries(st.integers(0, 30), st.permutations(range(9)), min_size=1, max_size=6)


def listed_rows(lists: dict[int, list[int]], *, timed: bool = True) -> Interactions:
    rows = [((str(user), str(item)), float(at)) for user, items in lists.items() for at, item in enumerate(items)]
    return rows_of([pair for pair, _ in rows], [time for _, time in rows] if timed else None, sources=(LISTED,))


@given(nine_items)
def test_lists_are_split_at_random_or_by_position(lists: dict[int, list[int]]) -> None:
    check_split_of_lists(lambda how: prepare_rows(listed_rows(lists, timed=how.keep_order), how), lists)


def test_file_of_lists_is_split_at_random_or_by_position(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lists = {user: rng.permutation(9).tolist() for user in range(25)}
    path = write_lists(tmp_path / "a.txt", lists)
    check_split_of_lists(lambda how: load(path, how, LISTS), lists)


def test_item_repeated_in_a_list_has_its_last_position(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 5 6 5 7\n2\n3  8\t5 \n")
    made = load(tmp_path / "a.txt", Preparation(split=Split("none"), keep_order=True), LISTS)
    assert places(made, "train") == {("1", "6"): 0, ("1", "5"): 1, ("1", "7"): 2, ("3", "8"): 0, ("3", "5"): 1}


def test_leave_k_out_without_times_has_no_order() -> None:
    frame = frame_of([(user, item, 0) for user in range(5) for item in range(6)])[["user", "item"]]
    assert prepare(frame, Preparation(split=Split("leave-k-out"))).order is None


def test_keep_order_without_an_order_is_refused(tmp_path: Path) -> None:
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
        (lists, Preparation(split=Split("user-temporal")), "to use the order of its lists, add --keep-order"),
    ):
        with pytest.raises(DataError) as caught:
            prepare(source, how, LISTS if source is lists else None)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"plain\.csv has no timestamp column, so that there is no order to keep"):
        prepare(lists, KEPT, test=tmp_path / "plain.csv")
    with pytest.raises(ConfigError, match="ready-made"):
        prepare(lists, Preparation(split=Split("user-temporal"), keep_order=True), test=lists)


def test_statistics_tell_whether_the_order_is_known() -> None:
    frame = frame_of([(user, item, item) for user in range(5) for item in range(6)])
    assert statistics(prepare(frame, KEPT)).ordered
    assert not statistics(prepare(frame)).ordered


@pytest.mark.data("movielens/ml-100k")
@pytest.mark.parametrize("name", ["ml-100k", "paper/ml-100k"])
def test_movielens_places_are_by_time(name: str) -> None:
    made = load(name)
    path = data_home() / "movielens" / "ml-100k" / "ml-100k.inter"
    time = pd.read_csv(path, sep="\t", header=0, names=["user", "item", "rating", "timestamp"])
    stamps = {(str(u), str(i)): t for u, i, _, t in time.itertuples(index=False)}
    known = [(user, item, stamps[user, item]) for user, item in all_places(made) if int(user) < 40]
    assert len(known) > 300
    assert {pair: place for pair, place in all_places(made).items() if int(pair[0]) < 40} == by_time(known)


@pytest.mark.data("deoscirec/gowalla")
def test_gowalla_places_are_positions_in_lists() -> None:
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
            ordered = texts[pairs.indices[mine]][np.argsort(pairs.place[mine], kind="stable")].tolist()
            lists[split].append(ordered)
            assert ordered == listed.get(user, [])
    ends = [np.maximum.reduceat(p.place, p.indptr[:-1]) for p in (made.train, made.validation) if p.place is not None]
    assert all((p.user_degrees > 0).all() for p in map(made.split, SPLITS))
    assert (ends[0] < np.minimum.reduceat(made.validation.place, made.validation.indptr[:-1])).all()
    assert (ends[1] < np.minimum.reduceat(made.test.place, made.test.indptr[:-1])).all()


def test_sorted_lists_are_noted(tmp_path: Path) -> None:
    by_id = {user: sorted((7 * user + 3 * at) % 40 for at in range(6)) for user in range(9)}
    chosen = {user: items[::-1] if user == 4 else items for user, items in by_id.items()}
    for lists, doubted in ((by_id, True), (chosen, False)):
        notes = load(write_lists(tmp_path / "lists.txt", lists), KEPT, LISTS).record["notes"]
        assert [note for note in notes if "by ascending id" in note] == notes
        assert len(notes) == doubted
    assert load(write_lists(tmp_path / "few.txt", {0: [1, 2, 3]}), KEPT, LISTS).record["notes"] == []


BY_POSITION = Preparation(split=Split("user-temporal", (0.5, 0.2, 0.3)), keep_order=True)


@given(nine_items)
def test_adjacency_lines_are_written_in_order(
    tmp_path_factory: pytest.TempPathFactory, lists: dict[int, list[int]]
) -> None:
    dataset = prepare_rows(listed_rows(lists), BY_POSITION)
    folder = tmp_path_factory.mktemp("lists") / "written"
    convert(dataset, folder, "adjacency")
    for split, positions in {"train": slice(5), "validation": slice(5, 6), "test": slice(6, 9)}.items():
        lines = [[int(word) for word in line.split()] for line in (folder / f"{split}.txt").read_text().splitlines()]
        assert {user: items for user, *items in lines} == {user: items[positions] for user, items in lists.items()}
        assert len(lines) == len(lists)


def test_adjacency_round_trip_keeps_the_order_of_each_split(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lists = {user: rng.permutation(9).tolist() for user in range(25)}
    dataset = load(write_lists(tmp_path / "a.txt", lists), BY_POSITION, LISTS)
    convert(dataset, tmp_path / "again", "adjacency")
    again = load(tmp_path / "again", KEPT, LISTS)
    assert all_places(again) == all_places(dataset)
    assert (again.fingerprint, again.order) == (dataset.fingerprint, dataset.order)


def test_prepared_dataset_is_not_prepared_again(tmp_path: Path) -> None:
    frame = frame_of([(user, item, item) for user in range(5) for item in range(6)])
    prepare(frame, KEPT).save(tmp_path / "kept")
    prepare(frame).save(tmp_path / "plain")
    assert load(tmp_path / "kept", KEPT).order == prepare(frame, KEPT).order
    assert load(tmp_path / "plain", Preparation()).order is None
    with pytest.raises(DataError, match="has no order of pairs to keep"):
        load(tmp_path / "plain", KEPT)
    for how in (Preparation(user_core=2), Preparation(split=Split("none")), Preparation(ratings=RatingFilter(4))):
        for source in (tmp_path / "kept", prepare(frame), "planted"):
            with pytest.raises(ConfigError, match="is filtered and split already, and is not done so again"):
                load(source, how)
