"""k beyond the number of items: all of them are given, with a note, and no memory is touched for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgcf.data.synthetic import planted
from dgcf.recommend import Recommender
from dgcf.recommend.batch import Batch

LARGE = [10**9, 2**63, 2**80]


@pytest.fixture(scope="module")
def rec() -> Recommender:
    films = planted(n_users=30, n_items=40)
    return Recommender("bpr-mf", dim=4, epochs=1, seed=0, device="cpu").fit(films)


@pytest.mark.parametrize("k", LARGE)
def test_list_is_no_longer_than_the_number_of_items(rec: Recommender, k: int) -> None:
    note = f"k is {k}, but only "
    for table, length in (
        (rec.recommend("u00001", k, exclude_seen=False), 40),
        (rec.recommend("u00001", k, only=["i00001", "i00002"], exclude_seen=False), 2),
        (rec.similar_items("i00001", k), 39),
        (rec.similar_users("u00001", k), 29),
    ):
        assert len(table) == length
        assert table.notes[0].startswith(note)


@pytest.mark.parametrize("k", LARGE)
def test_file_has_at_most_one_row_per_user_and_item(rec: Recommender, k: int, tmp_path: Path) -> None:
    assert Batch(rec.snapshot, k, exclude_seen=False).write(tmp_path / "all.csv")["rows"] == 30 * 40
