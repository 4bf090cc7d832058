"""Times and weights of pairs: stored, read back, refused if damaged, and never lost by set operations."""

from __future__ import annotations

import io
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.everything import everything
from dgcf.data.pairs import Pairs
from dgcf.data.prepare import Preparation, prepare_rows
from dgcf.data.splits import Split
from dgcf.data.weights import Weighting
from dgcf.errors import DataError
from tests.data.rows import rows_of
from tests.resealing import reseal_dataset

events = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(-5, 2**40), st.sampled_from([0.0, 0.5, 3.0, 1e9])),
    min_size=2,
    max_size=40,
)
"""Users, items, times and weights."""


def made_of(rows: list[tuple[int, int, int, float]]) -> Dataset:
    times, weights = [float(row[2]) for row in rows], [row[3] for row in rows]
    how = Preparation(split=Split("temporal"), repeats="keep", weighting=Weighting(transform="none"))
    return prepare_rows(rows_of([row[:2] for row in rows], times, weights=weights), how, name="events")


@pytest.fixture
def dataset() -> Dataset:
    return made_of([(user, item, 100 * item + user, (user + item) / 4) for user in range(5) for item in range(7)])


@settings(max_examples=10, deadline=None)
@given(events)
def test_values_of_a_dataset_are_read_back(rows: list[tuple[int, int, int, float]]) -> None:
    dataset = made_of(rows)
    assert dataset.values == ("place", "time", "weight")
    with tempfile.TemporaryDirectory() as folder:
        again = Dataset.load(dataset.save(Path(folder) / "set"))
    for split in SPLITS:
        for name, values in dataset.split(split).values.items():
            found = again.split(split).values[name]
            assert found.dtype == values.dtype
            assert np.array_equal(found, values), (split, name)
    assert (again.fingerprint, again.order, again.weighting) == (dataset.fingerprint, dataset.order, dataset.weighting)
    assert again.record == dataset.record


def test_values_do_not_change_the_fingerprint_but_have_checksums(dataset: Dataset, tmp_path: Path) -> None:
    train = dataset.train
    assert train.weight is not None
    other = replace(dataset, train=replace(train, weight=train.weight + 1, time=None))
    assert other.fingerprint == dataset.fingerprint
    assert other.weighting != dataset.weighting
    dataset.save(tmp_path / "set")
    path = tmp_path / "set" / "train_weight.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"damaged dataset .*train_weight.npy"):
        Dataset.load(tmp_path / "set")


def test_overwriting_removes_the_files_of_values(dataset: Dataset, tmp_path: Path) -> None:
    dataset.save(tmp_path / "set")
    plain = replace(dataset, **{name: Pairs(*parts_of(dataset.split(name))) for name in SPLITS})
    plain.save(tmp_path / "set", overwrite=True)
    assert not list((tmp_path / "set").glob("*_weight.npy")) + list((tmp_path / "set").glob("*_time.npy"))
    assert Dataset.load(tmp_path / "set").values == ()


def parts_of(pairs: Pairs) -> tuple[np.ndarray, np.ndarray, int]:
    return pairs.indptr, pairs.indices, pairs.n_items


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("weight", lambda values: np.append(values[:-1], np.float32("nan"))),
        ("weight", lambda values: np.append(values[:-1], np.float32("inf"))),
        ("weight", lambda values: np.append(values[:-1], np.float32(-1))),
        ("weight", lambda values: values[:-1]),
        ("weight", lambda values: values.astype("<f8")),
        ("time", lambda values: np.append(values[:-1], np.nan)),
        ("time", lambda values: np.append(values, 1.0)),
        ("time", lambda values: values.astype("<i8")),
    ],
    ids=["nan", "infinite", "negative", "short", "wide", "time-nan", "time-long", "time-whole"],
)
def test_invalid_values_are_refused(name: str, bad: object, dataset: Dataset, tmp_path: Path) -> None:
    folder = dataset.save(tmp_path / "set")
    path = folder / f"train_{name}.npy"
    content = io.BytesIO()
    np.save(content, bad(np.load(path)))  # type: ignore[operator]
    path.write_bytes(content.getvalue())
    reseal_dataset(folder)
    with pytest.raises(DataError, match=rf"is a damaged dataset \(.*train_{name}.* prepare it again"):
        Dataset.load(folder)


@given(events)
def test_matrix_of_weights_has_no_zeros_and_leaves_the_pairs(rows: list[tuple[int, int, int, float]]) -> None:
    pairs = everything(made_of(rows)).train
    before = pairs.indptr.copy(), pairs.indices.copy()
    assert pairs.weight is not None
    matrix = pairs.to_scipy(pairs.weight)
    dense = np.zeros((pairs.n_users, pairs.n_items), dtype=np.float32)
    dense[pairs.user_idx, pairs.indices] = pairs.weight
    assert np.array_equal(matrix.toarray(), dense)
    assert matrix.nnz == np.count_nonzero(dense)
    assert np.array_equal(pairs.indptr, before[0])
    assert np.array_equal(pairs.indices, before[1])


@given(events)
def test_everything_has_the_largest_weight_and_the_latest_time(rows: list[tuple[int, int, int, float]]) -> None:
    dataset = made_of(rows)
    whole = everything(dataset).train
    expected: dict[int, tuple[float, float]] = {}
    for pairs in map(dataset.split, SPLITS):
        assert pairs.weight is not None
        assert pairs.time is not None
        for key, weight, time in zip(pairs.keys().tolist(), pairs.weight.tolist(), pairs.time.tolist(), strict=True):
            before = expected.get(key, (0.0, -np.inf))
            expected[key] = max(before[0], weight), max(before[1], time)
    assert whole.weight is not None
    assert whole.time is not None
    found = zip(whole.keys().tolist(), zip(whole.weight.tolist(), whole.time.tolist(), strict=True), strict=True)
    assert dict(found) == expected
