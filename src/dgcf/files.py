"""Files and folders that appear whole or not at all: written beside, flushed to the disk, then renamed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dgcf.errors import DataError

# Where there is none (not a POSIX system) nothing is locked, and the renames alone decide who wins.
fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to; on success it becomes ``target`` in one step, on failure nothing is left."""
    with explain_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        with _held(lambda: _new_file(target)) as beside:
            try:
                yield beside
                beside.chmod(0o666 & ~_umask())
                _sync(beside)
                beside.replace(target)
                _sync(target.parent)
            finally:
                beside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(target: Path, *, overwrite: bool = False, also: Collection[str] = ()) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it becomes ``target`` in one step, on failure nothing is left.

    A folder that is already there is refused unless ``overwrite``, and even then if it holds anything that the new one
    does not bring along (or that ``also`` names): other files are never deleted. Of two writers that finish
    together, one wins and the other is refused.
    """
    recover_folder(target)
    _refuse_existing(target, overwrite)
    with explain_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        with _held(lambda: _new_folder(target, ".part")) as beside:
            try:
                yield beside
                beside.chmod(0o777 & ~_umask())
                for path in beside.iterdir():
                    _sync(path)
                _sync(beside)
                _move_folder(beside, target, overwrite, {*also, *(path.name for path in beside.iterdir())})
                _sync(target.parent)
            finally:
                shutil.rmtree(beside, ignore_errors=True)


def _refuse_existing(target: Path, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise DataError(f"{target} is a file, expected a folder to write; choose another name.")
    if not overwrite and target.is_dir() and any(target.iterdir()):
        raise DataError(f"{target} exists already; choose another name, or overwrite it (--overwrite, overwrite=True).")


def _move_folder(beside: Path, target: Path, overwrite: bool, ours: set[str]) -> None:
    with folder_lock(target.parent):
        _refuse_existing(target, overwrite)  # again: another process may have finished in the meantime
        foreign = sorted(path.name for path in target.iterdir() if path.name not in ours) if target.exists() else []
        if foreign:
            raise DataError(
                f"{target} holds other things ({', '.join(foreign[:3])}), so it is not replaced; choose another folder."
            )
        if not target.exists():
            beside.rename(target)
        elif not exchange(beside, target):  # else the caller deletes ``beside``, which is the old folder now
            old = _new_folder(target, ".old")
            target.rename(old)
            beside.rename(target)  # a kill before this line leaves no target: recover_folder restores it
            shutil.rmtree(old, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one step, where the system can: Linux's renameat2 on most file systems."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(other))


def recover_folder(target: Path) -> None:
    """Put back a folder whose replacement was killed between two renames."""
    if target.parent.is_dir() and not target.exists() and _beside(target, ".old"):
        with explain_os_errors(target), folder_lock(target.parent):
            for old in _beside(target, ".old"):
                if not target.exists() and any(old.iterdir()):
                    old.rename(target)


# -- what a killed process left behind --------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(create: Callable[[], Path]) -> Iterator[Path]:
    """Create a file or folder and hold its lock, by which others know that its process is alive."""
    while True:
        path = create()
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # swept away before it was opened
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _lies_at(path, handle):  # else it was swept away before it was locked
            break
        os.close(handle)
    try:
        yield path
    finally:
        os.close(handle)


def _new_file(target: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=_prefix(target), suffix=".part")
    os.close(handle)
    return Path(name)


def _new_folder(target: Path, suffix: str) -> Path:
    return Path(tempfile.mkdtemp(dir=target.parent, prefix=_prefix(target), suffix=suffix))


def _prefix(target: Path) -> str:
    return f".{target.name[:100]}."


def _beside(target: Path, *suffixes: str) -> list[Path]:
    """Return unfinished files and folders of a target, and after them what DuckDB left for these."""
    # mkstemp puts eight characters before the suffix; with more than that it belongs to a target of a longer name.
    ours = re.compile(rf"(tmp_)?{re.escape(_prefix(target))}[a-z0-9_]{{8}}({'|'.join(map(re.escape, suffixes))})")
    with os.scandir(target.parent) as entries:
        return [target.parent / name for name in sorted(entry.name for entry in entries) if ours.fullmatch(name)]


def _sweep(target: Path) -> None:
    """Delete what killed processes left of this target; what a living one writes is locked."""
    if fcntl is None:
        return
    recover_folder(target)
    for path in _beside(target, ".part", ".old"):
        if path.name.startswith("tmp_"):  # DuckDB's, which goes when the file that it is for has gone
            if not path.with_name(path.name.removeprefix("tmp_")).exists():
                path.unlink(missing_ok=True)
            continue
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
            finally:
                os.close(handle)


@contextlib.contextmanager
def exclusive_lock(folder: Path, called: Path | None = None) -> Iterator[None]:
    """Keep a folder to this process while it works there; another one is refused. A killed process lets go of it.

    ``called`` is what the user calls it, where the folder is an inner one.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{called or folder} is in use by another process; wait for it, or stop it first."
            ) from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def try_claim(path: Path) -> Iterator[bool]:
    """Whether ``path`` is this process's alone: a file that is there meanwhile. A killed process lets go of it.

    Afterwards it is taken away, and its folder too when it was the last one there.
    """
    if fcntl is None:
        yield True
        return
    with explain_os_errors(path):
        handle = _opened(path)
    got = False
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            got = _lies_at(path, handle)
        yield got
    finally:
        if got:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # there are others
                path.parent.rmdir()
        os.close(handle)


def _opened(path: Path) -> int:
    while True:
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(parents=True)
        with contextlib.suppress(FileNotFoundError):  # another process took the folder away just now
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _lies_at(path: Path, handle: int) -> bool:
    """Whether an open file is still the one of that name: its last holder may have taken it away before it let go."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait for the folder's advisory lock and hold it, so that two changes of its entries do not interleave."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


ADVICE = {
    errno.ENOSPC: "free some space or choose another disk",
    errno.EDQUOT: "free some space or choose another disk",
    errno.EFBIG: "free some space or choose another disk",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder on a disk that is not read-only",
    errno.ENAMETOOLONG: "choose a shorter name",
}


@contextlib.contextmanager
def explain_os_errors(target: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except OSError as problem:
        number = problem.errno
        if number is None and "requested" in str(problem):
            number = errno.ENOSPC  # NumPy says "n requested and m written", without a number, when the disk is full
        reason = os.strerror(number) if number else str(problem) or type(problem).__name__
        advice = ADVICE.get(number or 0, "choose another place")
        raise DataError(f"cannot write {target}: {reason}; {advice}.") from problem


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
