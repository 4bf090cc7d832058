"""Text in any encoding, compressed, with long lines: read correctly or refused, in bounded memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgcf.data import load, text
from dgcf.data.prepare import Preparation
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Split
from dgcf.data.weights import Weighting
from dgcf.errors import DataError

WHOLE = Preparation(split=Split("none"))
TABLE = "user,item\nJosé😀,中\nAna,2\n"
MIB = 1 << 20


def users_of(path: Path, encoding: str = "utf-8") -> set[object]:
    return set(load(path, WHOLE, ReadOptions(encoding=encoding, format="csv", delimiter=",", header=True)).users)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (TABLE.encode("utf-16"), "utf-16"),
        (b"\xfe\xff" + TABLE.encode("utf-16-be"), "utf-16"),
        (b"\xfe\xff" + TABLE.encode("utf-16-be"), "UTF-16BE"),
        (TABLE.encode("utf-16-be"), "utf-16-be"),
        (TABLE.encode("utf-16-le"), "utf-16-le"),
        (gzip.compress(TABLE.encode("utf-16"), mtime=0), "utf_16"),
        (TABLE.encode("utf-8-sig"), "utf-8"),
    ],
)
def test_utf_16_is_read_in_both_byte_orders(tmp_path: Path, content: bytes, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert users_of(tmp_path / "a.csv", encoding) == {"José😀", "Ana"}


def test_utf_16_characters_may_span_blocks(tmp_path: Path) -> None:
    table = "user,item\n" + "".join(f"😀{n},b{n}\n" for n in range(60_000))
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe" + table.encode("utf-16-le"))
    assert users_of(tmp_path / "a.csv", "utf-16") == {f"😀{n}" for n in range(60_000)}


@pytest.mark.parametrize(
    ("content", "encoding", "sentence"),
    [
        (TABLE.encode("utf-16-be"), "utf-16", "no byte order mark"),
        (TABLE.encode("utf-16-le"), "utf-16", "pass --encoding utf-16-le or utf-16-be"),
        (TABLE.encode("utf-16"), "utf-16-be", "is UTF-16 text"),
        (TABLE.encode("utf-16"), "utf-8", "pass --encoding utf-16"),
        (TABLE.encode("utf-16-le"), "utf-8", "NUL byte"),
        (TABLE.encode("utf-16")[:-1], "utf-16", "is not utf-16-le text"),
        (TABLE.encode("utf-32"), "utf-8", "UTF-32"),
        (TABLE.encode("utf-8-sig"), "latin-1", "is UTF-8 text"),
        (b"user,item\n\x93a\x94,b\n", "latin-1", "line 2 of a.csv holds the byte 0x93.*windows-1252"),
        (b"user,item\n" + b"a,b\n" * 90_000 + b"\xff,b\n", "utf-8", "line 90002 of a.csv is not utf-8 text"),
    ],
)
def test_wrong_encoding_is_refused(tmp_path: Path, content: bytes, encoding: str, sentence: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        users_of(tmp_path / "a.csv", encoding)


def test_windows_1252_is_read_with_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("user,item\n“Zoë”,b\n".encode("cp1252"))
    assert users_of(tmp_path / "a.csv", "windows-1252") == {"“Zoë”"}


def test_concatenated_gzip_files_are_read_completely(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"user,item\na,b\n") + gzip.compress(b"c,d\n"))
    assert users_of(tmp_path / "a.csv.gz") == {"a", "c"}


@pytest.mark.parametrize("length", [100_000, 2 * MIB, 15 * MIB])
def test_long_last_line_without_newline_is_kept(tmp_path: Path, length: int) -> None:
    (tmp_path / "a.csv").write_bytes(b"user,item\na,b\nc," + b"d" * length)
    assert users_of(tmp_path / "a.csv") == {"a", "c"}


@pytest.mark.parametrize("name", ["a.csv", "u.data", "train.txt", "a.csv.gz"])
def test_line_longer_than_the_limit_is_refused(tmp_path: Path, name: str) -> None:
    start = {"u.data": b"1\t2\t3\t880000000\n", "train.txt": b"1 2 3\n"}.get(name, b"user,item\na,b\n")
    content = start + b"7" * (70 * MIB)
    (tmp_path / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    with pytest.raises(DataError, match=r"line \d of \S+ is longer than 16 MiB"):
        load(tmp_path / name, WHOLE)


def test_header_longer_than_the_sample_is_read(tmp_path: Path) -> None:
    extra = ",".join(f"column{n}" for n in range(9_000))
    (tmp_path / "a.csv").write_text(f"{extra},user,item\n" + "," * 9_000 + "a,b\n")
    assert set(load(tmp_path / "a.csv", WHOLE).users) == {"a"}


def test_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "GROWTH_ALLOWED", MIB)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"user,item\n" + b"a,b\n" * MIB))
    with pytest.raises(DataError, match=r"grows to more than .* unpack it first"):
        load(tmp_path / "a.csv.gz", WHOLE)


def test_repeats_of_a_packed_file_are_counted_like_others(tmp_path: Path) -> None:
    rows = b"user,item,rating,timestamp\n" + b"a,x,5,1000\na,x,4,3000\nb,x,1,2000\n" * 5_000
    (tmp_path / "plain.csv").write_bytes(rows)
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(rows))
    how = Preparation(keep_order=True, weighting=Weighting(count=True, transform="none"))
    plain, packed = (load(tmp_path / name, how) for name in ("plain.csv", "packed.csv.gz"))
    assert plain.fingerprint == packed.fingerprint
    assert plain.order == packed.order
    assert plain.train.weight is not None
    assert packed.train.weight is not None
    assert plain.train.weight.tolist() == packed.train.weight.tolist() == [10_000, 5_000]
    assert dict(plain.repeats) == dict(packed.repeats) == {"input": 14_998}
    for name in ("rows", "filters"):
        assert plain.record[name] == packed.record[name]
    divided = load(tmp_path / "packed.csv.gz", Preparation(split=Split("user-temporal")))
    assert any("only the latest event of each pair was split" in note for note in divided.record["notes"])


def test_invalid_time_among_repeats_is_refused(tmp_path: Path) -> None:
    rows = b"user,item,timestamp\n" + b"a,x,1000\n" * 5_000 + b"a,x,never\n"
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(rows))
    with pytest.raises(DataError, match=r"line 5002 of packed.csv.gz has a timestamp"):
        load(tmp_path / "packed.csv.gz", Preparation(split=Split("temporal")))


def test_timestamps_in_nanoseconds_with_a_time_zone_are_read(tmp_path: Path) -> None:
    times = pd.to_datetime([3, 1, 2], unit="D", utc=True)
    for zone in ("UTC", "Europe/Berlin"):
        column = pa.array(times, pa.timestamp("ns", tz=zone))
        table = pa.table({"user": ["a"] * 3, "item": ["x", "y", "z"], "timestamp": column})
        pq.write_table(table, tmp_path / "a.parquet")
        dataset = load(tmp_path / "a.parquet", Preparation(keep_order=True, split=Split("none")))
        assert dataset.train.place is not None
        assert [dataset.items.texts[item] for item in dataset.train.indices] == ["x", "y", "z"]
        assert dataset.train.place.tolist() == [2, 0, 1]


@pytest.mark.parametrize("role", ["user", "item", "rating", "timestamp", "split"])
def test_repeated_columns_of_a_role_are_refused(tmp_path: Path, role: str) -> None:
    names = [*dict.fromkeys(["user", "item", role]), role.title()]
    table = pa.Table.from_arrays([pa.array(["1"])] * len(names), names)
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    for source in (tmp_path / "a.parquet", tmp_path / "a.csv", table, table.to_pandas()):
        with pytest.raises(DataError, match=f"columns '{role}' and '{role.title()}' of .* could each be the {role}"):
            load(source, WHOLE)
    twice = pa.Table.from_arrays([pa.array([value]) for value in ("a", "b", "x")], ["user", "user", "item"])
    with pytest.raises(DataError, match="2 columns named 'user'"):
        load(twice, WHOLE, ReadOptions(user_col="user"))
    assert set(load(twice, WHOLE, ReadOptions(user_col=1)).users) == {"b"}


PROGRAM = """
import sys
from pathlib import Path
from dgcf.data import load
from dgcf.data.titles import read_titles
from dgcf.errors import DataError
try:
    print((read_titles if sys.argv[1] == "titles" else load)(sys.argv[2]))
