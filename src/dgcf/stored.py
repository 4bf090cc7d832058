"""Reading stored files safely: regular files only, checked types, verified checksums.

Every reader of stored files uses this module. Anything wrong with a file raises ``InvalidFileError``, which the reader
turns into one sentence with the name of the folder and advice.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import math
import os
import re
import stat
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import (
    IO,
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

DESCRIPTION_BYTES = 2**24
"""Largest size of a description (``run.json``, ``dataset.json``, …)."""
DEPTH = 64
"""Largest nesting depth of stored JSON."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NPY_HEADER = re.compile(
    rb"\{'descr': '([^']{1,16})', 'fortran_order': (False|True), 'shape': \(([0-9, ]{0,80})\), \} *\n"
)


class InvalidFileError(ValueError):
    """A stored file is damaged, of another type, or not a regular file; the message names the file or the field."""


class UncheckedWarning(UserWarning):
    """The files were written without checksums, so damage may go unnoticed."""


# -- files ------------------------------------------------------------------------------------------------------------


def open_member(path: Path, mode: Literal["rb", "ab"] = "rb") -> IO[bytes]:
    """Open a regular file to read or append; refuse links, FIFOs, sockets and devices without blocking."""
    flags = os.O_RDONLY if mode == "rb" else os.O_WRONLY | os.O_APPEND | os.O_CREAT
    flags |= os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a FIFO without a reader
            raise InvalidFileError(f"{path.name} is a link or a FIFO, expected a regular file") from problem
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InvalidFileError(f"{path.name} is not a regular file")
    return open(handle, mode)  # noqa: PTH123 (from a descriptor)


def read_member(path: Path, limit: int = DESCRIPTION_BYTES) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes."""
    data = _read(path, limit)
    if len(data) > limit:
        raise InvalidFileError(f"{path.name} is larger than {limit:,} bytes")
    return data


def _read(path: Path, limit: int) -> bytes:
    """Return at most ``limit + 1`` bytes; a limit beyond the size of the file takes no memory."""
    with open_member(path) as file:
        return file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)


# -- checksums --------------------------------------------------------------------------------------------------------


class FileEntry(TypedDict):
    """Checksum and size of a file, as its description records them."""

    sha256: str
    bytes: int


def file_entry(data: bytes) -> FileEntry:
    """Return checksum and size of a file's content."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def read_checked(path: Path, entry: FileEntry | None, limit: int | None = None) -> bytes:
    """Return the content of a file, verified by its entry; files of version 0.1 have none."""
    if entry is None:
        return read_member(path, path.lstat().st_size if limit is None else limit)
    if limit is not None and entry["bytes"] > limit:
        raise InvalidFileError(f"{path.name} is larger than {limit:,} bytes")
    data = _read(path, entry["bytes"])
    if file_entry(data) != entry:
        raise InvalidFileError(f"{path.name} does not match its checksum")
    return data


