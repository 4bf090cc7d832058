"""Files and folders that appear whole or not at all: written beside, flushed to the disk, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from dgcf.errors import DataError


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Give a path to write to; on success it becomes ``target`` in one step, on failure nothing is left."""
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        os.close(handle)
        beside = Path(name)
        try:
            yield beside
            beside.chmod(0o666 & ~_umask())
            _sync(beside)
            beside.replace(target)
            _sync(target.parent)
        finally:
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(target: Path, *, overwrite: bool = False, also: Collection[str] = ()) -> Iterator[Path]:
    """Give an empty folder to fill; on success it becomes ``target`` in one step, on failure nothing is left.

    A folder that is already there is refused unless ``overwrite``, and even then if it holds anything that the new one
    does not bring along (or that ``also`` names): somebody else's files are never deleted. Of two writers that finish
    together, one wins and the other is told so.
    """
    _refuse_existing(target, overwrite)
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
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
    with locked(target.parent):
        _refuse_existing(target, overwrite)  # again: another process may have finished in the meantime
        foreign = sorted(path.name for path in target.iterdir() if path.name not in ours) if target.exists() else []
        if foreign:
            raise DataError(
                f"{target} holds other things ({', '.join(foreign[:3])}), so it is not replaced; choose another folder."
            )
        if not target.exists():
            beside.rename(target)
            return
        old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".old"))
        try:
            target.rename(old)
            beside.rename(target)
        finally:
            shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def sole_use(folder: Path, called: Path | None = None) -> Iterator[None]:
    """Keep a folder to this process while it works there; another one is refused. A killed process lets go of it.

    ``called`` is what the user calls it, where the folder is an inner one.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system: nobody is told
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
def claimed(path: Path) -> Iterator[bool]:
    """Whether ``path`` is this process's alone: a file that is there meanwhile. A killed process lets go of it.

    Afterwards it is taken away, and its folder too when it was the last one there.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system: everybody is given it
        yield True
        return
    with _explained(path):
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
def locked(folder: Path) -> Iterator[None]:
    """Wait for the folder's advisory lock and hold it, so that two changes of its entries do not interleave."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: the renames alone decide who wins
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except OSError as problem:
        advice = {
            errno.ENOSPC: "free some space or choose another disk",
            errno.EDQUOT: "free some space or choose another disk",
            errno.EFBIG: "free some space or choose another disk",
            errno.EACCES: "choose a folder that you may write to",
            errno.EPERM: "choose a folder that you may write to",
            errno.EROFS: "choose a folder on a disk that is not read-only",
        }.get(problem.errno or errno.ENOSPC, "choose another place")
        # NumPy says "n requested and m written", without a number, when the disk is full.
        full = problem.errno is None and "requested" in str(problem)
        reason = os.strerror(errno.ENOSPC) if full else problem.strerror or problem
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
