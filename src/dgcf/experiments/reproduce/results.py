"""The results: ``results/ID.jsonl``, one line of JSON for each finished cell, appended whole or not at all.

A line that a crash tore apart is the last one of its file and lacks its end; it is no line, and the next one replaces
it. One that lacks its newline alone is whole. Values of single users are too many for that file; they lie beside, in
``users/FINGERPRINT.npz``. A file in ``.claims`` says that a process is at work on something.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ArtifactError, DataError
from dgcf.experiments.reproduce.recipe import Cell
from dgcf.files import atomic_file, folder_lock, try_claim
from dgcf.stored import InvalidFileError, check_type, decode_json, decode_npy, open_member, read_member

Line = dict[str, Any]
USERS = "users"
CLAIMS = ".claims"
TRAINED = ("trial", "trained")
"""The kinds that are trained, in the order of work."""
MOST_BYTES = 2**28
"""The largest file of results, and the most that values of users take."""


class Finished(TypedDict):
    """What every line has."""

    experiment: str
    key: str
    kind: str
    fingerprint: str
    data: dict[str, Any]
    seconds: float
    hardware: dict[str, Any]
    measures: NotRequired[dict[str, Any] | None]


Means = TypedDict("Means", {"recall@20": float, "ndcg@20": float})
Tests = TypedDict("Tests", {"train": Means, "train+validation": NotRequired[Means]})


class Tried(Finished):
    """The line of a trial; one that could not be trained has no validation."""

    settings: NotRequired[dict[str, Any] | None]
    validation: dict[str, float] | None
    best_epoch: NotRequired[int | None]


class Trained(Tried):
    """The line of a training."""

    test: Tests
    epochs: int
    seed: int


class Computed(Finished):
    """The line of what is computed without training."""

    computed: dict[str, Any]


KINDS: dict[str, type[Finished]] = {"trial": Tried, "trained": Trained}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Index:
    """Finished cells by name and by what they are; of a cell that was computed twice the later counts."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Line] = {}
        self._by_fingerprint: dict[str, list[Line]] = {}

    def add(self, line: Line) -> None:
        self._by_name[line["experiment"], line["key"]] = line
        self._by_fingerprint.setdefault(line["fingerprint"], []).append(line)

    def lines(self) -> Iterable[Line]:
        """The line of every name."""
        return self._by_name.values()

    def find(self, cell: Cell) -> Line | None:
        """The cell's own line, unless it is of other data or settings than the recipe has now, or lacks a measure."""
        line = self._by_name.get((cell.experiment, cell.key))
        return line if line is not None and _serves(line, cell) else None

    def same_training(self, cell: Cell) -> Line | None:
        """A line of the same training under any name."""
        lines = reversed(self._by_fingerprint.get(cell.fingerprint, []))
        return next((line for line in lines if _serves(line, cell)), None)