def seal(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with a last field ``sha256``, the checksum of the others."""
    return {**fields, "sha256": _digest(fields)}


def verify_seal(fields: Mapping[str, Any], name: str) -> bool:
    """Return whether decoded fields have a checksum; raise InvalidFileError if it does not match."""
    if "sha256" not in fields:
        return False
    if fields["sha256"] != _digest({key: value for key, value in fields.items() if key != "sha256"}):
        raise InvalidFileError(f"{name} does not match its checksum")
    return True


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


# -- chains of appended lines -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """The intact lines at the beginning of a file: the ``check`` of the last one and their ``end`` in bytes.

    ``problem`` describes the first invalid line. A last line without a line break is unfinished, not a problem.
    """

    records: list[dict[str, Any]]
    check: str = ""
    end: int = 0
    problem: str | None = None
    lines: int = 0
    """Number of lines before ``end``."""


def chain_line(record: Mapping[str, Any], previous: str) -> tuple[str, str]:
    """Return the line of a record and its ``check``: a hash of the record and the check of the line before."""
    text = json.dumps(record, ensure_ascii=False)
    check = hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()[:16]
    return f'{text[:-1]}{", " if len(text) > 2 else ""}"check": "{check}"}}\n', check


def read_chain(
    data: bytes, kind: type[Mapping[str, Any]], *, checked: bool = True, after: Chain | None = None
) -> Chain:
    """Decode lines of ``chain_line``; ``checked=False`` accepts lines without a check.

    ``after`` is the chain read before, if ``data`` continues it.
    """
    records: list[dict[str, Any]] = []
    before = after or Chain([])
    check, end = before.check, before.end
    for line in data.split(b"\n")[:-1]:
        try:
            record = decode_json(line, dict[str, Any])
            stored_check = record.pop("check", None)
            if stored_check is None and checked:
                raise InvalidFileError("has no check")
            if stored_check is not None:
                if chain_line(record, check)[1] != stored_check:
                    raise InvalidFileError("does not match its check")
                check = stored_check
            records.append(typing.cast(dict[str, Any], check_type(record, kind)))
        except InvalidFileError as problem:
            lines = before.lines + len(records)
            return Chain(records, check, end, f"line {lines + 1} {problem}", lines)
        end += len(line) + 1
    return Chain(records, check, end, lines=before.lines + len(records))


# -- typed JSON -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """Smallest and largest value of a number or length of a text, for ``Annotated``."""

    low: float = -math.inf
    high: float = math.inf


NonNegativeInt = Annotated[int, Range(0, 2**62)]
Sha256 = Annotated[str, Range(64, 64)]


def decode_json(data: bytes, kind: type[T], name: str = "") -> T:
    """Decode JSON and check it against ``kind``: a TypedDict, ``dict[str, …]``, ``list[…]`` or a scalar type.

    Fields that ``kind`` does not have are dropped. ``name`` is the name of the file for messages.
    """
    prefix = f"{name}: " if name else ""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as problem:
        raise InvalidFileError(f"{prefix}byte {problem.start} is not UTF-8") from problem
    except RecursionError as problem:
        raise InvalidFileError(f"{prefix}nested more than {DEPTH} deep") from problem
    except ValueError as problem:
        raise InvalidFileError(f"{prefix}not JSON ({problem})") from problem
    return check_type(value, kind, name, surrogates=_SURROGATE.search(data) is not None)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def check_type(value: Any, kind: type[T], name: str = "", *, surrogates: bool = True) -> T:
    """Return decoded JSON or TOML as ``kind``; raise InvalidFileError for a field of another type or range."""
    try:
        return typing.cast(T, _Checker(surrogates).check(value, kind, "", 0))
    except InvalidFileError as problem:
        raise InvalidFileError(f"{name}: {problem}" if name else str(problem)) from None


_WORDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number"}
_WORDS |= {float: "a number", types.NoneType: "null"}


class _Checker:
    def __init__(self, surrogates: bool) -> None:
        self.surrogates = surrogates  # whether to search texts for halves of surrogate pairs

    def check(self, value: Any, kind: Any, where: str, depth: int) -> Any:
        if depth > DEPTH:
            raise InvalidFileError(f"{where[:60]} is nested more than {DEPTH} deep")
        origin = get_origin(kind)
        if kind in (Any, object):
            return self._plain(value, where, depth)
        if is_typeddict(kind):
            return self._fields(value, kind, where, depth)
        if is_dataclass(kind) and isinstance(kind, type):
            return kind(**self._fields(value, kind, where, depth))
        if origin is Annotated:
            inner, *limits = get_args(kind)
            return _within(self.check(value, inner, where, depth), limits, where)
        if origin is NotRequired:
            return self.check(value, get_args(kind)[0], where, depth)
        if origin in (Union, types.UnionType):
            return self._any_of(value, get_args(kind), where, depth)
        if origin is Literal:
            if any(type(value) is type(choice) and value == choice for choice in get_args(kind)):
                return value
            raise InvalidFileError(f"{_of(where)}{_shown(value)}, expected {' or '.join(map(repr, get_args(kind)))}")
        if origin is list:
            (inner,) = get_args(kind)
            _require(value, list, where)
            return [self.check(entry, inner, f"{where}[{at}]", depth + 1) for at, entry in enumerate(value)]
        if origin is dict:
            inner = get_args(kind)[1]
            _require(value, dict, where)
            return {
                self._text(key, where): self.check(value[key], inner, _path(where, key), depth + 1) for key in value
            }
        return self._scalar(value, kind, where)

    def _fields(self, value: Any, kind: Any, where: str, depth: int) -> dict[str, Any]:
        _require(value, dict, where)
        hints = _hints(kind)
        # Not __required_keys__: Python before 3.14 does not see NotRequired where annotations are texts.
        for name, hint in hints.items():
            if get_origin(hint) is not NotRequired and name not in value:
                raise InvalidFileError(f"{_path(where, name)} is missing")
        return {
            name: self.check(value[name], hint, _path(where, name), depth + 1)
            for name, hint in hints.items()
            if name in value
        }

    def _any_of(self, value: Any, kinds: tuple[Any, ...], where: str, depth: int) -> Any:
        problems = []
        for kind in kinds:
            try:
                return self.check(value, kind, where, depth)
            except InvalidFileError as problem:
                problems.append(problem)
        # The member that matched the deepest has the most precise message.
        raise max(problems, key=lambda problem: str(problem).count("."))

    def _plain(self, value: Any, where: str, depth: int) -> Any:
        """Return any JSON value with finite numbers, well-formed text and bounded depth."""
        if self._sound(value, depth):
            return value
        if isinstance(value, dict):  # again, for the name of the field
            return self.check(value, dict[str, Any], where, depth)
        if isinstance(value, list):
            return self.check(value, list[Any], where, depth)
        return self._scalar(value, type(value), where)

    def _sound(self, value: Any, depth: int) -> bool:
        """Return whether a value passes, without tracking names: most are large lists of numbers."""
        kind = type(value)
        if kind is float:
            return math.isfinite(value)
        if kind is list:
            if depth < DEPTH and all(type(entry) is float for entry in value):
                return all(map(math.isfinite, value))
            return depth < DEPTH and all(self._sound(entry, depth + 1) for entry in value)
        if kind is dict:
            return depth < DEPTH and all(
                self._sound(key, depth) and self._sound(entry, depth + 1) for key, entry in value.items()
            )
        if kind is str:
            return not self.surrogates or not any("\ud800" <= sign <= "\udfff" for sign in value)
        return value is None or kind is bool or (kind is int and -(2**63) <= value < 2**64)

    def _scalar(self, value: Any, kind: Any, where: str) -> Any:
        if kind is float and type(value) is int:
            return value
        _require(value, kind, where)
        if isinstance(value, str):
            return self._text(value, where)
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidFileError(f"{_of(where)}{value}, expected a finite number")
        if type(value) is int and not -(2**63) <= value < 2**64:
            raise InvalidFileError(f"{where or 'a number'} does not fit 64 bits")
        return value

    def _text(self, value: str, where: str) -> str:
        if self.surrogates and any("\ud800" <= sign <= "\udfff" for sign in value):
            raise InvalidFileError(f"{where or 'a text'} holds half of a surrogate pair")
        return value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _require(value: Any, kind: type, where: str) -> None:
    if type(value) is not kind:
        raise InvalidFileError(f"{_of(where)}{_shown(value)}, expected {_WORDS.get(kind, kind.__name__)}")


def _within(value: Any, limits: list[Any], where: str) -> Any:
    for limit in limits:
        size = len(value) if isinstance(value, str) else value
        if isinstance(limit, Range) and size is not None and not limit.low <= size <= limit.high:
            what = "length" if isinstance(value, str) else "number"
            raise InvalidFileError(
                f"{_of(where)}{_shown(value)}, expected a {what} from {limit.low:g} to {limit.high:g}"
            )
    return value


def _path(where: str, key: str) -> str:
    shown = key if key.isidentifier() else repr(key[:40])
    return f"{where}.{shown}" if where else shown


def _of(where: str) -> str:
    return f"{where} is " if where else "it is "


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _WORDS[type(value)]
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"


# -- arrays -----------------------------------------------------------------------------------------------------------


def decode_npy(data: bytes, dtype: str, name: str) -> NDArray[Any]:
    """Return the one-dimensional array of an ``.npy`` file; its header is matched by a pattern, not evaluated."""
    if data[:6] != b"\x93NUMPY" or len(data) < 10 or data[6:8] != b"\x01\x00":
        raise InvalidFileError(f"{name} is not an array file")
    start = 10 + int.from_bytes(data[8:10], "little")
    header = _NPY_HEADER.fullmatch(data[10:start])
    if header is None:
        raise InvalidFileError(f"{name} has a damaged header")
    descr, order, shape = (group.decode("ascii", "replace") for group in header.groups())
    sizes = [int(size) for size in shape.split(",") if size.strip()]
    expected = np.dtype(dtype)
    if descr != expected.str or len(sizes) != 1 or order == "True":
        raise InvalidFileError(f"{name} holds {descr} of {len(sizes)} dimensions, expected {expected.str} of one")
    if sizes[0] * expected.itemsize != len(data) - start:
        raise InvalidFileError(f"{name} holds {len(data) - start:,} bytes of numbers, its header says {sizes[0]:,}")
    return np.frombuffer(data, dtype=expected, offset=start).copy()  # torch needs writable arrays
