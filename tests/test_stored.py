"""Stored files: irregular files, wrong checksums and wrong types are refused."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.stored import (
    InvalidFileError,
    Range,
    chain_line,
    decode_json,
    decode_npy,
    file_entry,
    open_member,
    read_chain,
    read_checked,
    read_member,
    seal,
    verify_seal,
)


class Inner(TypedDict):
    n: Annotated[int, Range(0, 10)]
    kind: Literal["text", "integer"]


class Outer(TypedDict):
    name: str
    share: float
    inner: Inner
    values: list[float]
    more: NotRequired[dict[str, Any] | None]


GOOD: dict[str, Any] = {"name": "a", "share": 1, "inner": {"n": 3, "kind": "text"}, "values": [0.5, 2]}
plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


def test_typed_fields_are_returned_and_unknown_ones_dropped() -> None:
    data = json.dumps({**GOOD, "more": {"x": [1, None]}, "unknown": 1}).encode()
    assert decode_json(data, Outer) == {**GOOD, "more": {"x": [1, None]}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "name is 1, expected a text"),
        ({"share": True}, "share is true, expected a number"),
        ({"share": "1"}, 'share is "1", expected a number'),
        ({"inner": []}, "inner is a list, expected an object"),
        ({"inner": {"n": 3}}, "inner.kind is missing"),
        ({"inner": {"n": 11, "kind": "text"}}, "inner.n is 11, expected a number from 0 to 10"),
        ({"inner": {"n": 1.0, "kind": "text"}}, "inner.n is 1.0, expected a whole number"),
        ({"inner": {"n": 1, "kind": "float"}}, "inner.kind is \"float\", expected 'text' or 'integer'"),
        ({"values": [1, None]}, r"values\[1\] is null, expected a number"),
        ({"values": 3}, "values is 3, expected a list"),
        ({"more": 3}, "more is 3, expected"),
        ({"more": {"a b": "\ud800"}}, "more.'a b' holds half of a surrogate pair"),
        ({"more": {"\udfff": 1}}, "more holds half of a surrogate pair"),
        ({"more": {"n": 2**70}}, "more.n does not fit 64 bits"),
    ],
)
def test_wrong_field_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFileError, match=f"^about.json: {message}"):
        decode_json(json.dumps({**GOOD, **change}).encode(), Outer, "about.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe{}", "byte 0 is not UTF-8"),
        (b"[" * 100_000, "nested more than 64 deep"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 64 deep"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1e400}', "a is inf, expected a finite number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[1]", "it is a list, expected an object"),
    ],
    ids=["empty", "bytes", "brackets", "nested", "nan", "huge float", "huge int", "list"],
)
def test_hostile_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidFileError, match=message) as caught:
        decode_json(data, dict[str, Any])
    assert "\n" not in str(caught.value)


@given(plain_json)
def test_any_json_value_round_trips(value: Any) -> None:
    assert decode_json(json.dumps(value).encode(), object) == value


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), plain_json, max_size=4), st.data())
def test_changed_sealed_description_is_refused(fields: dict[str, Any], data: Any) -> None:
    fields.pop("sha256", None)
    sealed = json.loads(json.dumps(seal(fields)))
    assert verify_seal(sealed, "x")
    assert not verify_seal(fields, "x")
    changed = {**sealed, data.draw(st.sampled_from(sorted(sealed))): "another"}
    with pytest.raises(InvalidFileError, match="x does not match its checksum"):
        verify_seal(changed, "x")


class Line(TypedDict):
    n: int
    text: NotRequired[str]


def lines(count: int) -> bytes:
    check, text = "", ""
    for n in range(count):
        line, check = chain_line({"n": n, "text": "ü"}, check)
        text += line
    return text.encode()


def test_chain_round_trips_and_continues() -> None:
    chain = read_chain(lines(3), Line)
    assert chain.records == [{"n": n, "text": "ü"} for n in range(3)]
    assert (chain.end, chain.problem) == (len(lines(3)), None)
    more, _ = chain_line({"n": 3, "text": "ü"}, chain.check)
    assert lines(3) + more.encode() == lines(4)
    assert read_chain(b"", Line).records == []


def test_unfinished_last_line_is_ignored() -> None:
    whole = lines(3)
    for cut in range(len(lines(2)), len(whole)):
        chain = read_chain(whole[:cut], Line)
        assert len(chain.records) == 2
        assert (chain.end, chain.problem) == (len(lines(2)), None)


def test_changed_moved_or_missing_line_ends_the_chain() -> None:
    first, second, third, _ = lines(3).split(b"\n")
    for damaged in (
        [second, third],
        [first, third],
        [first, second.replace(b"1", b"7", 1)],
        [first, b'{"n": 1}'],
        [first, b"x"],
    ):
        chain = read_chain(b"\n".join([*damaged, b""]), Line)
        assert chain.problem is not None
        assert len(chain.records) == (0 if damaged[0] != first else 1)
    flipped = [whole for at in range(len(lines(3)) - 1) for whole in [lines(3)] if whole[at : at + 1] not in b"\n"]
    for at, whole in enumerate(flipped):
        changed = bytearray(whole)
        changed[at] ^= 1
        chain = read_chain(bytes(changed), Line)
        assert chain.records == [{"n": n, "text": "ü"} for n in range(len(chain.records))]
        assert len(chain.records) < 3


def test_lines_without_a_check_pass_if_unchecked() -> None:
    plain = b'{"n": 1}\n{"n": 2}\n'
    assert read_chain(plain, Line).problem == "line 1 has no check"
    assert read_chain(plain, Line, checked=False).records == [{"n": 1}, {"n": 2}]


def test_irregular_files_are_refused_without_blocking(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    assert read_member(tmp_path / "file") == b"content"
    for name in ("link", "fifo", "folder"):
        with pytest.raises((InvalidFileError, IsADirectoryError)):
            read_member(tmp_path / name)
    for name in ("link", "fifo"):
        with pytest.raises(InvalidFileError, match=name):
            open_member(tmp_path / name, "ab")
    with pytest.raises(InvalidFileError, match="null is not a regular file"):
        read_member(Path("/dev/null"))
    with pytest.raises(InvalidFileError, match="file is larger than 3 bytes"):
        read_member(tmp_path / "file", 3)


def test_file_is_verified_by_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert read_checked(path, file_entry(b"content")) == read_checked(path, None) == b"content"
    for other in (b"contens", b"conten", b"content!"):
        with pytest.raises(InvalidFileError, match=r"does not match its checksum|larger than"):
            read_checked(path, file_entry(other))


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_npy_round_trip(values: list[int]) -> None:
    for dtype in ("<i4", "<i8"):
        file = io.BytesIO()
        np.save(file, np.array(values, dtype=dtype))
        assert decode_npy(file.getvalue(), dtype, "x.npy").tolist() == values


def test_npy_with_wrong_size_is_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.arange(3, dtype="<i4"))
    good = file.getvalue()
    huge = good.replace(b"(3,), }" + b" " * 12, b"(1099511627776,), }")
    assert len(huge) == len(good)
    with pytest.raises(InvalidFileError, match="its header says 1,099,511,627,776"):
        decode_npy(huge, "<i4", "x.npy")
    for bad, message in (
        (good[:-1], "bytes of numbers"),
        (good[:40], "damaged header"),
        (b"", "not an array file"),
        (good.replace(b"<i4", b"<f4"), "holds <f4 of 1 dimensions, expected <i4 of one"),
        (good.replace(b"<i4", b"|O4"), r"holds \|O4"),
        (good.replace(b"(3,)", b"(3,1"), "damaged header"),
    ):
        with pytest.raises(InvalidFileError, match=message):
            decode_npy(bad, "<i4", "x.npy")
