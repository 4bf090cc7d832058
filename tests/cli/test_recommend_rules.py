"""``dgcf recommend`` under rules, for several and for unknown users, in real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dgcf.data import Dataset
from dgcf.recommend import load


@pytest.fixture(scope="module")
def shop(films: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files for rules."""
    folder, texts = tmp_path_factory.mktemp("shop"), films.items.texts
    rows = [f"{item},{item[-1]},{n % 3}\n" for n, item in enumerate(texts)]
    (folder / "items.csv").write_text("item,brand,stock\n" + "".join(rows))
    (folder / "only.txt").write_text("".join(f"{item}\n" for item in [*texts[20:120], "new 1"]))
    (folder / "exclude.csv").write_text("item_id\n" + "".join(f"{item}\n" for item in texts[50:60]))
    (folder / "boost.csv").write_text("item,boost\ni00030,2\n")
    (folder / "empty.txt").write_text("")
    (folder / "ware.csv").write_bytes("Ware;Lager\ni00007;für später\ni00008;\n".encode("windows-1252"))
    return folder


def test_only_and_exclude_of_all_users_equal_filtering_by_hand(
    dgcf: Any, film_run: Path, films: Dataset, shop: Path, tmp_path: Path
) -> None:
    whole, ruled = tmp_path / "whole.parquet", tmp_path / "ruled.parquet"
    assert dgcf("recommend", film_run, "--all", "-k", "160", "--out", whole).returncode == 0
    files = ("--only", shop / "only.txt", "--exclude", shop / "exclude.csv")
    done = dgcf("recommend", film_run, "--all", "-k", "160", "--out", ruled, *files, "--json")
    answer = json.loads(done.stdout)
    assert answer["notes"][0] == "1 id in only.txt is unknown and ignored: 'new 1'."
    assert "the rules leave some users fewer than 160 items" in answer["notes"][1]
    allowed = set(films.items.texts[20:120]) - set(films.items.texts[50:60])
    rows = duckdb.sql(f"SELECT user, item, score, title FROM '{whole}'").fetchall()
    assert duckdb.sql(f"SELECT user, item, score, title FROM '{ruled}'").fetchall() == [
        row for row in rows if row[1] in allowed
    ]
    assert answer["rows"] == sum(row[1] in allowed for row in rows)


def test_all_rules_together_are_those_of_python(dgcf_json: Any, film_run: Path, shop: Path, tmp_path: Path) -> None:
    words = ("--items-table", shop / "items.csv", "--where", "stock > 0", "--max-per", "brand=1", "-k", "5")
    words = (*words, "--boost", shop / "boost.csv", "--mmr", "0.4", "--mmr-candidates", "30", "--exclude", "i00007")
    dgcf_json("recommend", film_run, "--all", *words, "--out", tmp_path / "all.csv")
    rec = load(film_run)
    arguments: dict[str, Any] = {"items_table": shop / "items.csv", "where": "stock > 0", "max_per": {"brand": 1}}
    arguments |= {"boost": {"i00030": 2}, "mmr": 0.4, "mmr_candidates": 30, "exclude": "i00007"}
    expected = rec.recommend(rec.snapshot.users.texts, 5, **arguments)
    rows = duckdb.sql(f"SELECT user, item, rank, score FROM '{tmp_path}/all.csv'").fetchall()
    assert rows == [(row["user"], row["item"], row["rank"], row["score"]) for row in expected]
    assert len({row[1][-1] for row in rows[:5]}) == 5
    new = dgcf_json("recommend", film_run, "--items", "i00001", *words)
    assert [row["item"] for row in new["recommendations"]] == rec.recommend_for("i00001", 5, **arguments)["item"]


def test_item_column_and_encoding_of_files(dgcf_json: Any, film_run: Path, films: Dataset, shop: Path) -> None:
    words = ("--seen", "-k", "160", "--only", shop / "ware.csv", "--item-col", "Ware", "--encoding", "windows-1252")
    answer = dgcf_json("recommend", film_run, "--user", "u00003", *words)
    assert {row["item"] for row in answer["recommendations"]} == {"i00007", "i00008"}


