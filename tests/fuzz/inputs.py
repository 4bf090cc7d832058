"""Hostile and mutated input files, each determined by (seed, index)."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dgcf.data.readers import ReadOptions

Rows = list[list[str]]

LETTERS = [*"abZ70éß✓😀-_. '中", "\u200b", "\x0b", "\x85", "\ufeff"]
IDS = ["1", "2", "10", "007", "-1", "NULL", "nan", "1e5", "9223372036854775808", "0", "user", "item", "a;b", "x y"]
NUMBERS = ["5", "4.5", "0", "-1", "1e3", "880000001", "3.", ".5", "+2", "1e308"]
BAD_NUMBERS = ["", "nan", "inf", "-Infinity", "1e999", "good", "0x10", "1_000", "１２", "5,0", "9" * 400]
TIMES = ["880000001", "880000002.5", "2020-01-01", "2020-01-01T10:00:00+02:00", "2020-01-01T00:00:00Z"]
HEADERS = ["", "user", "item", "userId", "movieId", "user_id", "item_id", "rating", "timestamp", "split", "title"]
NAMES = ["data", "ü 😀", "a[1]*?", "line\nbreak", "a'b", "~", "k=v", "file:x", "train", "-x", 'q"q', "a\\b", "a#b%20"]
MARKS = ['"', '""', '","', '"\n', "\r", "\n", "\r\n", "\n\n", " \n", ",", "\t", "::", ";", "|", " ", "  ", "\x1f", "\\"]
BYTES = [b"\x00", b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x80\xa8"]
WORDS = [b"#", b"{", b"[", b"sep=;\n", b"PAR1", b"\x1f\x8b", b"user,item\n", b"'", b"\x1a", b"1e999", b"-1", b"nan"]
TOKENS = [*(mark.encode() for mark in MARKS), *BYTES, *WORDS, b"9" * 400, b"x" * 5000]


@dataclass(frozen=True)
class Case:
    """An input: name and content of a file, options to read it, and the expected pairs if they are certain."""

    name: str
    content: bytes
    options: ReadOptions = field(default_factory=ReadOptions)
    titles: bool = False
    pairs: frozenset[tuple[str, str]] | None = None
    """The pairs of a file that is certainly valid."""


def make_case(seed: int, index: int) -> Case:
    """Return the input of this seed and index."""
    rng = random.Random(f"{seed}/{index}")
    return rng.choice(KINDS)(rng)


def _text(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(IDS)
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, 6)))


def _newline(rng: random.Random) -> str:
    return rng.choice(["\n", "\n", "\r\n", "\r"])


def _name(rng: random.Random, suffix: str) -> str:
    return (rng.choice(NAMES) if rng.random() < 0.3 else "data") + suffix


def _encode(rng: random.Random, text: str) -> tuple[bytes, str]:
    """Return bytes and an encoding option, rarely a wrong one."""
    codec, named = rng.choice(
        [("utf-8", "utf-8")] * 16
        + [("utf-8-sig", "utf-8"), ("latin-1", "latin-1"), ("cp1252", "windows-1252"), ("utf-16", "utf-16")]
        + [("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be"), ("utf-16-be", "utf-16"), ("utf-32", "utf-8")]
    )
    content = text.encode(codec, errors="replace")
    if codec == "utf-16-be" and rng.random() < 0.5:
        content = b"\xfe\xff" + content
    if rng.random() < 0.05:
        named = rng.choice(["utf-8", "latin-1", "utf-16", "utf-16-le", "ebcdic"])
    return content, named


def _packed(rng: random.Random, content: bytes, name: str) -> tuple[bytes, str]:
    if rng.random() > 0.15:
        return content, name
    half = len(content) // 2
    parts = [content] if rng.random() < 0.7 else [content[:half], content[half:]]  # gzip files may be concatenated
    return b"".join(gzip.compress(part, 1, mtime=0) for part in parts), name + rng.choice([".gz", "", ".GZ"])


def mutate(rng: random.Random, content: bytes) -> bytes:
    """Flip, cut, insert, repeat and move some bytes."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(6)
        if how == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[place : place + rng.choice([1, 2, 20])]
        elif how == 2:
            data[place:place] = rng.choice(TOKENS)
        elif how == 3:
            data[place:place] = data[place : place + rng.choice([1, 10, 200])]
        elif how == 4:
            del data[place:]
        else:
            data[place : place + 4] = rng.randbytes(4)
    return bytes(data)


def _rows(rng: random.Random) -> Rows:
    return [
        [_text(rng), _text(rng), rng.choice(NUMBERS if rng.random() < 0.97 else BAD_NUMBERS), rng.choice(TIMES)]
        for _ in range(rng.choice([0, 1, 2, 3, 8, 30]))
    ]


