"""A raw export with every flaw of a real one becomes recommendations, by the commands and options of a user."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from examples.shop_export import COLUMNS, FIRST_CUSTOMER, THINGS, Shape, code_of, title_of, write

from dgcf.data import load
from dgcf.data.columns import ReadOptions
from tests.cli.processes import ran

READING = ("--missing", "skip", "--where", "Quantity > 0")
"""The two options that read the export."""
THEMES = Shape.items // len(THINGS)
FLAWS = {
    "customers missing": lambda rows: (rows["CustomerID"] == "").mean() > 0.2,
    "cancellations": lambda rows: (
        rows["InvoiceNo"].str.startswith("C").sum() > 100
        and (rows["InvoiceNo"].str.startswith("C") == (rows["Quantity"].astype(int) < 0)).all()
    ),
    "day first": lambda rows: rows["InvoiceDate"].str.fullmatch(r"\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d{2}").all(),
    "a day that could be a month": lambda rows: rows["InvoiceDate"].str.startswith("12/").any(),
    "a day that could not": lambda rows: rows["InvoiceDate"].str.startswith("31/").any(),
    "codes with blanks": lambda rows: rows["StockCode"].str.contains(" ").any(),
    "codes with letters": lambda rows: rows["StockCode"].str.fullmatch(r"\d+A").any(),
    "titles with commas and quotes": lambda rows: rows["Description"].str.contains(', .*"').any(),
    "titles that vary": lambda rows: rows.groupby("StockCode")["Description"].nunique().max() > 1,
    "repeated purchases": lambda rows: rows.duplicated(["CustomerID", "StockCode"]).any(),
}


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of 50,000 lines."""
    return write(tmp_path_factory.mktemp("export") / "shop.csv")


@pytest.fixture(scope="module")
def rows(export: Path) -> pd.DataFrame:
    """Its lines as pandas reads them, as text."""
    return pd.read_csv(export, dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def bought(rows: pd.DataFrame) -> pd.DataFrame:
    """The lines that the two options keep, by pandas."""
    return rows[(rows["Quantity"].astype(int) > 0) & (rows["CustomerID"] != "")]


@pytest.mark.parametrize("flaw", FLAWS)
def test_export_has_the_flaw(rows: pd.DataFrame, flaw: str) -> None:
    assert len(rows) == 50_000
    assert tuple(rows.columns) == COLUMNS
    assert FLAWS[flaw](rows)


def test_raw_export_becomes_recommendations_with_two_options(
    export: Path, rows: pd.DataFrame, bought: pd.DataFrame, tmp_path: Path
) -> None:
    """Train on the raw file and recommend from the run, in processes of their own."""
    run = tmp_path / "run"
    trained = ran("train", export, *READING, "--set", "epochs=2", "--out", run)
    assert trained.returncode == 0, trained.stderr
    assert "user = 'CustomerID', item = 'StockCode', timestamp = 'InvoiceDate', title = 'Description'" in trained.stderr

    returned = int((rows["Quantity"].astype(int) < 0).sum())
    pairs = bought.drop_duplicates(["CustomerID", "StockCode"])
    assert f"where Quantity > 0: removed {returned:,} rows" in trained.stderr
    assert f"without a user or item id: removed {len(rows) - returned - len(bought):,} rows" in trained.stderr
    assert f"repeated pairs: removed {len(bought) - len(pairs):,} rows" in trained.stderr
    described = json.loads((run / "run.json").read_text())["dataset"]
    assert described["n_users"] == pairs["CustomerID"].nunique()
    assert described["n_items"] == pairs["StockCode"].nunique()

    answered = ran("recommend", run, "--all", "-k", "5", "--out", tmp_path / "all.csv")
    assert answered.returncode == 0, answered.stderr
    recommended = pd.read_csv(tmp_path / "all.csv", dtype={"user": str, "item": str})
    assert set(recommended["user"]) == set(bought["CustomerID"])
    number = {code_of(item): item for item in range(Shape.items)}
    items = recommended["item"].map(number)
    assert recommended["title"].tolist() == [title_of(item) for item in items]
    # A customer prefers three of the thirty themes.
    steps = (items // len(THINGS) - 7 * (recommended["user"].astype(int) - FIRST_CUSTOMER)) % THEMES
    assert (steps < 3).mean() > 0.8


def test_counts_equal_those_of_pandas(export: Path, rows: pd.DataFrame, bought: pd.DataFrame) -> None:
    dataset = load(export, read=ReadOptions(missing="skip", where="Quantity > 0"))
    pairs = bought.drop_duplicates(["CustomerID", "StockCode"])
    whole = dataset.train.union(dataset.validation, dataset.test)
    users, items = dataset.users.texts, dataset.items.texts
    assert {(users[u], items[i]) for u, i in zip(whole.user_idx, whole.indices, strict=True)} == set(
        zip(pairs["CustomerID"], pairs["StockCode"], strict=True)
    )
    positive = rows[rows["Quantity"].astype(int) > 0]
    removed = {step["filter"]: step for step in dataset.record["filters"]}
    assert dataset.record["rows"] == len(rows)
    assert removed["where Quantity > 0"]["pairs"] == len(rows) - len(positive)
    assert removed["rows without a user or item id"]["pairs"] == len(positive) - len(bought)
    assert removed["where Quantity > 0"]["users"] == len(set(rows["CustomerID"]) - set(positive["CustomerID"]))
    assert dataset.repeats == {"input": len(bought) - len(pairs)}
    most = bought.groupby("StockCode")["Description"].agg(lambda texts: Counter(texts).most_common(1)[0][0])
    assert dict(zip(items, dataset.items.titles or (), strict=True)) == most.to_dict()
