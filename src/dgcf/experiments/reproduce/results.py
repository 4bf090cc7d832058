"""The results: ``results/ID.jsonl`` has one line of JSON for each finished cell, appended whole or not at all.

A crash can leave an incomplete last line. It is not read, and the next line replaces it; a complete line without its
newline is kept. The values of single users are in ``users/FINGERPRINT.npz``. A file in ``.claims`` marks a cell that a
process works on.
"""

from __future__ import annotations

import errno
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ArtifactError, DataError
from dgcf.experiments.jobs import append_line
from dgcf.experiments.reproduce.cells import KINDS, Cell, Line
from dgcf.experiments.reproduce.cells.base import grouped
from dgcf.experiments.reproduce.cells.computed import ComputedLine
from dgcf.files import atomic_file, folder_lock, try_claim
from dgcf.stored import InvalidFileError, check_type, decode_json, decode_npy, open_member, read_member

USERS = "users"
CLAIMS = ".claims"
MOST_BYTES = 2**28
"""The largest file of results, and the most that the values of users take."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Index:
    """Recorded lines by name and by fingerprint; of two lines with one name the later counts."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Line] = {}
        self._by_fingerprint: dict[str, list[Line]] = {}

    def add(self, line: Line) -> None:
        self._by_name[line["experiment"], line["key"]] = line
        self._by_fingerprint.setdefault(line["fingerprint"], []).append(line)

    def lines(self) -> Iterable[Line]:
        """Return the line of every name."""
        return self._by_name.values()

    def find(self, cell: Cell) -> Line | None:
        """Return the line of a cell; None if its data or settings have changed since, or a measure is missing."""
        line = self._by_name.get((cell.experiment, cell.key))
        return line if line is not None and _serves(line, cell) else None

    def same_training(self, cell: Cell) -> Line | None:
        """Return a line of the same training under any name."""
        lines = reversed(self._by_fingerprint.get(cell.fingerprint, []))
        return next((line for line in lines if _serves(line, cell)), None)


def _serves(line: Line, cell: Cell) -> bool:
    return line["fingerprint"] == cell.fingerprint and set(cell.measures) <= set(line.get("measures") or ())


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parsed: dict[Path, tuple[tuple[int, int, int], list[Line]]] = {}

    def path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"

    # -- read -------------------------------------------------------------------------------------------------------

    def lines(self, experiment: str) -> list[Line]:
        """Return the lines of an experiment, in the order in which they were recorded."""
        path = self.path(experiment)
        if not os.path.lexists(path):
            return []
        status = path.lstat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if path not in self._parsed or self._parsed[path][0] != stamp:  # parsed once: each table reads several files
            self._parsed[path] = (stamp, self._parse(path))
        return list(self._parsed[path][1])

    def _parse(self, path: Path) -> list[Line]:
        content = self._read(path)
        whole = content[: _whole_bytes(content)].removesuffix(b"\n")
        lines = []
        for number, text in enumerate(whole.split(b"\n") if whole else [], start=1):
            try:
                lines.append(_parse_line(text))
            except ValueError as problem:
                raise ArtifactError(
                    f"line {number} of {path} is no finished cell ({problem}); restore it from a copy, or delete it."
                ) from problem
        return lines

    def _read(self, path: Path) -> bytes:
        try:
            return read_member(path, MOST_BYTES)
        except (OSError, InvalidFileError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else problem
            raise DataError(f"cannot read {path}: {reason}; see that it is a file you may read.") from problem

    def index(self, experiments: Iterable[str]) -> Index:
        """Return an index of the lines of these experiments."""
        index = Index()
        for experiment in experiments:
            for line in self.lines(experiment):
                index.add(line)
        return index

    # -- write ------------------------------------------------------------------------------------------------------

    def append(self, experiment: str, line: Mapping[str, Any]) -> None:
        """Append the line of a finished cell and flush it to the disk."""
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        path = self.path(experiment)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with folder_lock(self.folder), open_member(path, "ab") as file:
                content = self._read(path)
                end = _whole_bytes(content)
                newline = b"\n" * (end > 0 and content[end - 1] != ord("\n"))
                append_line(file, end, newline + text)
        except InvalidFileError as problem:
            raise DataError(f"cannot write {path}: {problem}; choose another folder for results.") from problem
        except OSError as problem:
            advice = "free some space" if problem.errno in FULL else "see that you may write there"
            raise DataError(f"cannot write {path}: {problem.strerror}; {advice}, then run it again.") from problem

    # -- shared by several processes --------------------------------------------------------------------------------

    @contextmanager
    def claim(self, cells: Iterable[Cell]) -> Iterator[list[Cell]]:
        """Yield those of the cells that no other process works on, and hold them during the block."""
        by_name = grouped(cells, lambda cell: cell.claim)
        with ExitStack() as held:
            claimed = [name for name in by_name if held.enter_context(try_claim(self.folder / CLAIMS / name))]
            yield [cell for name in claimed for cell in by_name[name]]

    def others(self, cells: Iterable[Cell]) -> bool:
        """Return whether any process has claimed cells other than these."""
        folder, own = self.folder / CLAIMS, {cell.claim for cell in cells}
        return folder.is_dir() and any(path.name not in own for path in folder.iterdir())

    # -- users ------------------------------------------------------------------------------------------------------

    def keep_users(self, fingerprint: str, values: Mapping[str, NDArray[Any]]) -> None:
        """Store the values of each user of a training, under both masks, for paired tests."""
        arrays: dict[str, Any] = dict(values)
        with atomic_file(self._users(fingerprint)) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **arrays)

    def users(self, fingerprint: str) -> dict[str, NDArray[Any]] | None:
        """Return what ``keep_users`` stored; None if it is not in this folder."""
        path = self._users(fingerprint)
        if not path.exists():
            return None
        try:
            return _arrays(path)
        except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as problem:
            raise ArtifactError(
                f"{path} does not hold the values of users ({problem}); restore it from a copy, or delete it."
            ) from problem

    def _users(self, fingerprint: str) -> Path:
        return self.folder / USERS / f"{fingerprint}.npz"


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file, all of one length, without allocating by sizes that the file claims."""
    arrays: dict[str, NDArray[Any]] = {}
    with open_member(path) as file, zipfile.ZipFile(file) as members:
        if sum(member.file_size for member in members.infolist()) > MOST_BYTES:
            raise InvalidFileError(f"more than {MOST_BYTES:,} bytes")
        for member in members.infolist():
            name, data = member.filename.removesuffix(".npy"), members.read(member)
            arrays[name] = decode_npy(data, "<i4" if name == "user_idx" else "<f4", name)
    if len({len(values) for values in arrays.values()}) != 1 or not all(
        np.isfinite(values).all() for values in arrays.values()
    ):
        raise InvalidFileError("its arrays are of several lengths, or not of finite numbers")
    return arrays


def _parse_line(text: bytes) -> Line:
    """Return a line of results; raise ValueError if a field is missing or of another type."""
    line = decode_json(text, dict[str, Any])
    cell_type = KINDS.get(str(line.get("kind")))
    check_type(line, cell_type.line_type if cell_type else ComputedLine, surrogates=False)
    if line.get("validation") and type(line.get("best_epoch")) is not int:
        raise InvalidFileError("best_epoch is missing")
    return line


def _whole_bytes(content: bytes) -> int:
    """Return the length of the complete lines. No beginning of a line parses as a line."""
    end = content.rfind(b"\n") + 1
    try:
        _parse_line(content[end:])
    except ValueError:
        return end
    return len(content)