ODD_OPTIONS: list[dict[str, Any]] = [
    *({"delimiter": text} for text in ("\\t", ",", "é", '"', "#####", "")),
    *({"user_col": column} for column in ("user", "1", 9, "none", "²")),
    *({"rating_col": column} for column in ("none", 2, "item", 0)),
    *({"format": name} for name in ("csv", "inter", "cvs")),
    {"timestamp_col": 1},
]


def _csv(rng: random.Random) -> Case:
    delimiter = rng.choice([",", ",", "\t", ";", "|", " ", "::", "^"])
    width, quoting = rng.randint(2, 4), rng.choice(["needed", "all", "none"])
    header = rng.choice([None, ["user", "item", "rating", "timestamp"], rng.sample(HEADERS, 4)])
    lines = []
    for row in ([header] if header else []) + _rows(rng):
        cells = list(row[:width])
        if rng.random() < 0.01:
            cells = cells[:-1] or cells
        if quoting != "none":
            cells = [_quoted(cell, delimiter, quoting == "all") for cell in cells]
        lines.append(delimiter.join(cells))
    newline = _newline(rng)
    text = newline.join(lines) + (newline if rng.random() < 0.8 else "")
    content, encoding = _encode(rng, text)
    if rng.random() < 0.5:
        content = mutate(rng, content)
    content, name = _packed(rng, content, _name(rng, rng.choice([".csv", ".tsv", ".txt", ""])))
    how: dict[str, Any] = {"delimiter": delimiter, "header": header is not None, "user_col": 0, "item_col": 1}
    for option in rng.sample(sorted(how), rng.choice([0, 0, 1, 4])):  # to be detected
        del how[option]
    if rng.random() < 0.15:
        how |= rng.choice(ODD_OPTIONS)
    how |= {"encoding": encoding, "text_ids": rng.random() < 0.3, "trim_ids": rng.random() < 0.2}
    options = ReadOptions(**how)
    return Case(name, content, options)


