"""Titles: read from tables of any shape, or refused in one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dgcf.data import titles
from dgcf.data.titles import read_titles
from dgcf.errors import DataError

EXPECTED = {"1": "Amélie", "2": "Fargo, or not"}
RECBOLE = "item_id:token\tmovie_title:token_seq\trelease_year:token\n1\tAmélie\t2001\n2\tFargo\tx\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'item_id,title\n1,Amélie\n2,"Fargo, or not"\n'.encode()),
        ("a.tsv", "year\tname\tMovieID\n1\tAmélie\t1\n2\tFargo, or not\t2\n".encode("utf-8-sig")),
        ("a.gz", gzip.compress('item,title\r\n1,Amélie\r\n2,"Fargo, or not"'.encode(), mtime=0)),
        ("packed-without-suffix", gzip.compress('item,title\n1,Amélie\n2,"Fargo, or not"\n'.encode(), mtime=0)),
        ("movies.dat", "1::Amélie::Drama\n2::Fargo, or not::Crime\n".encode("latin-1")),
        ("movies.dat", "1::Amélie::Drama\n2::Fargo, or not::Crime\n".encode()),
        ("u.item", gzip.compress("1|Amélie|01-Jan-1995\n2|Fargo, or not|\n".encode("latin-1"), mtime=0)),
    ],
)
def test_titles_are_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_titles(tmp_path / name) == EXPECTED


def test_recbole_titles_include_the_year(tmp_path: Path) -> None:
    (tmp_path / "a.item").write_text(RECBOLE)
    assert read_titles(tmp_path / "a.item") == {"1": "Amélie (2001)", "2": "Fargo"}


def test_long_field_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"item,title,text\n1,Amélie,{'x' * 500_000}\n2,{'y' * 200_000},x\n")
    assert read_titles(tmp_path / "a.csv") == {"1": "Amélie", "2": "y" * 200_000}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b"item,title\n" + b"1,b\n" * 30_000 + b"2,\xff\n", "line 30002 of a.csv is not utf-8 text"),
        ("a.item", RECBOLE.encode() + b"3\n", "line 4 of a.item has 1 columns, expected 3"),
        ("a.csv", b"item,year,title\n1,2,a\n3,4\n", "line 3 of a.csv has 2 columns, expected 3"),
        ("u.item", b"1|Fargo|x\n2\n", "line 2 of u.item has 1 columns"),
        ("movies.dat", b"1\n", "one column"),
        ("a.csv", gzip.compress(b"item,title\n1,b\n", mtime=0)[:-4], "damaged gzip"),
        ("a.csv", b"item,title\n1,\0b\n", "NUL byte"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b'item,title\n1,"b\n', "quote"),
    ],
)
def test_bad_titles_files_are_refused(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence) as caught:
        read_titles(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_too_many_titles_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titles, "LARGEST", 1 << 20)
    (tmp_path / "a.csv").write_text("item,title\n" + "".join(f"{n},{'x' * 1000}\n" for n in range(2000)))
    with pytest.raises(DataError, match="more than 1 MiB of titles"):
        read_titles(tmp_path / "a.csv")
