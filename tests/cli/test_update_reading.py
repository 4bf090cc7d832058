"""``dgcf update`` reads new rows as the data of the run was read, whether that was a raw file or a prepared folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dgcf import Recommender
from dgcf.data import Dataset
from tests.cli.in_process import invoke, refusal
from tests.cli.test_update import pairs_of

HEADER = "CustomerID,StockCode,Quantity,InvoiceDate\n"
BEGIN = datetime(2011, 1, 1, 8, tzinfo=UTC)
READING = ("--missing", "skip", "--where", "Quantity > 0")
EARLY = f"{HEADER}c1,a2,1,3/12/2011 9:00\nc1,late,2,3/12/2011 9:05\nc2,a1,-1,3/12/2011 9:10\n,a1,5,3/12/2011 9:15\n"
"""Rows of 3 December alone, which could be 12 March: new pairs of c1, a cancellation, and a row without a customer."""


def line(number: int) -> str:
    """A purchase, each a day after the one before, with the day first."""
    at = BEGIN + timedelta(days=number)
    return f"c{number % 20},a{number % 12},{1 + number % 5},{at.day}/{at.month}/{at.year} {at.hour}:00\n"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of 300 days, with a cancellation and a row without a customer."""
    flaws = "c1,a9,-3,5/1/2011 9:00\n,a9,3,5/1/2011 9:00\n"
    (tmp_path / "shop.csv").write_text(HEADER + "".join(map(line, range(300))) + flaws)
    (tmp_path / "new.csv").write_text(EARLY)
    return tmp_path / "shop.csv"


def trained(source: Path, *words: str) -> Path:
    """Return a run of a model without epochs on a source."""
    folder = source.parent / "run"
    invoke("train", source, "--model", "item-knn", *words, "--out", folder)
    return folder


def prepared(export: Path, *words: str) -> Path:
    folder = export.parent / "prepared"
    invoke("data", "prepare", export, *words, "--out", folder)
    return folder


@pytest.mark.parametrize("kind", ["raw", "prepared", "prepared with times"])
def test_conditions_missing_ids_and_the_order_of_dates_are_those_of_the_run(export: Path, kind: str) -> None:
    if kind == "raw":
        run = trained(export, *READING)
    else:
        times = ("--keep-times",) if kind == "prepared with times" else ("--day-first",)
        run = trained(prepared(export, *READING, *times))
    for name in ("first", "second"):
        answer = invoke("update", run, export.parent / "new.csv", "--out", export.parent / name)
        assert answer["rows"]["read"][0]["times"] == "day first"
        assert [step["pairs"] for step in answer["rows"]["filters"]] == [1, 1, 0]
        if name == "first":
            assert (answer["new_pairs"], answer["new_users"], answer["new_items"]) == (2, 0, 1)
            run = export.parent / "first"
        else:
            assert answer["updated"] is False
    assert ("c2", "a1") not in pairs_of(Dataset.load(export.parent / "first" / "dataset"))


def test_days_that_could_be_months_need_the_order_if_the_run_does_not_know_it(export: Path) -> None:
    run = trained(prepared(export, *READING))
    out = ("--out", export.parent / "updated")
    assert "--day-first or --month-first" in refusal("update", run, export.parent / "new.csv", *out)
    answer = invoke("update", run, export.parent / "new.csv", "--month-first", *out)
    assert answer["rows"]["read"][0]["times"] == "month first"


def test_window_of_a_run_on_a_raw_file_has_the_times_of_the_file(export: Path) -> None:
    run = trained(export, *READING)
    answer = invoke("update", run, export.parent / "new.csv", "--window", "90d", "--out", export.parent / "updated")
    newest, last = datetime(2011, 12, 3, 9, 5, tzinfo=UTC), {}
    for number in range(300):
        last[f"c{number % 20}", f"a{number % 12}"] = BEGIN + timedelta(days=number)
    old = {pair for pair, at in last.items() if newest - at > timedelta(days=90)}
    assert answer["expired_pairs"] == len(old) > 0
    left = pairs_of(Dataset.load(export.parent / "updated" / "dataset"))
    assert left == (last.keys() - old) | {("c1", "a2"), ("c1", "late")}


@pytest.mark.parametrize("kind", ["column", "count"])
def test_weights_of_new_pairs_have_the_transform_of_the_data(export: Path, kind: str) -> None:
    column = kind == "column"
    words = ("--weight-col", "Quantity", "--weight-transform", "none") if column else ("--count-repeats",)
    run = trained(prepared(export, *READING, *words), "--set", "weighted=true")
    (export.parent / "more.csv").write_text(f"{HEADER}c1,late,2,13/12/2011 9:05\nc1,late,20,13/12/2011 9:06\n")
    invoke("update", run, export.parent / "more.csv", "--out", export.parent / "updated")
    dataset = Dataset.load(export.parent / "updated" / "dataset")
    place = dataset.users.index_of("c1") * dataset.n_items + dataset.items.index_of("late")
    assert dataset.train.weight is not None
    weight = dict(zip(dataset.train.keys().tolist(), dataset.train.weight.tolist(), strict=True))[place]
    assert weight == pytest.approx(22 if column else 1.0986123)  # the sum, or log(1 + 2 events)


def test_python_reads_new_rows_as_the_data_was_read(export: Path) -> None:
    rec = Recommender("item-knn").fit(export, missing="skip", where="Quantity > 0", day_first=True)
    updated = rec.update(export.parent / "new.csv")
    assert "late" in updated.items
    assert updated.snapshot.about["update"]["new_pairs"] == 2
