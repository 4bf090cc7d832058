"""Rows without ids, ids that stand for missing ones, columns by their common names, titles beside the rows, weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data import load
from dgcf.data.columns import ReadOptions
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.data.weights import Weighting
from dgcf.errors import DataError

WHOLE = Preparation(split=Split("none"))
SKIP = ReadOptions(missing="skip")
SOURCES = ("csv", "parquet", "pandas", "polars")
ids = st.one_of(st.none(), st.sampled_from(["", " ", "a", "b", "c d"]))


def source_of(kind: str, frame: pd.DataFrame, folder: Path) -> Any:
    """Return a frame as a source of another kind."""
    if kind == "csv":
        frame.to_csv(folder / "rows.csv", index=False)
        return folder / "rows.csv"
    if kind == "parquet":
        frame.to_parquet(folder / "rows.parquet")
        return folder / "rows.parquet"
    return frame if kind == "pandas" else pl.from_pandas(frame)


def pairs_of(dataset: Any) -> set[tuple[Any, Any]]:
    pairs = zip(dataset.train.user_idx, dataset.train.indices, strict=True)
    return {(dataset.users.id_of(user), dataset.items.id_of(item)) for user, item in pairs}


@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=15)
@given(rows=st.lists(st.tuples(ids, ids), min_size=1, max_size=10))
def test_rows_without_ids_are_refused_or_left_out_and_counted(
    tmp_path_factory: pytest.TempPathFactory, kind: str, rows: list[tuple[str | None, str | None]]
) -> None:
    frame = pd.DataFrame(rows, columns=["user", "item"], dtype="string")
    source = source_of(kind, frame, tmp_path_factory.mktemp("rows"))
    full = [(user, item) for user, item in rows if (user or "").strip() and (item or "").strip()]
    users = {(user or "").strip() for user, _ in rows} - {""}
    missing = len(rows) - len(full)
    if missing:
        named = r"has an empty (user|item) id.*leave such rows out with --missing skip"
        with pytest.raises(DataError, match=named):
            load(source, WHOLE)
    if not full:
        with pytest.raises(DataError, match="leaves no interaction"):
            load(source, WHOLE, SKIP)
        return
    dataset = load(source, WHOLE, SKIP)
    assert pairs_of(dataset) == set(full)
    step = dataset.record["filters"][0]
    assert (step["filter"], step["pairs"]) == ("rows without a user or item id", missing)
    assert step["users"] == len(users - {user for user, _ in full})


def test_missing_integers_of_a_frame_are_left_out() -> None:
    frame = pd.DataFrame({"user": [1.0, np.nan, 3.0], "item": [10, 20, 30]})
    assert pairs_of(load(frame, WHOLE, SKIP)) == {(1, 10), (3, 30)}


def placeholder(name: str, share: float) -> pd.DataFrame:
    """Return rows of 200 users with five items each, and one of ``name`` with a share of all pairs."""
    rng = np.random.default_rng(0)
    rows = [(f"u{user}", f"i{item}") for user in range(200) for item in rng.choice(900, 5, replace=False)]
    more = round(len(rows) * share / (1 - share))
    return pd.DataFrame([*rows, *((name, f"i{item}") for item in range(more))], columns=["who is it", "sku"])


@pytest.mark.parametrize(
    ("name", "share", "warned"),
    [
        ("guest", 0.3, True),
        ("NULL", 0.05, True),
        ("0", 0.05, True),
        ("u7000", 0.3, True),
        ("u7000", 0.05, False),
        ("guest", 0.005, False),
    ],
)
def test_placeholder_ids_are_warned_of_and_can_be_left_out_as_said(
    tmp_path: Path, name: str, share: float, warned: bool
) -> None:
    source = source_of("csv", placeholder(name, share), tmp_path)
    columns = ReadOptions(user_col="who is it")
    dataset = load(source, WHOLE, columns)
    notes = [note for note in dataset.record["notes"] if "may stand for missing ids" in note]
    assert len(notes) == warned
    if warned:
        assert notes[0].startswith(f"user {name!r} has ")
        assert f"({share:.0%})" in notes[0]
        # The condition is quoted for a shell.
        condition = notes[0].split('--where "')[1].removesuffix('".').replace('\\"', '"')
        assert condition == f"\"who is it\" <> '{name}'"
        without = load(source, WHOLE, ReadOptions(user_col="who is it", where=condition))
        assert set(dataset.users) - set(without.users) == {name}


def test_an_item_in_every_basket_is_no_placeholder() -> None:
    rows = [(f"u{user}", item) for user in range(100) for item in ("bag", f"i{user}", f"i{user + 1}")]
    dataset = load(pd.DataFrame(rows, columns=["user", "item"]), WHOLE)
    assert not any("stand for missing" in note for note in dataset.record["notes"])


EXPORTS = {
    "online retail": ("InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country", 6, 1, 4, 2),
    "online retail II": ("Invoice,StockCode,Description,Quantity,InvoiceDate,Price,Customer ID,Country", 6, 1, 4, 2),
    "shop events": ("event_time,event_type,product_id,category_id,brand,price,user_id,user_session", 6, 2, 0, None),
    "retailrocket": ("timestamp,visitorid,event,itemid,transactionid", 1, 3, 0, None),
    "reviews": ("rating,title,text,asin,parent_asin,user_id,timestamp", 5, 4, 6, 1),
    "movielens": ("userId,movieId,rating,timestamp", 0, 1, 3, None),
    "fashion": ("t_dat,customer_id,article_id,price,sales_channel_id", 1, 2, 0, None),
    "instacart": ("order_id,customer_id,product_id,product_name,order_date", 1, 2, 4, 3),
    "books": ("User-ID,ISBN,Book-Rating", 0, 1, None, None),
    "old reviews": ("reviewerID,asin,reviewerName,overall,unixReviewTime,reviewTime", 0, 1, 4, None),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_columns_of_published_exports_are_recognised(tmp_path: Path, name: str) -> None:
    header, user, item, time, title = EXPORTS[name]
    names = header.split(",")
    (tmp_path / "rows.csv").write_text(f"{header}\n" + "".join(f"{','.join([str(n)] * len(names))}\n" for n in (1, 2)))
    columns = load(tmp_path / "rows.csv", WHOLE).record["read"][0]["columns"]
    expected = {"user": user, "item": item, "timestamp": time, "title": title}
    assert {role: columns.get(role) for role in expected} == {
        role: None if place is None else names[place] for role, place in expected.items()
    }


def test_a_guess_can_be_overridden(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user_id,item_id,brand,title\na,x,acme,one\nb,y,bolt,two\n")
    options = ReadOptions(user_col="brand", title_col="none")
    dataset = load(tmp_path / "rows.csv", WHOLE, options)
    assert pairs_of(dataset) == {("acme", "x"), ("bolt", "y")}
    assert dataset.items.titles is None


@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=10)
@given(rows=st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(["", " A", "A", "B b", "C,\"c'"])), min_size=1))
def test_title_of_an_item_is_its_most_frequent_text(
    tmp_path_factory: pytest.TempPathFactory, kind: str, rows: list[tuple[str, str]]
) -> None:
    frame = pd.DataFrame([("u", *row) for row in rows], columns=["user", "item", "label"])
    source = source_of(kind, frame, tmp_path_factory.mktemp("titles"))
    dataset = load(source, WHOLE, ReadOptions(title_col="label"))
    for item in range(dataset.n_items):
        raw = dataset.items.id_of(item)
        counts = Counter(text.strip() for own, text in rows if own == raw and text.strip())
        if not counts:
            assert dataset.items.title_of(item) == raw
            continue
        most = max(counts.values())
        best = [text for text, count in counts.items() if count == most]
        assert dataset.items.title_of(item) == max(best, key=lambda text: (len(text.encode()), text))


def test_titles_of_reviews_are_no_titles_of_items(tmp_path: Path) -> None:
    rows = "".join(f"u{user},x{item},text {user} {item}\n" for user in range(6) for item in range(3))
    (tmp_path / "rows.csv").write_text(f"user_id,parent_asin,title\n{rows}")
    dataset = load(tmp_path / "rows.csv", WHOLE)
    assert dataset.items.titles is None
    assert dataset.record["titles"]["used"] is False
    named = load(tmp_path / "rows.csv", WHOLE, ReadOptions(title_col="title"))
    assert named.items.titles is not None


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "", "many", "-inf", "-0.5"])
@pytest.mark.parametrize("kind", ["csv", "pandas"])
def test_weights_that_are_no_numbers_from_0_on_are_refused(tmp_path: Path, text: str, kind: str) -> None:
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "n": ["2", text]})
    with pytest.raises(DataError, match=r"(line 3 of rows\.csv|row 2 of the DataFrame) has a weight that is not a num"):
        load(source_of(kind, frame, tmp_path), Preparation(weighting=Weighting()), ReadOptions(weight_col="n"))