def _quoted(cell: str, delimiter: str, always: bool) -> str:
    if always or any(sign in cell for sign in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _certain(rng: random.Random) -> Case:
    """Return a certainly valid table, which must be read correctly."""
    rows = [[f"u{_text(rng)}x", f"i{_text(rng)}x", rng.choice(NUMBERS)] for _ in range(rng.randint(1, 30))]
    newline, encoding = _newline(rng), rng.choice(["utf-8", "utf-8", "utf-16", "utf-16-be"])
    lines = [
        ",".join(_quoted(cell, ",", rng.random() < 0.2) for cell in row) for row in [["user", "item", "rating"], *rows]
    ]
    content = newline.join(lines + ([""] if rng.random() < 0.8 else [])).encode(encoding)
    content, name = _packed(rng, content, _name(rng, ".csv"))
    pairs = frozenset((user, item) for user, item, _ in rows)
    return Case(name, content, ReadOptions(format="csv", delimiter=",", header=True, encoding=encoding), pairs=pairs)


def _nearly(rng: random.Random) -> Case:
    """Return a valid table with some quotes, blanks, separators and line breaks inserted."""
    case = _certain(rng)
    text = "\n".join(f"u{n},{_quoted(_text(rng) + 'x', ',', n % 3 == 0)},5" for n in range(rng.choice([2, 6])))
    for _ in range(rng.choice([1, 1, 2, 3])):
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice(MARKS) + text[place:]
    header = rng.choice(["user,item,rating", "user,item,rating", " user , item,rating", '"user","item",x'])
    options = ReadOptions(format="csv", delimiter=",", header=True, trim_ids=rng.random() < 0.2)
    return Case(case.name.removesuffix(".gz"), f"{header}\n{text}\n".encode(), options)


def _lists(rng: random.Random) -> Case:
    blank = rng.choice([" ", " ", "\t", "  "])
    lines = []
    for user in range(rng.choice([0, 1, 3, 20])):
        items = [str(rng.randrange(50)) for _ in range(rng.choice([0, 1, 3, 30]))]
        if rng.random() < 0.02:
            items.append(rng.choice(["-1", "x", "99999999999999999999", "1.5", '"']))
        lines.append(blank.join([str(user), *items]))
    newline = _newline(rng)
    content, encoding = _encode(rng, newline.join(lines) + (newline if rng.random() < 0.7 else ""))
    if rng.random() < 0.5:
        content = mutate(rng, content)
    name = rng.choice(["train.txt", "data.txt", "lists"])
    content, name = _packed(rng, content, name)
    options = ReadOptions(format=rng.choice([None, "adjacency"]), encoding=encoding, text_ids=rng.random() < 0.1)
    return Case(name, content, options)


def _movielens(rng: random.Random) -> Case:
    format, delimiter = rng.choice([("u.data", "\t"), ("ratings.dat", "::"), ("inter", "\t")])
    rows = [
        [rng.choice([str(rng.randrange(99)), _text(rng)]), str(rng.randrange(99)), rng.choice(NUMBERS), "880000001"]
        for _ in range(rng.choice([1, 3, 20]))
    ]
    header = "user_id:token\titem_id:token\trating:float\ttimestamp:float"
    lines = ([header] if format == "inter" else []) + [delimiter.join(row) for row in rows]
    newline = _newline(rng)
    content, encoding = _encode(rng, newline.join(lines) + newline)
    if rng.random() < 0.6:
        content = mutate(rng, content)
    content, name = _packed(rng, content, rng.choice([{"inter": "x.inter"}.get(format, format), "data.txt"]))
    return Case(name, content, ReadOptions(format=rng.choice([None, format]), encoding=encoding))


@cache
def _tables() -> list[bytes]:
    """Return some valid Parquet files to mutate."""
    users, items = ["a", "b", "b", "é"], ["x", "y", "x", "😀"]
    time = pa.array([1, 2, 3, 10**18], pa.timestamp("ns", tz="UTC"))
    made = [
        (pa.table({"user": users, "item": items}), {}),
        (pa.table({"user": [1, 2, 2, 3], "item": items, "rating": [1.0, 2.0, None, 5.0]}), {}),
        (pa.table({"user": users, "item": items, "timestamp": time}), {"compression": "zstd"}),
        (pa.table({"user": users * 500, "item": items * 500, "split": ["train", "test"] * 1000}), {}),
        (pa.table({"user": users, "tags": [[{"user": 1}]] * 4, "item": items}), {"use_dictionary": False}),
        (pa.Table.from_arrays([pa.array(users), pa.array(users), pa.array(items)], ["user", "user", "item"]), {}),
        (pa.table({"user": [1.5, 2.0, 3.0, 4.0], "item": items}), {"compression": "none"}),
    ]
    contents = []
    for table, options in made:
        sink = io.BytesIO()
        pq.write_table(table, sink, **options)
        contents.append(sink.getvalue())
    return contents


def _parquet(rng: random.Random) -> Case:
    content = rng.choice(_tables())
    if rng.random() < 0.9:
        content = mutate(rng, content)
    return Case(
        _name(rng, rng.choice([".parquet", ".pq", "", ".csv"])),
        content,
        ReadOptions(format=rng.choice([None, "parquet"])),
    )


def _titles(rng: random.Random) -> Case:
    name, delimiter, header = rng.choice(
        [
            ("movies.dat", "::", None),
            ("u.item", "|", None),
            ("x.item", "\t", "item_id:token\tmovie_title:token_seq\trelease_year:token"),
            ("titles.csv", ",", "item_id,title,year"),
            ("titles.tsv", "\t", "movieId\tname\tyear"),
        ]
    )
    lines = [] if header is None else [header]
    for _ in range(rng.choice([0, 1, 5, 40])):
        cells = [_text(rng), _text(rng), rng.choice(["1995", "", "x"])]
        lines.append(delimiter.join(cells[:2] if rng.random() < 0.02 else cells))
    content, encoding = _encode(rng, "\n".join(lines) + "\n")
    if rng.random() < 0.5:
        content = mutate(rng, content)
    content, name = _packed(rng, content, name)
    return Case(name, content, ReadOptions(encoding=encoding), titles=True)


def _garbage(rng: random.Random) -> Case:
    content = b"".join(
        rng.choice([*TOKENS, b"1,2\n", b"a,b", b"1 2 3\n"])
        if rng.random() < 0.7
        else rng.randbytes(rng.randrange(1, 30))
        for _ in range(rng.randrange(30))
    )
    format = rng.choice([None, None, "csv", "inter", "adjacency", "u.data", "ratings.dat", "parquet"])
    encoding = rng.choice(["utf-8", "utf-8", "latin-1", "utf-16", "utf-16-le"])
    return Case(_name(rng, rng.choice(["", ".csv", ".gz"])), content, ReadOptions(format=format, encoding=encoding))


KINDS: list[Callable[[random.Random], Case]] = [
    *([_csv] * 6),
    *([_certain] * 2),
    *([_nearly] * 3),
    *([_lists] * 3),
    *([_movielens] * 3),
    *([_parquet] * 2),
    *([_titles] * 2),
    *([_garbage] * 2),
]
