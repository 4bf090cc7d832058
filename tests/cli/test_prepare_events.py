"""``dgcf data prepare`` on events with times and quantities, against plain pandas; and what ``stats`` says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.data import load
from dgcf.data.dataset import SPLITS, Dataset
from dgcf.random import uniform
from tests.cli.in_process import invoke, refusal

Pair = tuple[Any, Any]


@pytest.fixture(scope="module")
def orders() -> pd.DataFrame:
    """1,200 orders of 40 users within 2011, many of them of the same item again; some users only rate low."""
    drawn = uniform(3, "test/orders", 4 * 1200).reshape(4, -1)
    user = (drawn[0] * 40).astype(int)
    rating = np.where(user < 5, 1, 1 + (drawn[2] * 5).astype(int))
    return pd.DataFrame(
        {
            "user": [f"u{number}" for number in user],
            "item": [f"i{number}" for number in (drawn[1] ** 2 * 30).astype(int) + 30 * (rating == 1)],
            "rating": rating,
            "quantity": np.ceil(drawn[3] * 9).astype(int),
            "timestamp": pd.Timestamp("2011-01-01") + pd.to_timedelta(np.arange(1200) * 26_000, unit="s"),
        }
    )


@pytest.fixture(scope="module")
def table(orders: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("orders") / "orders.csv"
    orders.to_csv(path, index=False)
    return path


def prepared(*words: str | Path) -> tuple[dict[str, Any], Dataset]:
    """Run ``prepare``, whose last word is the folder, and return its answer and the dataset."""
    return invoke("data", "prepare", *words[:-1], "--out", words[-1]), load(words[-1])


def pairs_of(dataset: Dataset, split: str) -> set[Pair]:
    pairs = dataset.split(split)
    columns = (pairs.user_idx.tolist(), pairs.indices.tolist())
    return {(dataset.users.id_of(u), dataset.items.id_of(i)) for u, i in zip(*columns, strict=True)}


def shown(*words: str | Path) -> str:
    """Return what a verb prints, in wide lines."""
    done = CliRunner(env={"COLUMNS": "300"}).invoke(application(), [*map(str, words)])
    assert done.exit_code == 0, done.stderr
    return done.stdout + done.stderr


def pairs_in(frame: pd.DataFrame) -> set[Pair]:
    return set(zip(frame.user, frame.item, strict=True))


def test_cut_at_a_date_by_default_leaves_repurchases_out(orders: pd.DataFrame, table: Path, tmp_path: Path) -> None:
    answer, dataset = prepared(table, "--cut", "2011-11-01", "--validation-cut", "2011-10-01", tmp_path / "set")
    month = orders.timestamp.dt.month
    before, october, after = (pairs_in(orders[chosen]) for chosen in (month < 10, month == 10, month > 10))
    assert pairs_of(dataset, "train") == before
    assert pairs_of(dataset, "validation") == october - before
    assert pairs_of(dataset, "test") == after - october - before
    again = {"validation": len(october & before), "test": len(after & before)}
    assert min(again.values()) > 10
    more = len((after & october) - before)
    assert answer["held_out"] == {"repeats": "drop", **again, "test_validation": more}
    removed = sum(step["pairs"] for step in answer["filters"])
    assert answer["train"] + answer["validation"] + answer["test"] + removed == answer["rows"] == len(orders)
    words = shown("data", "stats", tmp_path / "set")
    assert f"{again['validation']} of validation and {again['test']} of test in train" in words
    assert f"{more} more of test in validation: left out" in words
    assert "temporal, cut 2011-11-01, validation cut 2011-10-01" in words


@pytest.mark.parametrize("rule", ["keep", "drop", "mask"])
def test_rule_for_repeats(rule: str, orders: pd.DataFrame, table: Path, tmp_path: Path) -> None:
    words = ("--cut", "2011-11-01", "--validation-cut", "2011-10-01", "--repeats", rule)
    answer, dataset = prepared(table, *words, tmp_path / "set")
    month = orders.timestamp.dt.month
    before, october, after = (pairs_in(orders[chosen]) for chosen in (month < 10, month == 10, month > 10))
    new = after - october - before
    assert pairs_of(dataset, "test") == (new if rule == "drop" else after)
    invoke("train", tmp_path / "set", "--model", "popularity", "--out", tmp_path / "run")
    measured = invoke("evaluate", tmp_path / "run")
    relevant = after if rule == "keep" else new
    assert measured["users_evaluated"] == len({user for user, _ in relevant} & {user for user, _ in before})
    done = {"keep": "in validation: kept ", "drop": "in validation: left out", "mask": "kept, not evaluated"}[rule]
    assert done in shown("data", "stats", tmp_path / "set").replace("│", " ")
    assert answer["held_out"]["repeats"] == rule


def test_validation_is_a_share_of_what_is_before_the_cut(orders: pd.DataFrame, table: Path, tmp_path: Path) -> None:
    words = ("--cut", "2011-11-01", "--validation", "0.2", "--repeats", "keep")
    _, dataset = prepared(table, *words, tmp_path / "set")
    before = orders[orders.timestamp < "2011-11-01"].sort_values("timestamp")
    first = round(0.8 * len(before))
    assert pairs_of(dataset, "train") == pairs_in(before[:first])
    assert pairs_of(dataset, "validation") == pairs_in(before[first:])
    assert "cut 2011-11-01; validation: 0.2 of train, temporal, seed 0" in shown("data", "stats", tmp_path / "set")


def test_validation_is_carved_out_of_a_training_file(orders: pd.DataFrame, tmp_path: Path) -> None:
    once = orders.drop_duplicates(["user", "item"])
    once[:400].to_csv(tmp_path / "train.csv", index=False)
    once[400:].to_csv(tmp_path / "test.csv", index=False)
    both = (tmp_path / "train.csv", "--test", tmp_path / "test.csv")
    _, dataset = prepared(*both, "--validation", "0.1", tmp_path / "set")
    assert pairs_of(dataset, "test") == pairs_in(once[400:])
    assert pairs_of(dataset, "train") | pairs_of(dataset, "validation") == pairs_in(once[:400])
    assert 20 <= len(dataset.validation) <= 60
    _, other = prepared(*both, "--validation", "0.1", "--seed", "5", tmp_path / "other")
    assert other.validation != dataset.validation
    assert "given; validation: 0.1 of train, random, seed 5" in shown("data", "stats", tmp_path / "other")
    _, latest = prepared(*both, "--validation", "0.1", "--split", "temporal", tmp_path / "latest")
    assert pairs_of(latest, "validation") == pairs_in(once[360:400])
    invoke("data", "prepare", *both, "--out", tmp_path / "without")
    _, again = prepared(tmp_path / "without", "--validation", "0.1", tmp_path / "again")
    assert again.validation == dataset.validation


def test_split_by_quantile_and_last_events_of_each_user(orders: pd.DataFrame, table: Path, tmp_path: Path) -> None:
    ordered = orders.sort_values("timestamp")
    words = ("--split", "temporal", "--ratios", "0.5,0.25,0.25", "--repeats", "keep")
    _, dataset = prepared(table, *words, tmp_path / "quantile")
    parts = (ordered[:600], ordered[600:900], ordered[900:])
    assert [pairs_of(dataset, split) for split in SPLITS] == [pairs_in(part) for part in parts]
    _, last = prepared(table, "--split", "leave-k-out", "--leave", "3", "--repeats", "keep", tmp_path / "last")
    from_end = ordered.groupby("user").cumcount(ascending=False)
    assert from_end.groupby(ordered.user).max().min() >= 6
    assert pairs_of(last, "test") == pairs_in(ordered[from_end < 3])
    assert pairs_of(last, "validation") == pairs_in(ordered[(from_end >= 3) & (from_end < 6)])
    assert "leave-k-out, k 3, seed 0" in shown("data", "stats", tmp_path / "last")


@pytest.mark.parametrize(
    ("words", "origin", "transform"),
    [
        (("--count-repeats",), "number of events", np.log1p),
        (("--count-repeats", "--weight-transform", "none"), "number of events", lambda sums: sums),
        (("--weight-col", "quantity"), "quantity", np.log1p),
        (("--weight-col", "quantity", "--weight-transform", "cap:7"), "quantity", lambda sums: sums.clip(upper=7)),
    ],
    ids=["count", "count-none", "quantity", "quantity-cap"],
)
def test_weights_equal_a_plain_sum(
    words: tuple[str, ...], origin: str, transform: Any, orders: pd.DataFrame, table: Path, tmp_path: Path
) -> None:
    answer, dataset = prepared(table, *words, "--split", "none", tmp_path / "set")
    counted = orders.assign(quantity=1) if origin == "number of events" else orders
    expected = transform(counted.groupby(["user", "item"]).quantity.sum())
    pairs = dataset.train
    assert pairs.weight is not None
    ids = [(dataset.users.id_of(u), dataset.items.id_of(i)) for u, i in zip(pairs.user_idx, pairs.indices, strict=True)]
    assert len(ids) == len(expected)
    np.testing.assert_allclose(pairs.weight, [expected[pair] for pair in ids], rtol=1e-6)
    assert answer["weights"]["from"] == origin
    assert answer["weights"]["max"] == pytest.approx(expected.max())
    assert f"{origin}, {answer['weights']['transform']}: min" in shown("data", "stats", tmp_path / "set")


def test_each_filter_counts_the_users_and_items_that_vanish(orders: pd.DataFrame, table: Path, tmp_path: Path) -> None:
    answer, _ = prepared(table, "--min-rating", "2", "--item-core", "12", tmp_path / "set")
    high = orders[orders.rating >= 2]
    first = answer["filters"][0]
    gone = orders.user.nunique() - high.user.nunique(), orders.item.nunique() - high.item.nunique()
    assert min(gone) >= 5
    assert first == {"filter": "rating >= 2", "pairs": len(orders) - len(high), "users": gone[0], "items": gone[1]}
    once = high.drop_duplicates(["user", "item"])
    enough = once.groupby("item").user.transform("size") >= 12
    assert answer["filters"][1] == {
        "filter": "repeated pairs", "pairs": len(high) - len(once), "users": 0, "items": 0
    }  # fmt: skip
    core = answer["filters"][2]
    assert (core["pairs"], core["items"]) == (int((~enough).sum()), once.item.nunique() - once[enough].item.nunique())
    words = shown("data", "stats", tmp_path / "set")
    assert f"rating >= 2: {first['pairs']} rows, {gone[0]} users, {gone[1]} items" in words
    assert "made from" in words
    assert "1,200 rows of" in words
    assert "random, ratios 0.7/0.1/0.2, seed 0" in words


def test_prepared_folder_has_its_own_name(table: Path, tmp_path: Path) -> None:
    answer, dataset = prepared(table, tmp_path / "spring")
    assert (answer["name"], dataset.name) == ("spring", "spring")
    assert invoke("data", "stats", tmp_path / "spring")["name"] == "spring"
    # A file that is called like a known dataset is none; a known dataset keeps its name.
    (tmp_path / "ml-1m.csv").write_bytes(table.read_bytes())
    assert prepared(tmp_path / "ml-1m.csv", tmp_path / "shop")[1].name == "shop"
    assert prepared("checkerboard", tmp_path / "board")[1].name == "checkerboard"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--cut", "2013-01-01"),
            "the cut at 2013-01-01 is outside the data, whose times run from 2011-01-01 to 2011-",
        ),
        (("--cut", "2010-01-01"), "is outside the data"),
        (("--cut", "November"), "the cut 'November' is neither a date such as 2011-11-01"),
        (("--cut", "2011-06-01", "--validation-cut", "2011-07-01"), "is not between the first time of the data"),
        (("--validation-cut", "2011-07-01"), "without --cut"),
        (("--cut", "2011-06-01", "--ratios", "0.8,0.1,0.1"), "--ratios and --cut were both given"),
        (("--split", "random", "--cut", "2011-06-01"), "--cut was given with the split random"),
        (("--validation", "0.1"), "carved out of a ready-made training part, or of what is before a cut"),
        (("--cut", "2011-06-01", "--validation", "2"), "share 2 of the training part for validation is not between"),
        (("--repeats", "keep"), "which the split random never has"),
        (("--split", "temporal", "--repeats", "kept"), "repeats is 'kept', expected one of drop, keep, mask"),
        (("--weight-transform", "none"), "--weight-transform was given without weights"),
        (("--count-repeats", "--weight-transform", "cap"), "expected log1p, none, or cap:N"),
        (("--count-repeats", "--weight-col", "quantity"), "a column or the number of events, not both"),
        (("--weight-col", "amount"), "no column 'amount' for the weight"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_splits_and_weights_are_refused(words: tuple[str, ...], sentence: str, table: Path, tmp_path: Path) -> None:
    assert sentence in refusal("data", "prepare", table, *words, "--out", tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "many", ""])
def test_bad_weights_are_refused_with_their_line(weight: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(f"user,item,amount\na,x,1\na,y,2\nb,x,{weight}\n")
    sentence = refusal("data", "prepare", tmp_path / "bad.csv", "--weight-col", "amount", "--out", tmp_path / "set")
    assert "bad.csv" in sentence
    assert "weight" in sentence
    assert "4" in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]