def test_several_users_are_answered_together(dgcf: Any, dgcf_json: Any, film_run: Path) -> None:
    answer = dgcf_json("recommend", film_run, "--user", "u00003", "--user", "u00001", "-k", "2", "--why")
    assert [user["user"] for user in answer["users"]] == ["u00003", "u00001"]
    single = dgcf_json("recommend", film_run, "--user", "u00001", "-k", "2", "--why")
    assert answer["users"][1]["recommendations"] == single["recommendations"]
    shown = dgcf("recommend", film_run, "--user", "u00003", "--user", "u00001", "-k", "2").stdout
    assert shown.index("For user u00003") < shown.index("For user u00001")


def test_unknown_users_are_skipped_or_get_popular_items(dgcf: Any, dgcf_json: Any, film_run: Path) -> None:
    words = ("recommend", film_run, "--user", "u00003", "--user", "nobody", "-k", "2", "--unknown")
    popular = dgcf_json(*words, "popular")
    assert [user["user"] for user in popular["users"]] == ["u00003", "nobody"]
    assert popular["notes"] == ["1 user is unknown and given popular items: 'nobody'."]
    skipped = dgcf(*words, "skip")
    assert skipped.returncode == 0
    assert "For user nobody" not in skipped.stdout
    assert "note: 1 user is unknown and left out: 'nobody'." in skipped.stderr


def test_id_comes_before_a_file_of_that_name(dgcf_json: Any, film_run: Path, tmp_path: Path) -> None:
    (tmp_path / "i00005").write_text("i00009\n")
    words = ("recommend", film_run, "--user", "u00003", "--seen", "-k", "160", "--only")
    by_id = dgcf_json(*words, "i00005", cwd=tmp_path)
    assert [row["item"] for row in by_id["recommendations"]] == ["i00005"]
    by_path = dgcf_json(*words, tmp_path / "i00005")
    assert [row["item"] for row in by_path["recommendations"]] == ["i00009"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max-per", "brand"], "--max-per got 'brand', expected a column and a whole number, such as brand=2"),
        (["--max-per", "brand=2", "--max-per", "brand=3"], "--max-per limits 'brand' more than once"),
        (["--items-table", "items.csv", "--max-per", "brnad=2"], "no column 'brnad', it has item, brand, stock; did"),
        (["--items-table", "items.csv", "--where", "read_text('items.csv') = ''"], "--where holds read_text()"),
        (["--only", "gone.csv"], "there is no file gone.csv"),
        (["--only", "empty.txt"], "empty.txt holds no ids"),
        (["--item-col", "x", "--items-table", "items.csv", "--max-per", "brand=1"], "no column 'x'"),
        (["--exclude", "ware.csv"], "ware.csv is not utf-8 text; save it as UTF-8 or name its encoding, such as --enc"),
        (["--exclude", "ware.csv", "--encoding", "klingon"], "encoding 'klingon' is not supported"),
        (["--item-col", "Ware"], "--item-col is for the files of rules; give --only, --exclude"),
        (["--mmr", "1.5"], "mmr is 1.5, expected a number from 0 (relevance alone) to 1"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value),
)
def test_bad_rules_are_one_sentence_and_write_nothing(
    refused: Any, film_run: Path, shop: Path, words: list[str], sentence: str
) -> None:
    before = sorted(path.name for path in shop.iterdir())
    assert sentence in refused("recommend", film_run, "--all", "--out", "all.csv", *words, cwd=shop)
    assert sorted(path.name for path in shop.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--user", "u00001", "--unknown", "skipp"], "unknown is 'skipp', expected one of raise, skip, popular; did"),
        (["--user", "u00001", "--user", "u00002", "--items", "i00001"], "--items adds to one user's items"),
    ],
    ids=["unknown", "users-and-items"],
)
def test_bad_users_are_one_sentence(refused: Any, film_run: Path, words: list[str], sentence: str) -> None:
    assert sentence in refused("recommend", film_run, *words)
