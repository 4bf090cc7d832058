"""Readers: all formats give the same dataset; wrong input is refused in one sentence."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgcf.data import Dataset, load
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Split
from dgcf.errors import ConfigError, DataError, DgcfError

WHOLE = Preparation(split=Split("none"))
ROWS = [
    ("1", "20", 5.0, 880000001),
    ("1", "3", 4.0, 880000002),
    ("2", "20", 3.0, 880000003),
    ("10", "7", 1.0, 880000004),
]
PAIRS = {(user, item) for user, item, _, _ in ROWS}


def pairs_of(dataset: Dataset) -> set[tuple[Any, Any]]:
    users, items = list(dataset.users), list(dataset.items)
    return {(users[u], items[i]) for u, i in zip(dataset.train.user_idx, dataset.train.indices, strict=True)}


def table(delimiter: str, header: str | None = None, quote: bool = False) -> str:
    mark = '"' if quote else ""
    lines = [delimiter.join(f"{mark}{field}{mark}" for field in row) for row in ROWS]
    return "\n".join(([header] if header else []) + lines) + "\n"


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", table(",", "user,item,rating,timestamp")),
        ("b.csv", table(",", "userId,movieId,rating,timestamp", quote=True)),
        ("c.csv", table(";", "user;item;rating;timestamp")),
        ("d.tsv", table("\t", "user_id\titem_id\trating\ttimestamp")),
        ("e.psv", table("|", "customer_id|product_id|stars|date")),
        ("f.csv", table(",")),
        ("g.csv", "\ufeff" + table(",", "user,item,rating,timestamp")),
        ("h.csv", table(",", "user,item,rating,timestamp").replace("\n", "\r\n")),
        ("i.csv", table(",", "user,item,rating,timestamp").rstrip("\n")),
        ("j.csv.gz", gzip.compress(table(",", "user,item,rating,timestamp").encode(), mtime=0)),
        ("k.dat", gzip.compress(table(",", "user,item,rating,timestamp").encode(), mtime=0)),
        ("l.csv", table(",", "Customer ID,Article-Id,Score,Event Time")),
        ("m.inter", table("\t", "user_id:token\titem_id:token\trating:float\ttimestamp:float")),
        ("n.txt", table("\t", "user_id:token\titem_id:token\trating:float\ttimestamp:float")),
        ("u.data", table("\t").replace(".0", "")),
        ("o.txt", table("\t").replace(".0", "")),
        ("ratings.dat", table("::").replace(".0", "")),
        ("p.txt", table("::").replace(".0", "")),
        ("train.txt", "1 20 3\n2 20\n10 7\n"),
        ("q.lists", "1 20 3\n\n2 20 \n10 7\n11\n"),
        ("with 'quote' [and] star*.csv", table(",", "user,item,rating,timestamp")),
    ],
)
def test_text_formats_are_detected_and_read(tmp_path: Path, name: str, content: str | bytes) -> None:
    dataset = load(write(tmp_path, name, content), WHOLE)
    assert pairs_of(dataset) == PAIRS
    assert list(dataset.users) == ["1", "2", "10"]
    assert list(dataset.items) == ["3", "7", "20"]


def test_typed_sources_keep_the_type_of_ids(tmp_path: Path) -> None:
    columns = {
        "user": [int(row[0]) for row in ROWS],
        "item": [row[1] for row in ROWS],
        "rating": [row[2] for row in ROWS],
        "timestamp": pd.to_datetime([row[3] for row in ROWS], unit="s"),
    }
    frame = pd.DataFrame(columns)
    frame.to_parquet(tmp_path / "one.parquet")
    (tmp_path / "many" / "day=1").mkdir(parents=True)
    frame.iloc[:2].to_parquet(tmp_path / "many" / "a.parquet")
    frame.iloc[2:].to_parquet(tmp_path / "many" / "day=1" / "b.parquet")
    frame.iloc[:2].to_parquet(tmp_path / "part-1.parquet")
    frame.iloc[2:].to_parquet(tmp_path / "part-2.parquet")
    (tmp_path / "no-suffix").write_bytes((tmp_path / "one.parquet").read_bytes())
    sources: list[Any] = [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), tmp_path / "one.parquet"]
    sources += [tmp_path / "many", str(tmp_path / "part-*.parquet"), tmp_path / "no-suffix"]
    fingerprints = set()
    for source in sources:
        dataset = prepare(source, Preparation(split=Split("temporal")))
        fingerprints.add(dataset.fingerprint)
        assert list(dataset.users) == [1, 2, 10]
        assert list(dataset.items) == ["3", "7", "20"]
    assert len(fingerprints) == 1


def test_matrix_ids_are_indices() -> None:
    matrix = scipy.sparse.csr_matrix(([5.0, 4.0, 3.0], ([0, 0, 4], [2, 1, 2])), shape=(6, 3))
    assert pairs_of(load(matrix, WHOLE)) == {(0, 2), (0, 1), (4, 2)}
    assert pairs_of(load(scipy.sparse.coo_array(matrix), WHOLE)) == {(0, 2), (0, 1), (4, 2)}


def test_columns_by_name_and_by_position(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "when,what,who\n1,20,1\n2,3,1\n3,20,2\n4,7,10\n")
    for options in (ReadOptions(user_col="who", item_col="what"), ReadOptions(user_col=2, item_col=1, header=True)):
        assert pairs_of(load(path, WHOLE, options)) == PAIRS
    assert pairs_of(load(path, WHOLE, ReadOptions(user_col="2", item_col="1"))) == PAIRS


def test_ids_are_opaque_text(tmp_path: Path) -> None:
    ids = ["Ünal, Ş.", "9223372036854775808", "007", "7", " x", "a\nb", 'say "hi"', "NULL", "nan", "✓"]
    quoted = "".join('"' + raw.replace('"', '""') + f'",{place}\n' for place, raw in enumerate(ids))
    dataset = load(write(tmp_path, "a.csv", "user,item\n" + quoted), WHOLE, ReadOptions(delimiter=","))
    assert set(dataset.users) == set(ids)


def test_latin_1_and_utf_16_are_read_with_encoding(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        path = write(tmp_path, f"{encoding}.csv", "user,item\nJosé,1\nAna,2\n".encode(encoding))
        assert set(load(path, WHOLE, ReadOptions(encoding=encoding)).users) == {"José", "Ana"}


BAD_FILES = {
    "empty.csv": (b"", "empty.csv is empty, expected lines of data; write or download it again"),
    "mark-only.csv": (b"\xef\xbb\xbf\n", "mark-only.csv is empty"),
    "blank.csv": (b"\n\n  \n", "blank.csv is empty"),
    "header-only.csv": (b"user,item\n", "has no rows"),
    "one-column.csv": (b"user\na\nb\n", "one column"),
    "ragged.csv": (b"user,item\na,b\nc\nd,e\n", "line 3 of ragged.csv has 1 columns, expected 2"),
    "too-wide.csv": (b"user,item\na,b\nc,d,e\n", "line 3 of too-wide.csv has 3 columns, expected 2"),
    "rating.csv": (
        b"user,item,rating\na,b,5\nc,d,good\n",
        "line 3 of rating.csv has the rating 'good', which is not a number",
    ),
    "nan.csv": (b"user,item,rating\na,b,nan\nc,d,4\n", "line 2 of nan.csv has a rating that is not a finite number"),
    "missing-rating.csv": (b"user,item,rating\na,b,5\nc,d,\n", "line 3 of missing-rating.csv has a rating that is not"),
    "empty-user.csv": (b"user,item\n,b\nc,d\n", "line 2 of empty-user.csv has an empty user id"),
    "empty-item.csv": (b'user,item\na,b\nc,""\n', "line 3 of empty-item.csv has an empty item id"),
    "negative.csv": (b"user,item\n1,2\n-1,3\n", "user -1 of negative.csv is a negative number"),
    "negative.txt": (b"1 2 3\n2 -5\n", "item -5 of negative.txt is a negative number"),
    "overflow.txt": (b"1 2 3\n2 9223372036854775808\n", "'9223372036854775808' of overflow.txt is not a whole number"),
    "latin.csv": ("user,item\nJos\xe9,1\n".encode("latin-1"), "line 2 of latin.csv is not utf-8 text"),
    "wide.csv": ("user,item\nb,1\n".encode("utf-16"), "UTF-16 text"),
    "shop.xlsx": (b"PK\x03\x04\x14\0\x06\0" + bytes(40), "Excel workbook or a zip archive, expected text or Parquet"),
    "binary.csv": (bytes(range(256)) * 4, "binary file"),
    "quote.csv": (b'user,item\n"a,1\nb,2\n', "quote"),
    "mixed.csv": (b"user,item\r\na,b\nc,d\r\n", "line ending"),
    "cut.csv.gz": (gzip.compress(b"user,item\n" + b"a,b\n" * 9999, mtime=0)[:-9], "damaged gzip"),
    "flipped.csv.gz": (gzip.compress(b"user,item\na,b\n", mtime=0)[:-8] + b"\0" * 8, "damaged gzip"),
    "cut.parquet": (b"PAR1" + b"\0" * 50, "not a complete Parquet file"),
    "numbered-header.csv": (b"id,2019,2020\n5,6,7\n7,8,9\n", "cannot tell whether the first line"),
    "joined.csv": (b"user,item\na,x\nuser,item\nb,y\n", "repeats its header (user, item)"),
    "two-users.csv": (b"user,user_id,item\na,b,c\n", "'user' and 'user_id' of two-users.csv could each be the user"),
    "twice.csv": (b"user,user,item\na,b,c\n", "could each be the user"),
    "table.txt2": (b"196 242 3\n186 302 3\n", "may be a table or lists"),
    "comment.csv": (b"# made by hand\nuser,item\na,b\n", "neither header nor data"),
    "excel.csv": (b"sep=;\nuser;item\na;b\n", "neither header nor data"),
    "events.jsonl": (b'{"user": 1, "item": 2}\n', "looks like JSON"),
    "blank-id.csv": (b"user,item\n  ,y\na,b\n", "line 2 of blank-id.csv has an empty user id"),
    "late-nul.csv": (b"user,item\n" + b"good,row\n" * 9000 + b"a\0b,x\n", "NUL byte"),
    "infinite.csv": (b"user,item,rating\na,b,inf\n", "line 2 of infinite.csv has a rating that is not a finite number"),
    "words.csv": (b"alice,bread\nbob,milk\n", "cannot tell whether the first line"),
    "columns.csv": (b"kunde,artikel\n1,2\n3,4\n", "no column of columns.csv is known as the user"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_give_one_sentence(tmp_path: Path, name: str) -> None:
    content, sentence = BAD_FILES[name]
    format = "adjacency" if name.endswith(".txt") else None
    with pytest.raises(DataError) as caught:
        load(write(tmp_path, name, content), WHOLE, ReadOptions(format=format))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (ReadOptions(rating_col="stars"), "no column 'stars' for the rating"),
        (ReadOptions(user_col="usr"), "did you mean 'user'?"),
        (ReadOptions(user_col=9), "no column 9"),
        (ReadOptions(user_col="item"), "the same column"),
        (ReadOptions(format="cvs"), "did you mean 'csv'?"),
        (ReadOptions(encoding="ebcdic"), "encoding 'ebcdic' is not supported"),
        (ReadOptions(delimiter="-----"), "cannot be used"),
        (ReadOptions(timestamp_col="item"), "timestamp that is neither"),
    ],
)
def test_bad_options_give_one_sentence(tmp_path: Path, options: ReadOptions, sentence: str) -> None:
    path = write(tmp_path, "a.csv", "user,item\na,b\nc,d\n")
    with pytest.raises(DgcfError, match=re.escape(sentence)):
        prepare(path, Preparation(split=Split("temporal")), options)


def test_bad_frames_give_one_sentence() -> None:
    cases: list[tuple[Any, str]] = [
        (pd.DataFrame({"user": [1.0, np.nan], "item": [1, 2]}), "row 2 of the DataFrame has an empty user id"),
        (pd.DataFrame({"user": [1.5, 2.0], "item": [1, 2]}), "holds double values"),
        (pd.DataFrame({"user": [1, -1], "item": [1, 2]}), "negative number"),
        (pd.DataFrame({"user": ["a", None], "item": [1, 2]}), "empty user id"),
        (pd.DataFrame({"user": ["a", "b"]}), "one column"),
        (pd.DataFrame({"user": [], "item": []}), "holds"),
        (object(), "cannot read a object"),
        (42, "cannot read a int"),
    ]
    for frame, sentence in cases:
        with pytest.raises(DataError, match=sentence):
            prepare(frame, WHOLE)


def test_negative_numbers_are_text_with_text_ids(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "user,item\n1,2\n-1,3\n")
    assert set(load(path, WHOLE, ReadOptions(text_ids=True)).users) == {"1", "-1"}


def test_blank_lines_before_the_header_are_skipped(tmp_path: Path) -> None:
    for blank in ("\n", "\r\n\r\n", "   \n"):
        line = "\r\n" if "\r" in blank else "\n"
        path = write(tmp_path, "a.csv", blank + line.join(["user,item", "a,x", "b,y", ""]))
        assert pairs_of(load(path, WHOLE)) == {("a", "x"), ("b", "y")}
    with pytest.raises(DataError, match=r"line 4 of a\.csv"):
        load(write(tmp_path, "a.csv", "\nuser,item\na,x\n,y\n"), WHOLE)


def test_blanks_around_ids_are_noted_or_trimmed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "user, item\na, x\na,x\n")
    dataset = load(path, WHOLE)
    assert set(dataset.items) == {"x", " x"}
    assert "1 item ids begin or end with a blank, such as ' x'" in dataset.record["notes"][0]
    assert list(load(path, WHOLE, ReadOptions(trim_ids=True)).items) == ["x"]


def test_tab_delimiter_may_be_escaped(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "user\titem\na b\tx\n")
    assert pairs_of(load(path, WHOLE, ReadOptions(delimiter="\\t"))) == {("a b", "x")}


def test_missing_files_and_empty_folders_are_refused(tmp_path: Path) -> None:
    for missing in (tmp_path / "no.csv", str(tmp_path / "*.parquet"), tmp_path / "no.parquet"):
        with pytest.raises(DataError, match=r"no file"):
            load(missing, WHOLE)
    with pytest.raises(DataError, match="holds no Parquet file"):
        load(tmp_path, WHOLE)


@settings(max_examples=150)
@given(
    st.binary(max_size=200), st.sampled_from([None, "csv", "inter", "adjacency", "u.data", "ratings.dat", "parquet"])
)
@example(b'user,item\n"\n', "csv")
@example(b"a\x0bb,c\n1,2\n", "csv")
@example(b"1 2\x1f3\n", "adjacency")
def test_any_bytes_give_a_dataset_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, format: str | None
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "file"
    path.write_bytes(content)
    dataset, problem = attempt(path, ReadOptions(format=format))
    assert "\n" not in problem
    assert problem or (dataset is not None and len(dataset.train) > 0)


def attempt(path: Path, options: ReadOptions) -> tuple[Dataset | None, str]:
    """Return a dataset or the message of a DataError; any other exception fails the test."""
    try:
        return load(path, WHOLE, options), ""
    except (DataError, ConfigError) as problem:
        return None, str(problem)


fields = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=100)
@given(st.lists(st.lists(fields, min_size=1, max_size=4), max_size=8), st.sampled_from(",;\t|: "), st.booleans())
def test_any_table_of_text_gives_a_dataset_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], delimiter: str, header: bool
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "file.csv"
    lines = (["user,item,rating,time".replace(",", delimiter)] if header else []) + [
        delimiter.join(row) for row in rows
    ]
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    dataset, problem = attempt(path, ReadOptions())
    assert problem or (dataset is not None and len(dataset.train) > 0)
