"""Check text files before DuckDB reads them: valid UTF-8, lines of bounded length, one kind of line ending.

One pass over the file checks it in blocks, in little memory. A file that is gzipped or in another encoding is copied
as plain UTF-8 to a temporary folder in the same pass.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import re
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from dgcf.data.paths import shown
from dgcf.errors import DataError

LONGEST_LINE = 16 << 20
"""Largest length of a line in UTF-8 bytes."""
GROWTH = 100
"""Largest ratio of the unpacked to the packed size of a gzip file …"""
GROWTH_ALLOWED = 256 << 20
"""… unless the unpacked size is below this."""
PACKED = 20
"""Ratio of unpacked to packed size from which on a file consists of repeated rows."""
_BLOCK = 1 << 20
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_CONTROLS = re.compile("[\x80-\x9f]")
_ENCODINGS = {
    "utf8": "utf-8",
    "utf8sig": "utf-8",
    "latin1": "latin-1",
    "iso88591": "latin-1",
    "utf16": "utf-16",
    "utf16le": "utf-16-le",
    "utf16be": "utf-16-be",
    "windows1252": "cp1252",
    "cp1252": "cp1252",
}


@dataclass(frozen=True)
class Text:
    """A checked text file: ``path`` is plain UTF-8; ``packed``: compressed as only repeated rows can be."""

    path: Path
    name: str
    packed: bool = False


def canonical_encoding(name: str) -> str:
    """Return Python's name of a supported encoding."""
    try:
        return _ENCODINGS[re.sub("[-_ ]", "", name.lower())]
    except KeyError:
        raise DataError(
            f"encoding {name!r} is not supported, expected utf-8, latin-1, windows-1252, utf-16, utf-16-le or "
            "utf-16-be."
        ) from None


def plain_text(path: Path, encoding: str, folder: Path) -> Text:
    """Check a file and return it as plain UTF-8: itself, or a copy in ``folder`` if it is packed or encoded."""
    name, encoding = shown(path.name), canonical_encoding(encoding)
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            if head == _ZIP:
                raise DataError(
                    f"{name} is an Excel workbook or a zip archive, expected text or Parquet; save the sheet as CSV, "
                    "or unpack the archive."
                )
            gzipped = head.startswith(_GZIP)
            blocks = _unpacked(path, name, file) if gzipped else _blocks(file)
            if encoding == "utf-8" and not gzipped:
                for _ in _checked(blocks, encoding, name):
                    pass
                return Text(path, name)
            with tempfile.NamedTemporaryFile(dir=folder, suffix=".txt", delete=False) as copy:
                for block in _checked(blocks, encoding, name):
                    copy.write(block)
                size = copy.tell()
            return Text(Path(copy.name), name, packed=gzipped and size > PACKED * path.stat().st_size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise DataError(f"{name} is a damaged gzip file ({problem}); download or compress it again.") from problem
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"{name} needs more temporary disk space; set TMPDIR to a larger disk.") from problem
        raise DataError(
            f"cannot read {shown(path)}: {problem.strerror or problem}; check its permissions."
        ) from problem


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _unpacked(path: Path, name: str, file: BinaryIO) -> Iterator[bytes]:
    """Unpack a gzip file with its checksum; refuse one that grows beyond the limit."""
    limit = max(GROWTH_ALLOWED, GROWTH * path.stat().st_size)
    size = 0
    with gzip.open(file) as stream:
        for block in _blocks(cast(BinaryIO, stream)):
            size += len(block)
            if size > limit:
                raise DataError(
                    f"{name} grows to more than {limit:,} bytes, over {GROWTH} times its size, when it is unpacked; if "
                    "that is right, unpack it first and name the unpacked file."
                )
            yield block


