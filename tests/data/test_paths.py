"""File names are read literally; impossible names are refused in one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgcf.data import load
from dgcf.data.convert import convert
from dgcf.data.dataset import Dataset
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.data.titles import read_titles
from dgcf.errors import DataError

WHOLE = Preparation(split=Split("none"))
FRAME = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"]})
PAIRS = {("a", "x"), ("b", "y")}
NOT_UTF8 = os.fsdecode(b"caf\xe9")
ODD_NAMES = [
    "~",
    "~nobody",
    "file:x",
    "s3:x",
    "a[1]*?",
    "it's",
    'say "hi"',
    "user=9",
    "a\\b",
    "two\nlines",
    "é😀",
    "-x",
]


def pairs_of(dataset: Dataset) -> set[tuple[Any, Any]]:
    users, items = list(dataset.users), list(dataset.items)
    return {(users[u], items[i]) for u, i in zip(dataset.train.user_idx, dataset.train.indices, strict=True)}


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that names can be relative."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_read_and_written_literally(workdir: Path, name: str) -> None:
    (workdir / f"{name}.csv").write_text("user,item\na,x\nb,y\n")
    dataset = load(f"{name}.csv", WHOLE)
    assert pairs_of(dataset) == PAIRS
    convert(dataset, Path(f"{name}.parquet"))
    assert sorted(path.name for path in workdir.iterdir()) == sorted([f"{name}.csv", f"{name}.parquet"])
    (workdir / name).mkdir()
    (workdir / f"{name}.parquet").rename(workdir / name / "part.parquet")
    for source in (Path(name) / "part.parquet", name):
        assert pairs_of(load(source, WHOLE)) == PAIRS, "a folder key=value must not replace a column"


def test_urls_and_unknown_homes_are_file_names(workdir: Path) -> None:
    (workdir / "real.csv").write_text("user,item\na,x\n")
    for name in (
        f"file:{workdir}/real.csv",
        "file:real.csv",
        "s3://bucket/real.csv",
        "~.csv",
        "~nobody-here/x.csv",
        "~x",
    ):
        with pytest.raises(DataError, match="there is no file") as caught:
            load(name, WHOLE)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"there is no titles file ~x\.csv"):
        read_titles("~x.csv")


def test_home_folder_is_expanded(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(workdir))
    (workdir / "real.csv").write_text("user,item\na,x\n")
    assert pairs_of(load("~/real.csv", WHOLE)) == {("a", "x")}


def test_backslash_beside_a_pattern_is_refused(workdir: Path) -> None:
    FRAME.to_parquet(workdir / "a\\b[1].parquet")
    with pytest.raises(DataError, match="holds a backslash beside one of"):
        load("a\\b[1].parquet", WHOLE)


def test_names_that_are_not_utf8_are_refused(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workdir / f"{NOT_UTF8}.csv").write_text("user,item\na,x\n")
    (workdir / NOT_UTF8).mkdir()
    (workdir / "real.csv").write_text("user,item\na,x\n")
    FRAME.to_parquet(workdir / "a.parquet")
    (workdir / "a.parquet").rename(workdir / NOT_UTF8 / "a.parquet")
    dataset = load("real.csv", WHOLE)
    calls = [
        lambda: load(f"{NOT_UTF8}.csv", WHOLE),
        lambda: load(NOT_UTF8, WHOLE),
        lambda: load("*/a.parquet", WHOLE),
        lambda: load(workdir, WHOLE),
        lambda: load(f"no-{NOT_UTF8}", WHOLE),
        lambda: read_titles(f"{NOT_UTF8}.csv"),
        lambda: convert(dataset, workdir / f"{NOT_UTF8}.csv", overwrite=True),
    ]
    for call in calls:
        with pytest.raises(DataError, match=r"caf.\S* is not UTF-8 text; rename"):
            call()
    monkeypatch.chdir(workdir / NOT_UTF8)
    (workdir / NOT_UTF8 / "b.csv").write_text("user,item\na,x\n")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        load("b.csv", WHOLE)


def test_name_that_is_not_utf8_is_refused_by_the_command(workdir: Path, refused: Any) -> None:
    (workdir / f"{NOT_UTF8}.csv").write_text("user,item\na,x\n")
    assert r"caf\udce9.csv is not UTF-8 text" in refused("data", "stats", f"{NOT_UTF8}.csv", cwd=workdir)


def test_impossible_file_names_are_refused() -> None:
    for name, sentence in (("x" * 5000 + ".csv", "File name too long"), ("a\0b.csv", "NUL byte")):
        with pytest.raises(DataError, match=sentence) as caught:
            load(name, WHOLE)
        assert len(str(caught.value)) < 400


def test_partition_folders_are_columns_only_below_the_named_folder(workdir: Path) -> None:
    for split, part in (("train", FRAME[:1]), ("test", FRAME[1:])):
        (workdir / "table" / f"split={split}").mkdir(parents=True)
        part.to_parquet(workdir / "table" / f"split={split}" / "a.parquet")
    for source in ("table", "table/*/a.parquet"):
        dataset = load(source)
        assert (len(dataset.train), len(dataset.test)) == (1, 1)
    assert pairs_of(load("table/split=train/a.parquet", WHOLE)) == {("a", "x")}
    (workdir / "user=9").mkdir()
    (workdir / "table").rename(workdir / "user=9" / "table")
    with pytest.raises(DataError, match="lies below another one"):
        load("user=9/table")