def _serves(line: Line, cell: Cell) -> bool:
    return line["fingerprint"] == cell.fingerprint and set(cell.measures) <= set(line.get("measures") or ())


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, tuple[tuple[int, int, int], list[Line]]] = {}

    def path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"

    # -- read -------------------------------------------------------------------------------------------------------

    def lines(self, experiment: str) -> list[Line]:
        """The finished cells of an experiment, in the order in which they were finished."""
        path = self.path(experiment)
        if not os.path.lexists(path):
            return []
        status = path.lstat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if (
            path not in self._known or self._known[path][0] != stamp
        ):  # every table reads several files, most of them again
            self._known[path] = (stamp, self._parsed(path))
        return list(self._known[path][1])

    def _parsed(self, path: Path) -> list[Line]:
        content = self._content(path)
        whole = content[: _whole_bytes(content)].removesuffix(b"\n")
        found = []
        for number, text in enumerate(whole.split(b"\n") if whole else [], start=1):
            try:
                found.append(_line(text))
            except ValueError as problem:
                raise ArtifactError(
                    f"line {number} of {path} is no finished cell ({problem}); restore it from a copy, or delete it."
                ) from problem
        return found

    def _content(self, path: Path) -> bytes:
        try:
            return read_member(path, MOST_BYTES)
        except (OSError, InvalidFileError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else problem
            raise DataError(f"cannot read {path}: {reason}; see that it is a file you may read.") from problem

    def index(self, experiments: Iterable[str]) -> Index:
        """All finished cells of these experiments, to look among."""
        found = Index()
        for experiment in experiments:
            for line in self.lines(experiment):
                found.add(line)
        return found

    # -- written ----------------------------------------------------------------------------------------------------

    def append(self, experiment: str, line: Mapping[str, Any]) -> None:
        """Add a finished cell; when this returns, it is on the disk."""
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        path = self.path(experiment)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with folder_lock(self.folder), open_member(path, "ab") as file:
                content = self._content(path)
                end = _whole_bytes(content)
                file.truncate(end)
                file.write(b"\n" * _lacks_newline(content[:end]) + text)
                file.flush()
                os.fsync(file.fileno())
        except InvalidFileError as problem:
            raise DataError(f"cannot write {path}: {problem}; choose another folder for results.") from problem
        except OSError as problem:
            advice = "free some space" if problem.errno in FULL else "see that you may write there"
            raise DataError(f"cannot write {path}: {problem.strerror}; {advice}, then go on.") from problem

    # -- shared by several processes --------------------------------------------------------------------------------

    @contextmanager
    def claim(self, cells: Iterable[Cell]) -> Iterator[list[Cell]]:
        """Those of the cells that this process alone is at work on, whatever they are called."""
        by_name: dict[str, list[Cell]] = {}
        for cell in cells:
            by_name.setdefault(_claim(cell), []).append(cell)
        with ExitStack() as held:
            got = [name for name in by_name if held.enter_context(try_claim(self.folder / CLAIMS / name))]
            yield [cell for name in got for cell in by_name[name]]

    def others(self, cells: Iterable[Cell]) -> bool:
        """Whether anything but these cells is claimed, as far as can be seen."""
        folder, own = self.folder / CLAIMS, set(map(_claim, cells))
        return folder.is_dir() and any(path.name not in own for path in folder.iterdir())

    # -- users ------------------------------------------------------------------------------------------------------

    def keep_users(self, fingerprint: str, values: Mapping[str, NDArray[Any]]) -> None:
        """The values of each user of one training, under both masks, for paired tests."""
        arrays: dict[str, Any] = dict(values)
        with atomic_file(self._users(fingerprint)) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **arrays)

    def users(self, fingerprint: str) -> dict[str, NDArray[Any]] | None:
        """What ``keep_users`` kept, or None where it was not kept here."""
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


def together(cell: Cell) -> str:
    """One name for all that differs by name and seed alone, which may be trained side by side, as trials or not."""
    if cell.kind not in TRAINED:
        return cell.fingerprint
    return hashlib.sha256(json.dumps(cell.group).encode()).hexdigest()[:16]


def _claim(cell: Cell) -> str:
    """One name for one training, whichever cells it is for."""
    return f"{together(cell)}-{cell.seed}"


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file: one number for each user, as many in each; no claimed size takes memory."""
    found: dict[str, NDArray[Any]] = {}
    with open_member(path) as file, zipfile.ZipFile(file) as members:
        if sum(member.file_size for member in members.infolist()) > MOST_BYTES:
            raise InvalidFileError(f"more than {MOST_BYTES:,} bytes")
        for member in members.infolist():
            name, data = member.filename.removesuffix(".npy"), members.read(member)
            found[name] = decode_npy(data, "<i4" if name == "user_idx" else "<f4", name)
    if len({len(values) for values in found.values()}) != 1 or not all(map(_finite, found.values())):
        raise InvalidFileError("its arrays are of several lengths, or not of finite numbers")
    return found


def _finite(values: NDArray[Any]) -> bool:
    return bool(np.isfinite(values).all())


def _line(text: bytes) -> Line:
    """A finished cell as it was written; a ValueError says what it lacks."""
    line = decode_json(text, dict[str, Any])
    check_type(line, KINDS.get(str(line.get("kind")), Computed), surrogates=False)
    if line.get("validation") and type(line.get("best_epoch")) is not int:
        raise InvalidFileError("best_epoch is missing")
    return line


def _whole_bytes(content: bytes) -> int:
    """Up to where it consists of whole lines; no beginning of a line is one."""
    end = content.rfind(b"\n") + 1
    try:
        _line(content[end:])
    except ValueError:
        return end
    return len(content)


def _lacks_newline(content: bytes) -> bool:
    return bool(content) and not content.endswith(b"\n")
