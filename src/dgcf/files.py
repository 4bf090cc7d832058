"""Atomic writes and locks: files and folders are written to a temporary name, flushed and renamed."""

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

# None if this is not a POSIX system: then nothing is locked, and the last rename wins.
fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of Linux


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to ``target`` on success, delete it on failure."""
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
    """Yield an empty temporary folder to fill; rename it to ``target`` on success, delete it on failure.

    An existing non-empty folder is refused unless ``overwrite`` is set. It is then replaced only if it holds no file
    names other than those of the new folder and ``also``: foreign files are never deleted. Of two concurrent writers
    one succeeds and the other is refused.
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
                for path in beside.rglob("*"):
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


def _move_folder(beside: Path, target: Path, overwrite: bool, own_names: set[str]) -> None:
    with folder_lock(target.parent):
        _refuse_existing(target, overwrite)  # again: another process may have finished meanwhile
        foreign = (
            sorted(path.name for path in target.iterdir() if path.name not in own_names) if target.exists() else []
        )
        if foreign:
            raise DataError(
                f"{target} holds other things ({', '.join(foreign[:3])}), so it is not replaced; choose another folder."
            )
        if not target.exists():
            beside.rename(target)
        elif not exchange(beside, target):  # after an exchange, the caller deletes the old folder at ``beside``
            old = _new_folder(target, ".old")
            target.rename(old)
            beside.rename(target)  # a kill before this line leaves no target: recover_folder restores it
            shutil.rmtree(old, ignore_errors=True)


def exchange(first: Path, second: Path) -> bool:
    """Swap two paths atomically (renameat2 of Linux); return False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if renameat2(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(second))


def recover_folder(target: Path) -> None:
    """Restore a folder if its replacement was killed between two renames."""
    if target.parent.is_dir() and not target.exists() and _beside(target, ".old"):
        with explain_os_errors(target), folder_lock(target.parent):
            for old in _beside(target, ".old"):
                if not target.exists() and any(old.iterdir()):
                    old.rename(target)


# -- temporary files, also those of killed processes ------------------------------------------------------------------


@contextlib.contextmanager
def _held(create: Callable[[], Path]) -> Iterator[Path]:
    """Create a file or folder and hold its lock, which shows others that its process is alive."""
    while True:
        path = create()
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # deleted by a sweep before it was opened
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(path, handle):  # else it was deleted by a sweep before it was locked
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
    """Return the temporary files and folders of a target, then the temporary files of DuckDB for these."""
    # mkstemp puts eight characters before the suffix; with more, the file belongs to a target with a longer name.
    pattern = re.compile(rf"(tmp_)?{re.escape(_prefix(target))}[a-z0-9_]{{8}}({'|'.join(map(re.escape, suffixes))})")
    with os.scandir(target.parent) as entries:
        return [target.parent / name for name in sorted(entry.name for entry in entries) if pattern.fullmatch(name)]


def sweep(target: Path) -> None:
    """Restore a folder if its replacement was killed, and delete what killed writers of a target have left."""
    if target.parent.is_dir():
        with explain_os_errors(target):
            recover_folder(target)
            _sweep(target)


def _sweep(target: Path) -> None:
    """Delete the temporary files of killed processes; those of living processes are locked."""
    if fcntl is None:
        return
    recover_folder(target)
    for path in _beside(target, ".part", ".old"):
        if path.name.startswith("tmp_"):  # of DuckDB: deleted after the file that it belongs to
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
def exclusive_lock(folder: Path, name: Path | None = None) -> Iterator[None]:
    """Hold the lock of a folder; raise DataError if another process holds it. The lock ends with the process.

    ``name`` is the path to show in the message, if it differs from ``folder``.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{name or folder} is in use by another process; wait for it, or stop it first.") from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def try_claim(path: Path) -> Iterator[bool]:
    """Create and lock the file ``path``; yield whether this process holds the claim. It ends with the process.

    A held claim is deleted afterwards, with its folder if that is empty.
    """
    if fcntl is None:
        yield True
        return
    with explain_os_errors(path):
        handle = _open_claim(path)
    held = False
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = _is_at(path, handle)
        yield held
    finally:
        if held:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty
                path.parent.rmdir()
        os.close(handle)


def _open_claim(path: Path) -> int:
    while True:
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(parents=True)
        with contextlib.suppress(FileNotFoundError):  # another process deleted the folder meanwhile
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _is_at(path: Path, handle: int) -> bool:
    """Return whether an open file is still at ``path``: its last holder may have deleted it before closing it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait for the advisory lock of a folder and hold it, so that changes of its entries do not interleave."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


_SPACE = "free some space, or choose another disk"
_PERMISSION = "choose a path that you can read and write"
ADVICE = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: _SPACE,
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "choose a path on a disk that is not read-only",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "give a file, not a folder",
    errno.EEXIST: "choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "close other programs",
    errno.EIO: "check the disk",
}
"""What to do about a refusal of the operating system."""


@contextlib.contextmanager
def explain_os_errors(target: Path) -> Iterator[None]:
    """Turn OSError into a DataError of one sentence."""
    try:
        yield
    except OSError as problem:
        number = problem.errno
        if number is None and "requested" in str(problem):
            number = errno.ENOSPC  # NumPy raises "n requested and m written", without errno, if the disk is full
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