except DataError as problem:
    print(problem)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def peak_of(kind: str, path: Path) -> tuple[str, int]:
    """What a process of its own says of a file, and how many MiB it took."""
    words = [sys.executable, "-c", PROGRAM, kind, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    message, peak = done.stdout.rsplit("\n", 2)[:2]
    return message, int(peak) // 1024


def write_packed(path: Path, head: bytes, block: bytes, times: int) -> Path:
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        for _ in range(times):
            file.write(block)
    return path


def test_small_gzip_bombs_take_little_memory(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "line.csv.gz", b"item,title\n1,", b"x" * MIB, 100)
    for kind in ("titles", "data"):
        message, peak = peak_of(kind, path)
        assert "is longer than 16 MiB" in message
        assert peak < 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "head", "block", "times", "message"),
    [
        ("data", b"user,item\n", b"1,2\n" * (MIB // 4), 250, "train 1,"),
        ("data", b"user,item\n", b"1,2\n" * (MIB // 4), 1500, "grows to more than"),
        ("data", b"user,item\n", b"1," + b"2" * (15 * MIB) + b"\n", 16, "train 1,"),
        ("titles", b"item,title\n", b"1,2\n" * (MIB // 4), 1500, "grows to more than"),
        ("titles", b"item,title\n", b"1," + b"2" * (15 * MIB) + b"\n", 16, "{'1': '2222"),
        ("titles", b"item,title\n1,", b"x" * MIB, 1500, "is longer than 16 MiB"),
    ],
)
def test_gzip_bombs_stay_below_two_gigabytes(
    tmp_path: Path, kind: str, head: bytes, block: bytes, times: int, message: str
) -> None:
    answer, peak = peak_of(kind, write_packed(tmp_path / "bomb.csv.gz", head, block, times))
    assert message in answer
    assert peak < 2000


@pytest.mark.slow
def test_parquet_file_of_many_equal_rows_stays_below_two_gigabytes(tmp_path: Path) -> None:
    column = pa.array([1] * 10_000_000, pa.int32())
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("user", pa.int32()), ("item", pa.int32())])) as writer:
        for _ in range(50):
            writer.write_table(pa.table({"user": column, "item": column}))
    answer, peak = peak_of("data", tmp_path / "a.parquet")
    assert "train 1," in answer
    assert peak < 2000


def test_mixed_line_endings_are_refused(tmp_path: Path) -> None:
    for content in (b"user,item\r\na,b\r c,d\r\n", b"user,item\na,b\r c,d\n"):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(DataError, match="mixes line endings"):
            users_of(tmp_path / "a.csv")
    block = b"user,item\r\n" + b"a,b" * ((MIB - 11) // 3 - 1) + b"abcdef\r\n"
    for shift in range(6):  # the pair may lie across two blocks
        (tmp_path / "a.csv").write_bytes(block[:-2] + b"x" * shift + b"\r\nc,d\r\n")
        with pytest.raises(DataError, match="columns, expected"):
            users_of(tmp_path / "a.csv")


def test_first_line_of_odd_white_space_is_data(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"\x0b\tx\na\tb\n")
    options = ReadOptions(format="csv", delimiter="\t", header=False)
    assert set(load(tmp_path / "a.tsv", WHOLE, options).users) == {"\x0b", "a"}


def test_line_break_in_a_header_is_escaped_in_messages(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"one\nname","another"\nx,y\n')
    with pytest.raises(DataError) as caught:
        load(tmp_path / "a.csv", WHOLE)
    assert "\n" not in str(caught.value)
