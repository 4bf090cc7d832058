"""The chunks of a batch: files in a folder beside its target, and a record of their checksums.

``job.json``       the checksum of the job that the chunks belong to; a folder without this file is not ours
``chunks.jsonl``   a line for each complete chunk, written after the chunk is on disk: first user, rows, checksum
``*.parquet``      the chunks, named by their first user
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypedDict, cast

from dgcf.errors import DataError
from dgcf.files import atomic_file, exclusive_lock, explain_os_errors
from dgcf.recommend.container import hash_of
from dgcf.stored import (
    InvalidFileError,
    NonNegativeInt,
    Sha256,
    chain_line,
    decode_json,
    open_member,
    read_chain,
    read_member,
)

JOB, RECORD = "job.json", "chunks.jsonl"
_UNFINISHED = re.compile(r"(tmp_)?\.(job\.json|\d{12}\.parquet)\.[a-z0-9_]{8}\.part")  # of dgcf.files and DuckDB
_OURS = re.compile(rf"job\.json|chunks\.jsonl|\d{{12}}\.parquet|{_UNFINISHED.pattern}")


class _Job(TypedDict):
    kind: Literal["dgcf chunks"]
    job: Sha256


class Chunk(TypedDict):
    """A complete chunk: the index of its first user, its number of rows and its checksum."""

    start: NonNegativeInt
    rows: NonNegativeInt
    sha256: Sha256


@contextlib.contextmanager
def chunks_beside(target: Path, job: str) -> Iterator[Chunks]:
    """Yield the intact chunks of a job from the folder beside its target; delete the folder on success."""
    folder = target.with_name(f".{target.name}.chunks")
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise InvalidFileError(f"{folder.name} is not a folder")
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(folder, target):
            if _job_of(folder) != job:
                _clear(folder)
                with atomic_file(folder / JOB) as beside:
                    beside.write_text(json.dumps({"kind": "dgcf chunks", "job": job}) + "\n")
            yield Chunks(folder)
            _clear(folder)
            with contextlib.suppress(OSError):  # it holds a file that is not ours
                folder.rmdir()
    except InvalidFileError as problem:
        raise DataError(
            f"{folder} exists and does not hold chunks of this job ({problem}); move it away, or choose another --out."
        ) from problem
    except OSError:
        with explain_os_errors(target):
            raise


def sweep_chunks(target: Path) -> None:
    """Delete chunks left by a process that was killed after it wrote its target; keep chunks newer than the target."""
    folder = target.with_name(f".{target.name}.chunks")
    with contextlib.suppress(OSError, InvalidFileError, DataError):
        if not folder.is_dir() or folder.is_symlink():
            return
        with exclusive_lock(folder, target):
            _job_of(folder)  # raises if the folder is not ours
            record = folder / RECORD
            if not record.exists() or record.stat().st_mtime_ns <= target.stat().st_mtime_ns:
                _clear(folder)
                folder.rmdir()


class Chunks(dict[int, Chunk]):
    """The intact chunks of a folder, by their first user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data = read_member(folder / RECORD) if os.path.lexists(folder / RECORD) else b""
        chain = read_chain(data, Chunk)
        self._check = chain.check
        if chain.end != len(data):  # the rest is incomplete or damaged
            with open_member(folder / RECORD, "ab") as file:
                file.truncate(chain.end)
                os.fsync(file.fileno())
        last = {record["start"]: cast(Chunk, record) for record in chain.records}
        super().__init__(
            {start: chunk for start, chunk in last.items() if hash_of(self.path(start)) == chunk["sha256"]}
        )

    def path(self, start: int) -> Path:
        return self.folder / f"{start:012d}.parquet"

    @contextlib.contextmanager
    def new(self, start: int, rows: int) -> Iterator[Path]:
        """Yield a path to write a chunk to; then sync the chunk to disk and add it to the record."""
        path = self.path(start)
        with atomic_file(path) as beside:
            yield beside
        chunk = Chunk(start=start, rows=rows, sha256=hash_of(path) or "")
        line, self._check = chain_line(chunk, self._check)
        with open_member(self.folder / RECORD, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self[start] = chunk


def _job_of(folder: Path) -> str | None:
    """Return the job of a folder of chunks, or None for an empty one; raise for any other folder."""
    if os.path.lexists(folder / JOB):
        return decode_json(read_member(folder / JOB), _Job, JOB)["job"]
    foreign = [path.name for path in folder.iterdir() if not _UNFINISHED.fullmatch(path.name)]
    if foreign:  # otherwise it is new, or its process was killed before writing the first file
        raise InvalidFileError(f"it holds {min(foreign)!r} and no {JOB}")
    return None


def _clear(folder: Path) -> None:
    """Delete our files, job.json last, so that the folder is recognised until it is empty."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == JOB):
        if _OURS.fullmatch(path.name) and not path.is_dir():
            path.unlink()