def _checked(blocks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """Decode blocks, check what they hold, and yield them as UTF-8 without a byte order mark."""
    first = next(blocks, b"")
    encoding = _by_mark(first, encoding, name)
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    line, length, endings = 1, 0, _Endings(name)
    for place, block in enumerate(_with_end(first, blocks)):
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as problem:
            if not encoding.startswith("utf-16"):
                _refuse_nul(block.decode("latin-1"), name, line)
            at = line + problem.object[: problem.start].decode(encoding, errors="ignore").count("\n")
            raise DataError(
                f"line {at} of {name} is not {encoding} text; save it as UTF-8 or name its encoding, such as "
                "--encoding windows-1252 or latin-1."
            ) from problem
        if place == 0:
            text = text.removeprefix("\ufeff")
        _refuse_controls(text, encoding, name, line)
        out = text.encode()
        length = _line_length(out, length, name, line)
        endings.add(out)
        line += out.count(b"\n")
        yield out


@dataclass
class _Endings:
    """Line endings so far: DuckDB loses a character after a lone carriage return among line feeds."""

    name: str
    feeds: int = 0
    returns: int = 0
    """Carriage returns without a line feed after them."""
    open: bool = False
    """Whether the last block ended with a carriage return."""

    def add(self, block: bytes) -> None:
        if not block:
            return
        self.feeds += block.count(b"\n")
        self.returns += block.count(b"\r") - block.count(b"\r\n") - (self.open and block.startswith(b"\n"))
        self.open = block.endswith(b"\r")
        if self.feeds and self.returns > self.open:
            raise DataError(
                f"{self.name} mixes line endings (a carriage return stands alone among line feeds); save it with one "
                "kind of line ending."
            )


def _with_end(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield all blocks and an empty one, with which the decoder finishes."""
    yield first
    yield from blocks
    if first:
        yield b""


def _by_mark(first: bytes, encoding: str, name: str) -> str:
    """Return the encoding of the byte order mark; refuse a mark that contradicts the given encoding."""
    if first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise DataError(f"{name} is UTF-32 text, which is not read; save it as UTF-8.")
    if first.startswith(codecs.BOM_UTF8) and encoding != "utf-8":
        raise DataError(f"{name} is UTF-8 text, expected {encoding}; leave --encoding out.")
    marked = _BOMS.get(first[:2])
    if marked is not None and encoding not in ("utf-16", marked):
        raise DataError(f"{name} is UTF-16 text ({marked}), expected {encoding}; pass --encoding utf-16.")
    if marked is None and encoding == "utf-16":
        raise DataError(
            f"{name} has no byte order mark, which UTF-16 text begins with; pass --encoding utf-16-le or utf-16-be."
        )
    return marked or encoding


def _refuse_nul(text: str, name: str, line: int) -> None:
    if "\0" in text:
        at = line + text[: text.index("\0")].count("\n")
        raise DataError(
            f"line {at} of {name} holds a NUL byte, as a binary file does, expected text or Parquet; name its format "
            "with --format, or its encoding with --encoding utf-16-le."
        )


def _refuse_controls(text: str, encoding: str, name: str, line: int) -> None:
    _refuse_nul(text, name, line)
    if encoding == "latin-1" and (control := _CONTROLS.search(text)):
        at = line + text[: control.start()].count("\n")
        raise DataError(
            f"line {at} of {name} holds the byte 0x{ord(control[0]):02x}, which is no letter of latin-1; pass "
            "--encoding windows-1252."
        )


def _line_length(block: bytes, length: int, name: str, line: int) -> int:
    """Return the length of the last line so far; ``length`` is that of the first line in the blocks before."""
    ends = [place for place in (block.find(b"\n"), block.find(b"\r")) if place >= 0]
    if length + min(ends, default=len(block)) > LONGEST_LINE:
        raise DataError(
            f"line {line} of {name} is longer than {LONGEST_LINE >> 20} MiB; is it really a table of users and items?"
        )
    return len(block) - 1 - max(block.rfind(b"\n"), block.rfind(b"\r")) if ends else length + len(block)
