"""Business rules by raw id: they hold in every list, equal filtering by hand, and bad input is one sentence."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data import Dataset
from dgcf.errors import ConfigError, DataError
from dgcf.ranking.rankings import ItemWeights
from dgcf.ranking.topk import NumpyBackend
from dgcf.ranking.weights import DenseWeights
from dgcf.recommend import Recommender, Snapshot, load
from dgcf.recommend.batch import Batch
from dgcf.recommend.rules import Rules
from tests.recommend.conftest import random_dataset, untrained
from tests.recommend.test_composed import composed


def with_item_weights(dataset: Dataset) -> Snapshot:
    rng = np.random.default_rng(0)
    W = rng.normal(size=(dataset.n_items, dataset.n_items)).astype(np.float32)
    return replace(untrained(dataset), ranking=ItemWeights(dataset.train, DenseWeights(W)))


KINDS: dict[str, Callable[[Dataset], Snapshot]] = {
    "embeddings": untrained,
    "item weights": with_item_weights,
    "composed": composed,
}


def shop(n_items: int, rng: np.random.Generator) -> pd.DataFrame:
    """A table of most of the items: a brand that may be missing, and the stock."""
    items = rng.permutation(n_items + 3)[: max(1, n_items)]
    brand = rng.choice(np.array(["ant", "bee", "", None], dtype=object), len(items))
    return pd.DataFrame({"item_id": items, "brand": brand, "stock": rng.integers(0, 3, len(items))})


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([0.0, 0.5]), st.booleans())
def test_rules_hold_in_every_list(
    tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int, k: int, mmr: float, seen: bool
) -> None:
    """Of one user, of all users and in a file; the lists are equal, and what was unlimited equals filtering by hand."""
    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("rules")
    dataset = random_dataset(int(rng.integers(2, 9)), int(rng.integers(3, 12)), seed)
    rec = Recommender.of(KINDS[kind](dataset))
    n_items = dataset.n_items
    table = shop(n_items, rng)
    only, exclude = rng.permutation(n_items + 5)[: n_items - 1], rng.permutation(n_items + 5)[:2]
    (folder / "only.txt").write_text("".join(f"{item}\n" for item in only))
    (folder / "exclude.csv").write_text("item\n" + "".join(f"{item}\n" for item in exclude))
    limits = {"brand": int(rng.integers(1, 3))}
    given_rules = Rules(
        only=folder / "only.txt",
        exclude=folder / "exclude.csv",
        items_table=table,
        where="stock > 0",
        max_per=limits,
        mmr=mmr,
        mmr_candidates=int(rng.integers(1, 9)),
    )
    stocked = set(table["item_id"][table["stock"] > 0])
    allowed = (set(only.tolist()) & stocked & set(range(n_items))) - set(exclude.tolist())
    if not allowed:
        with pytest.raises(DataError, match=r"leave none of the|none of the .* (is known|items of)"):
            rec.recommend(0, k, rules=given_rules)
        return
    under = given_rules.resolve(rec.names["item"])
    brand = {
        item: name if isinstance(name, str) else "" for item, name in zip(table["item_id"], table["brand"], strict=True)
    }
    brand |= dict.fromkeys(allowed - set(brand), "")
    lists = [rec.recommend(user, k, exclude_seen=seen, rules=under) for user in range(dataset.n_users)]
    by_hand = [
        [item for item in rec.recommend(user, n_items, exclude_seen=seen)["item"] if item in allowed]
        for user in range(dataset.n_users)
    ]
    for ranked, whole in zip(lists, by_hand, strict=True):
        items = ranked["item"]
        assert set(items) <= set(whole)
        assert len(items) == len(set(items)) <= k
        assert max(Counter(brand[item] for item in items if brand[item]).values(), default=0) <= limits["brand"]
        if not mmr:
            taken: Counter[str] = Counter()
            expected = []
            for item in whole:
                if not brand[item] or taken[brand[item]] < limits["brand"]:
                    taken[brand[item]] += 1
                    expected.append(item)
            assert items == expected[:k]
    everybody = rec.recommend(list(range(dataset.n_users)), k, exclude_seen=seen, rules=under)
    assert list(everybody) == [row for ranked in lists for row in ranked]
    Batch(rec.snapshot, k, seen, chunk=3, rules=under).write(folder / "all.parquet")
    rows = duckdb.sql(f"SELECT * FROM '{folder}/all.parquet'").fetchall()
    assert rows == [tuple(row.values()) for row in everybody]


def test_only_and_exclude_of_all_users_equal_filtering_by_hand(fitted: Recommender, tmp_path: Path) -> None:
    texts = fitted.snapshot.items.texts
    only, exclude = texts[20:120], texts[50:60]
    fitted.recommend_all(tmp_path / "all.csv", 160)
    fitted.recommend_all(tmp_path / "ruled.csv", 160, only=only, exclude=exclude)
    rows = duckdb.sql(f"SELECT user, item, score FROM '{tmp_path}/all.csv'").fetchall()
    ruled = duckdb.sql(f"SELECT user, item, score FROM '{tmp_path}/ruled.csv'").fetchall()
    assert ruled == [row for row in rows if row[1] in set(only) - set(exclude)]
    assert len(ruled) > 5000


def test_boost_adds_in_units_of_a_users_scores(fitted: Recommender) -> None:
    scores = fitted.recommend("u00004", 100)["score"]
    unit = float(np.float32(scores[0] - scores[-1]))
    last = fitted.recommend("u00004", 160)["item"][-1]
    plain = dict(zip(*(fitted.recommend("u00004", 160)[name] for name in ("item", "score")), strict=True))
    table = fitted.recommend("u00004", 160, boost={last: 2, "i00003": np.float32(-0.5), "i00009": 0})
    ruled = dict(zip(table["item"], table["score"], strict=True))
    assert table["item"][0] == last
    changed = {item for item in plain if abs(ruled[item] - plain[item]) > 1e-6}
    assert changed == {last, "i00003"} & set(plain)
    assert ruled[last] == pytest.approx(plain[last] + 2 * unit)
    assert table["score"] == sorted(table["score"], reverse=True)


def test_boosts_from_file_and_frame_equal_a_mapping(fitted: Recommender, tmp_path: Path) -> None:
    wanted = fitted.recommend(["u00001", "u00002"], 20, boost={"i00003": 1.5, "i00010": -1})
    (tmp_path / "boosts.csv").write_text("boost,item,more\n1.5,i00003,x\n-1, i00010,y\n0.1,new one,z\n")
    from_file = fitted.recommend(["u00001", "u00002"], 20, boost=tmp_path / "boosts.csv")
    assert from_file == wanted
    assert from_file.notes == ("1 id in boosts.csv is unknown and ignored: 'new one'.",)
    frame = pd.DataFrame({"item": ["i00003", "i00010"], "boost": [1.5, -1.0]})
    assert fitted.recommend(["u00001", "u00002"], 20, boost=frame) == wanted


def test_mmr_makes_lists_more_varied(fitted: Recommender) -> None:
    """The mean similarity inside lists falls as the weight grows; weight 0 changes nothing."""
    users = fitted.snapshot.users.texts[:40]
    plain = fitted.recommend(users, 10)
    assert fitted.recommend(users, 10, mmr=0.0, mmr_candidates=5) == plain
    rows = fitted.snapshot.item_rows / np.linalg.norm(fitted.snapshot.item_rows, axis=1, keepdims=True)

    def similarity(table: Any) -> float:
        index = np.array([fitted.snapshot.items.index_of(item) for item in table["item"]]).reshape(len(users), 10)
        return float(np.mean([(rows[items] @ rows[items].T).sum() for items in index]))

    levels = [similarity(fitted.recommend(users, 10, mmr=mmr)) for mmr in (0.0, 0.3, 0.7, 1.0)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > 1.2 * levels[-1]
    first = fitted.recommend("u00001", 10, mmr=0.7)
    assert first["item"][0] == fitted.recommend("u00001", 1)["item"][0]


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coded() -> Recommender:
    """Items with codes such as 007, and one whose code is the name of a file."""
    items = ["007", "08 ", "85123A", "a,b", "list.txt", "Été"]
    return Recommender.of(untrained(random_dataset(4, 6, items=items, kind="text")))


def allowed(rec: Recommender, **arguments: Any) -> tuple[set[str], tuple[str, ...]]:
    under = Rules(**arguments).resolve(rec.names["item"])
    return {rec.snapshot.items.texts[item] for item in np.flatnonzero(under.allowed)}, under.notes


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.txt", b"007\r\n85123A\r\na,b\r\n"),
        ("ids.txt", b"\xef\xbb\xbf007\n\n85123A\na,b"),
        ("ids", b"a,b\n 85123A\n007 \n007\n"),
        ("ids.csv", b'007\n85123A\n"a,b"\n'),
        ("ids.csv", b'item_id\n007\n85123A\n"a,b"\n'),
        ("ids.csv", b'"007"\n"85123A"\n"a,b"\n'),
        ("ids.csv", b'price;StockCode\n1,5;007\n2;85123A\n3;"a,b"\n'),
        ("ids.tsv", b"id\tname\n007\tone\n85123A\ttwo words\na,b\tthree\n"),
        ("ids.txt.gz", gzip.compress(b"007\n85123A\na,b\n")),
        ("ids.csv.gz", gzip.compress(b'item,x\n007,1\n85123A,2\n"a,b",3\n')),
    ],
    ids=["crlf", "mark", "blanks", "no-header", "header", "quoted", "semicolon", "tabs", "packed", "packed-csv"],
)
def test_file_of_ids(coded: Recommender, tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert allowed(coded, only=path) == ({"007", "85123A", "a,b"}, ())
    assert allowed(coded, exclude=path)[0] == {"08 ", "list.txt", "Été"}


def test_parquet_of_ids(coded: Recommender, tmp_path: Path) -> None:
    pd.DataFrame({"n": [1, 2], "asin": ["007", "Été"]}).to_parquet(tmp_path / "ids.parquet")
    assert allowed(coded, only=[tmp_path / "ids.parquet", "85123A"])[0] == {"007", "Été", "85123A"}


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_item_column_is_named_or_that_of_training(coded: Recommender, tmp_path: Path, kind: str) -> None:
    """In lists of ids, tables of attributes and boosts alike; a list of ids alone needs no column."""
    frame = pd.DataFrame({"Preis": [1, 2], "Artikel": ["007", "Été"], "boost": [1.0, 2.0]})
    table: Any = frame
    if kind == "csv":
        table = tmp_path / "t.csv"
        table.write_bytes(frame.to_csv(index=False).encode("windows-1252"))
    elif kind == "parquet":
        table = tmp_path / "t.parquet"
        frame.to_parquet(table)
    (tmp_path / "ids.txt").write_text("007\nlist.txt\n")
    only = {} if kind == "frame" else {"only": [table, tmp_path / "ids.txt"]}
    arguments = {**only, "items_table": table, "where": "Preis < 2", "boost": table, "encoding": "windows-1252"}
    about = {**coded.snapshot.about, "dataset": {"item_col": "Artikel"}}
    trained_so = Recommender.of(replace(coded.snapshot, about=about))
    for rec, named in ((coded, {"item_col": "artikel"}), (trained_so, {})):
        under = rec._prepared.resolve(None, {**arguments, **named})
        assert under is not None
        assert [rec.snapshot.items.texts[item] for item in np.flatnonzero(under.allowed)] == ["007"]
        assert under.boost is not None
        boosts = dict(zip(rec.snapshot.items.texts, under.boost.tolist(), strict=True))
        assert {item: boost for item, boost in boosts.items() if boost} == {"007": 1, "Été": 2}
    with pytest.raises(DataError, match=r"columns Preis, Artikel, boost, expected .* name it \(item_col, --item-col"):
        coded._prepared.resolve(None, arguments)
    with pytest.raises(DataError, match="no column 'Artikl', it has Preis, Artikel, boost; did you mean 'Artikel'"):
        coded._prepared.resolve(None, {**arguments, "item_col": "Artikl"})


def test_fit_records_the_item_column(tmp_path: Path) -> None:
    rows = pd.DataFrame({"Kunde": list("aabbcc"), "Artikel": list("xyyzzx")})
    rec = Recommender("item-knn").fit(rows, user_col="Kunde", item_col="Artikel", on="everything")
    rec.save(tmp_path / "a.dgcf")
    rec = Recommender.of(load(tmp_path / "a.dgcf").snapshot)
    table = pd.DataFrame({"Lager": [0, 1, 1], "Artikel": list("xyz")})
    assert "x" not in rec.recommend("b", exclude_seen=False, items_table=table, where="Lager > 0")["item"]


def test_ids_read_as_floats_are_whole_again(tmp_path: Path) -> None:
    """A column of whole numbers with a missing one, as pandas writes it."""
    rec = Recommender.of(untrained(random_dataset(3, 5)))
    pd.DataFrame({"item": [1.0, np.nan, 4.0]}).to_parquet(tmp_path / "ids.parquet")
    assert allowed(rec, only=tmp_path / "ids.parquet")[0] == {"1", "4"}


def test_unknown_ids_of_a_file_are_counted_and_named(fitted: Recommender, tmp_path: Path) -> None:
    (tmp_path / "only.txt").write_text("i00001\nnew 1\nnew 2\nnew 1\nnew 3\nnew 4\n")
    table = fitted.recommend("u00001", 1, only=tmp_path / "only.txt", exclude_seen=False)
    assert table["item"] == ["i00001"]
    assert table.notes == ("4 ids in only.txt are unknown and ignored: 'new 1', 'new 2', 'new 3', ….",)
    written = fitted.recommend_all(tmp_path / "all.csv", 1, exclude=tmp_path / "only.txt")
    assert written["notes"] == list(table.notes)


def test_exclude_file_without_known_ids_excludes_nothing(fitted: Recommender, tmp_path: Path) -> None:
    plain = fitted.recommend("u00001", 5)
    for content, note in (
        ("", "none.csv holds no ids."),
        ("\n", "none.csv holds no ids."),
        ("item\n", "none.csv holds no ids."),
        ("nobody's\n", '1 id in none.csv is unknown and ignored: "nobody\'s".'),
    ):
        (tmp_path / "none.csv").write_text(content)
        table = fitted.recommend("u00001", 5, exclude=tmp_path / "none.csv")
        assert list(table) == list(plain)
        assert table.notes == (note,)


def test_tables_of_every_kind(fitted: Recommender, tmp_path: Path) -> None:
    texts = fitted.snapshot.items.texts
    frame = pd.DataFrame({"item": texts, "genre": [text[-1] for text in texts], "stock": np.arange(len(texts)) % 4})
    frame.to_csv(tmp_path / "items.csv", index=False)
    frame.to_parquet(tmp_path / "items.parquet")
    words = {"where": "stock between 1 and 2 and genre <> '7'", "max_per": {"Genre": 1}}
    tables = [frame, duckdb.from_df(frame).to_arrow_table(), tmp_path / "items.csv", str(tmp_path / "items.parquet")]
    answers = [fitted.recommend(["u00001", "u00005"], 9, items_table=table, **words) for table in tables]
    assert all(answer == answers[0] for answer in answers)
    chosen = set(frame["item"][frame["stock"].between(1, 2) & (frame["genre"] != "7")])
    assert 0 < len(answers[0]) <= 18
    assert set(answers[0]["item"]) <= chosen
    for user in ("u00001", "u00005"):
        genres = [row["item"][-1] for row in answers[0] if row["user"] == user]
        assert len(genres) == len(set(genres))


def test_items_without_a_row_are_left_out_with_note(fitted: Recommender) -> None:
    table = pd.DataFrame({"item": ["i00001", "i00002", "other"], "stock": [1, None, 3], "brand": ["a", "a", "a"]})
    ranked = fitted.recommend("u00001", 5, exclude_seen=False, items_table=table, where="stock > 0")
    assert ranked["item"] == ["i00001"]
    assert ranked.notes[0] == "158 items are not in the DataFrame and therefore left out."
    grouped = fitted.recommend("u00001", 160, exclude_seen=False, items_table=table, max_per={"brand": 1})
    assert len(grouped) == 159
    assert grouped.notes[0] == "158 items are not in the DataFrame and therefore in no group."


# -- bad input ------------------------------------------------------------------------------------------------------

GOOD = pd.DataFrame({"item": ["i00001", "i00002"], "brand": ["a", "b"], "stock": [1, 0]})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"where": "stock > 0"}, "where needs a table of the items; give one"),
        ({"max_per": {"brand": 2}}, "max_per needs a table of the items"),
        ({"items_table": GOOD}, "the table of items is not used by any rule"),
        ({"items_table": GOOD, "max_per": {"brand": 0}}, "max_per allows 0 items per brand; give a whole number"),
        ({"items_table": GOOD, "max_per": {"brand": True}}, "max_per allows True items per brand"),
        (
            {"items_table": GOOD, "max_per": {"brnd": 1}},
            "has no column 'brnd', it has item, brand, stock; did you mean",
        ),
        ({"items_table": GOOD, "max_per": 2}, "max_per is 2, expected columns and numbers"),
        ({"items_table": GOOD, "where": "stok > 0"}, "no column 'stok'.*did you mean 'stock'"),
        ({"items_table": GOOD, "where": "stock >"}, "cannot be read"),
        ({"items_table": GOOD, "where": "stock"}, "is no condition"),
        ({"items_table": GOOD, "where": "brand in (select * from read_text('/etc/passwd'))"}, "holds a subquery"),
        ({"items_table": GOOD, "where": "stock > 9"}, r"leave none of the 160 items \(where chooses 0\)"),
        ({"items_table": GOOD, "where": "stock > 0", "exclude": "i00001"}, "leave none .*exclude has 1"),
        ({"items_table": pd.concat([GOOD, GOOD]), "where": "stock > 0"}, "has the item 'i00001' more than once"),
        ({"items_table": GOOD.rename(columns={"item": "thing"}), "where": "stock > 0"}, "expected one for the item"),
        (
            {"items_table": GOOD.assign(sku=1), "where": "stock > 0"},
            "could each be the item; name it",
        ),
        ({"items_table": GOOD.assign(item="x"), "where": "stock > 0"}, "has none of the 160 items"),
        ({"items_table": [1, 2], "where": "stock > 0"}, "cannot read a list, expected a path or a pandas"),
        ({"items_table": "nowhere.csv", "where": "stock > 0"}, "there is no file nowhere.csv; check the path"),
        ({"only": Path("nowhere.csv")}, "there is no file nowhere.csv"),
        ({"only": []}, "the list of items is empty"),
        ({"only": "i0000"}, "no item has the id or the title 'i0000'"),
        ({"only": 2.5}, "2.5 is no id"),
        ({"boost": {"i00001": float("nan")}}, "the boost of 'i00001' is nan, expected a number from -1000 to 1000"),
        ({"boost": {"i00001": "much"}}, "the boost of 'i00001' is 'much'"),
        ({"boost": {"i00001": True}}, "the boost of 'i00001' is True"),
        ({"boost": {"i00001": 1001}}, "is 1001, expected a number from -1000 to 1000"),
        ({"boost": {"nothing": 1}}, "no item has the id or the title 'nothing'"),
        ({"boost": GOOD}, "has no column 'boost', it has item, brand, stock"),
        ({"boost": pd.DataFrame({"item": ["i00001"] * 2, "boost": [1, 2]})}, "'i00001' has more than one boost"),
        (
            {"boost": pd.DataFrame({"item": ["i00001"], "boost": [np.nan]})},
            "the boost of 'i00001' is missing, expected",
        ),
        ({"boost": pd.DataFrame({"item": ["x"], "boost": [1]})}, "none of the 1 ids in the DataFrame is known"),
        ({"mmr": 1.5}, "mmr is 1.5, expected a number from 0"),
        ({"mmr": float("nan")}, "mmr is nan, expected a number from 0"),
        ({"mmr": "half"}, "mmr is 'half', expected a number from 0"),
        ({"mmr": 0.5, "mmr_candidates": 0}, "mmr_candidates is 0; give a whole number"),
        ({"rules": Rules(only="i00001"), "mmr": 0.5}, "rules are given twice, as an object and as mmr"),
        ({"items": ["i00001"]}, "there is no argument 'items'; rules are only, exclude"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_bad_rules_are_refused_in_one_sentence(fitted: Recommender, words: dict[str, Any], sentence: str) -> None:
    with pytest.raises((DataError, ConfigError), match=sentence) as caught:
        fitted.recommend("u00000", **words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "ids.csv holds no ids; give at least one item"),
        ("new 1\nnew 2\n", "none of the 2 ids in ids.csv is known .*expected ids as in the training data, such as"),
        ("name,price\na,1\n", "ids.csv has the columns name, price, expected one for the item"),
        ('{"a": 1}', "ids.csv looks like JSON"),
        ("item,price\ni00001\n", "line 2 of ids.csv has 1 columns, expected 2"),
    ],
    ids=["empty", "unknown", "no-item", "json", "ragged"],
)
def test_bad_file_of_ids_is_refused(fitted: Recommender, tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "ids.csv").write_text(content)
    with pytest.raises(DataError, match=sentence) as caught:
        fitted.recommend("u00000", only=tmp_path / "ids.csv")
    assert "\n" not in str(caught.value)


def test_mmr_needs_similarities(films: Dataset) -> None:
    rec = Recommender("popularity").fit(films)
    with pytest.raises(DataError, match="model popularity has one number for each item and no similarity"):
        rec.recommend("u00000", mmr=0.5)


# -- interrupted files ----------------------------------------------------------------------------------------------


class StoppedError(Exception):
    pass


class Stopping(NumpyBackend):
    """Fails in the third chunk."""

    calls = 0

    def candidates(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            raise StoppedError
        return super().candidates(*arguments)


FIRST = {"exclude": ["i00001"]}
OTHERS: dict[str, dict[str, Any]] = {
    "no-rules": {},
    "excluded": {"exclude": ["i00002"]},
    "limits": {"exclude": ["i00001"], "items_table": GOOD, "max_per": {"brand": 1}},
    "limits-of-2": {"exclude": ["i00001"], "items_table": GOOD, "max_per": {"brand": 2}},
    "boost": {"exclude": ["i00001"], "boost": {"i00003": 0.5}},
    "mmr": {"exclude": ["i00001"], "mmr": 0.5},
    "more-candidates": {"exclude": ["i00001"], "mmr": 0.5, "mmr_candidates": 50},
}


@pytest.mark.parametrize("name", OTHERS)
def test_chunks_of_other_rules_are_not_reused(tmp_path: Path, name: str) -> None:
    """Every set of rules is a job of its own."""
    titles = {f"i{number:05}": "" for number in range(14)}
    rec = Recommender.of(untrained(random_dataset(10, 14, items=titles, kind="text")))
    names, path = rec.names["item"], tmp_path / "all.parquet"
    for before, after in ((FIRST, OTHERS[name]), (OTHERS[name], FIRST)):
        rules = [Rules(**words).resolve(names) if words else None for words in (before, after)]
        with pytest.raises(StoppedError):
            Batch(rec.snapshot, 3, chunk=2, rules=rules[0]).write(path, backend=Stopping())
        assert len(list(path.parent.glob(".all.parquet.chunks/0*.parquet"))) > 0
        written = Batch(rec.snapshot, 3, chunk=2, rules=rules[1]).write(path)
        assert written["resumed"] == 0
        expected = rec.recommend(list(rec.snapshot.users), 3, rules=rules[1])
        rows = duckdb.sql(f"SELECT * FROM '{path}'").fetchall()
        assert rows == [tuple(row.values()) for row in expected]
        path.unlink()


def test_stopped_job_resumes_under_equal_rules(fitted: Recommender, tmp_path: Path) -> None:
    names, path = fitted.names["item"], tmp_path / "all.parquet"
    words: dict[str, Any] = {"exclude": ["i00001"], "mmr": 0.5, "items_table": GOOD, "max_per": {"brand": 1}}
    stopped, again = (Batch(fitted.snapshot, 3, chunk=25, rules=Rules(**words).resolve(names)) for _ in range(2))
    with pytest.raises(StoppedError):
        stopped.write(path, backend=Stopping())
    assert again.write(path)["resumed"] == 2
    expected = fitted.recommend(fitted.snapshot.users.texts, 3, **words)
    assert duckdb.sql(f"SELECT * FROM '{path}'").fetchall() == [tuple(row.values()) for row in expected]
