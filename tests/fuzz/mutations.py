"""Random changes of stored files: damage to bytes, and other content of the same format."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

Tensors = dict[str, Any]  # name: array; "__metadata__": dict

# Unexpected values of a JSON field.
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**6, 2**31, 2**32, 2**53 + 1, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0,
    1e-320, 1e16, 1e300, -1e300, "", "x", "\x00", "\n", "../..", "/dev/zero", "\x1b[31m", "é" * 50, "x" * 5000, "1",
    "nan", "auto", [], {}, [[]], [{}], {"": 0}, {"a": {"b": []}}, [1, 2, 3], ["x"] * 50, [None] * 1000,
]  # fmt: skip
RAW = [b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity", b'"\\ud800"', b'"\xff"', b"[" * 100_000, b'{"a":' * 5000]
RAW += [b"1" * 5000, b"0x1", b"", b"'x'", b"\x00", b"[1,]", b"true false"]
MARK = "\ue000 here \ue000"


# -- damage -----------------------------------------------------------------------------------------------------------


def damaged(rng: Random, data: bytes) -> bytes:
    """Return other bytes: flipped bits, a cut end, a block of zeros, a missing or doubled block, more at the end."""
    content = bytearray(data)
    kind = rng.choice(["flip", "flip", "flip", "flips", "cut", "zeros", "missing", "doubled", "more"])
    at = rng.randrange(len(content) + 1)
    length = rng.choice([1, 4, 16, 512, 4096])
    if kind in ("flip", "flips") and content:
        for _ in range(1 if kind == "flip" else rng.randrange(2, 20)):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del content[at:]
    elif kind == "zeros":
        content[at : at + length] = bytes(len(content[at : at + length]))
    elif kind == "missing":
        del content[at : at + length]
    elif kind == "doubled":
        content[at:at] = content[at : at + length]
    else:
        content += rng.choice([b"\n", b"\0" * length, data[:length], b"{}\n"])
    return bytes(content)


# -- JSON -------------------------------------------------------------------------------------------------------------


def other_json(rng: Random, value: Any) -> bytes:
    """Return JSON text with one field replaced, removed, added, renamed or doubled."""
    paths = _paths(value)
    path = rng.choice(paths)
    kind = rng.choice(["odd", "odd", "odd", "raw", "remove", "add", "rename", "move", "scale"])
    old = _at(value, path)
    if kind == "odd" or (kind == "scale" and (isinstance(old, bool) or not isinstance(old, (int, float)))):
        value = _put(value, path, rng.choice(ODD))
    elif kind == "scale":
        value = _put(value, path, rng.choice([-old, old + 1, old * 2, old / 3, float(old), old * 10**9, str(old)]))
    elif kind == "remove" and path:
        value = _put(value, path, ...)
    elif kind == "rename" and path and isinstance(path[-1], str):
        value = _put(_put(value, path, ...), (*path[:-1], rng.choice(["", "self", "x y", "é", path[-1].upper()])), old)
    elif kind == "move":
        value = _put(value, path, _at(value, rng.choice(paths)))
    elif kind == "add" and isinstance(old, dict):
        value = _put(value, (*path, rng.choice(["x", "self", "model", "format", "sha256", ""])), rng.choice(ODD))
    elif kind == "add" and isinstance(old, list):
        value = _put(value, path, [*old, rng.choice(ODD)])
    else:
        text = json.dumps(_put(value, path, MARK), ensure_ascii=False)
        return text.encode("utf-8", "surrogatepass").replace(
            json.dumps(MARK, ensure_ascii=False).encode(), rng.choice(RAW)
        )
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [path]
    if isinstance(value, dict):
        for key in value:
            paths += _paths(value[key], (*path, key))
    elif isinstance(value, list):
        for place in range(min(len(value), 5)):
            paths += _paths(value[place], (*path, place))
    return paths


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return None if new is ... else new
    if isinstance(value, list):
        changed = list(value)
        if new is ... and len(path) == 1:
            del changed[path[0]]
        else:
            changed[path[0]] = _put(value[path[0]], path[1:], new)
        return changed
    changed_fields = dict(value)
    if new is ... and len(path) == 1:
        changed_fields.pop(path[0], None)
    else:
        changed_fields[path[0]] = new if len(path) == 1 else _put(value[path[0]], path[1:], new)
    return changed_fields


# -- arrays -----------------------------------------------------------------------------------------------------------


def other_array(rng: Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with other numbers, or of another type or shape."""
    kinds = ["number", "number", "number", "shuffle", "dtype", "shape", "shorter", "longer", "empty", "fill", "wrap"]
    kind = rng.choice(kinds)
    flat = array.reshape(-1).copy()
    floating = array.dtype.kind == "f"
    odd: list[Any] = [0, 1, -1, 2, 255, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]
    if floating:
        odd = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e20, 1e-45, 0.0, -1.0]
    with np.errstate(all="ignore"):
        if kind == "number" and flat.size:
            for _ in range(rng.choice([1, 1, 2, 5])):
                flat[rng.randrange(flat.size)] = np.array(rng.choice(odd)).astype(array.dtype)
        elif kind == "wrap" and array.dtype.kind == "i" and flat.size > 4:  # ascending by differences, which wrap
            limits, place = np.iinfo(array.dtype), rng.randrange(1, flat.size - 3)
            flat[place : place + 3] = limits.max, limits.min, -1
        elif kind == "fill":
            flat[:] = np.array(rng.choice(odd)).astype(array.dtype)
        elif kind == "shuffle":
            flat = flat[rng.sample(range(flat.size), flat.size)]
        elif kind == "dtype":
            return array.astype(rng.choice(["<f8", "<f4", "<f2", "<i8", "<i4", "|u1", "<u8", "|b1", ">i4"]))
        elif kind == "shape":
            shapes = [(1, *array.shape), (*array.shape, 1), (array.size,), array.shape[::-1]]
            return array.reshape(rng.choice(shapes))
        elif kind == "shorter" and array.ndim:
            return array[: rng.randrange(len(array) + 1)]
        elif kind == "longer" and array.ndim:
            return np.concatenate([array, array[: rng.randrange(1, 4)]])
        elif kind == "empty":
            return array[:0] if array.ndim else np.zeros(0, array.dtype)
    return flat.reshape(array.shape)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def other_npy(rng: Random, data: bytes) -> bytes:
    """Return an ``.npy`` file with another array, or with a header of another one."""
    if rng.random() < 0.8:
        return npy(other_array(rng, np.load(io.BytesIO(data), allow_pickle=False)))
    lies = [
        (b"(", b"(9999999999999, "), (b"'<i8'", b"'|O'"), (b"'<i8'", b"'<i8,<i8'"), (b"False", b"True"),
        (b"'descr'", b"'desc'"), (b"}", b"} + x"), (b"(", b"(-"), (b"(", b"(__import__('os'),"),
    ]  # fmt: skip
    old, new = rng.choice(lies)
    header = data[10:128].replace(old, new, 1)
    return data[:10] + header[:118].ljust(118) + data[128:]


DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}


def tensors_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of a safetensors file, and its data."""
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), data[start:]


def safetensors(header: bytes | dict[str, Any], data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def other_tensors(rng: Random, data: bytes) -> bytes:
    """Return a safetensors file with another array, without one, or with a wrong header."""
    header, content = tensors_of(data)
    kind = rng.choice(["array"] * 5 + ["drop", "rename", "header", "gap", "length"])
    if kind == "header":
        return safetensors(other_json(rng, header), content)
    if kind == "gap":
        return safetensors(header, content + bytes(rng.choice([1, 8, 4096])))
    if kind == "length":
        lie = rng.choice([0, 1, 2**20, 2**31, 2**63, 2**64 - 1])
        return lie.to_bytes(8, "little") + data[8:]
    arrays = {
        name: np.frombuffer(content[slice(*entry["data_offsets"])], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }
    name = rng.choice(sorted(arrays))
    if kind == "array":
        arrays[name] = other_array(rng, arrays[name])
    elif kind == "drop":
        del arrays[name]
    else:
        arrays[rng.choice(["x", "", "é" * 100, "__x__", f"{name}.{name}"])] = arrays.pop(name)
    return pack_tensors(arrays, header.get("__metadata__"))


def pack_tensors(arrays: dict[str, np.ndarray[Any, Any]], metadata: Any = None) -> bytes:
    codes = {code: name for name, code in DTYPES.items()}
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    content = b""
    for name, array in arrays.items():
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        end = len(content) + little.nbytes
        header[name] = {
            "dtype": codes[little.dtype.str], "shape": list(array.shape), "data_offsets": [len(content), end]
        }  # fmt: skip
        content += little.tobytes()
    return safetensors(header, content)


# -- irregular files, and ZIP -----------------------------------------------------------------------------------------


def no_file(rng: Random, path: Path, elsewhere: Path) -> str:
    """Replace a file by something irregular; ``elsewhere`` is outside its folder."""
    kind = rng.choice(["missing", "folder", "fifo", "link", "loop", "dangling", "/dev/zero", "/dev/null", "/dev/tty"])
    if kind == "link":
        path.rename(elsewhere)
    else:
        path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind != "missing":
        path.symlink_to({"link": elsewhere, "loop": path, "dangling": "nowhere"}.get(kind, kind))
    return kind


def other_zip(rng: Random, members: dict[str, bytes]) -> bytes:
    """Return a ZIP of the members, packed in another way or with a wrong directory."""
    kind = rng.choice(
        ["deflated", "bzip2", "lzma", "twice", "name", "prefix", "comment", "order", "edit", "edit", "edit"]
    )
    content = io.BytesIO()
    methods = {"deflated": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}
    names = list(members)
    if kind == "order":
        rng.shuffle(names)
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.compress_type = methods.get(kind, zipfile.ZIP_STORED) if rng.random() < 0.5 else zipfile.ZIP_STORED
            archive.writestr(info, members[name], info.compress_type)
        if kind == "twice":
            name = rng.choice(names)
            archive.filelist = [entry for entry in archive.filelist if entry.filename != name] * 2
        if kind == "name":
            odd = ["../x", "/etc/passwd", "a/b", "x.pkl", "about.json/", "ABOUT.JSON", "é", "\u202e", "a" * 3000]
            archive.writestr(zipfile.ZipInfo(rng.choice(odd)), b"x")
        if kind == "comment":
            archive.comment = b"x" * rng.choice([1, 100, 65535])
    data = content.getvalue()
    if kind == "prefix":
        return b"MZ" * rng.choice([1, 1000]) + data
    return _edited(rng, data) if kind == "edit" else data


def _edited(rng: Random, data: bytes) -> bytes:
    """Change a number of the directory or of the end record."""
    content = bytearray(data)
    start = struct.unpack("<L", data[-6:-2])[0]
    entries = [place for place in range(start, len(data) - 4) if data[place : place + 4] == b"PK\1\2"]
    place, code = rng.choice([(8, "H"), (10, "H"), (20, "L"), (24, "L"), (28, "H"), (30, "H"), (32, "H"), (42, "L")])
    base = rng.choice(entries)
    if rng.random() < 0.2:
        base, (place, code) = (
            len(data) - 22,
            rng.choice([(4, "H"), (8, "H"), (10, "H"), (12, "L"), (16, "L"), (20, "H")]),
        )
    largest = 2 ** (16 if code == "H" else 32) - 1
    (old,) = struct.unpack_from(f"<{code}", content, base + place)
    new = rng.choice([0, 1, 8, old ^ 1, old + 1, old * 2, largest, largest - 1, rng.randrange(len(data))])
    struct.pack_into(f"<{code}", content, base + place, min(max(new, 0), largest))
    return bytes(content)


Change = Callable[[Random, bytes], bytes]


def other_content(rng: Random, name: str, data: bytes) -> bytes:
    """Return other content of the same format, by a file's name; lines of records keep their number."""
    if name.endswith(".npy"):
        return other_npy(rng, data)
    if name.endswith(".safetensors"):
        return other_tensors(rng, data)
    if name.endswith(".jsonl"):
        lines = data.splitlines()
        place = rng.randrange(len(lines))
        lines[place] = other_json(rng, json.loads(lines[place])).replace(b"\n", b" ")
        return b"\n".join(lines) + b"\n"
    if name.endswith(".json"):
        return other_json(rng, json.loads(data))
    return damaged(rng, data)
