"""Paths given by users: how they are resolved, checked and shown in messages."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgcf.errors import DataError


def local_path(source: str | Path) -> Path:
    """Return the path of a name: the name itself if it exists, else with ``~`` expanded.

    A name that the file system cannot look up (not UTF-8, too long, no permission) is refused.
    """
    path = require_utf8(Path(source))
    if not _exists(path) and str(source).startswith("~"):
        try:
            path = path.expanduser()
        except RuntimeError:  # there is no such user
            return path
        _exists(path)
    return path


def is_read(source: Any) -> bool:
    """Return whether a source has rows to read: it is neither prepared, in memory or in a folder, nor a known name."""
    if not isinstance(source, str | Path):
        return not hasattr(source, "fingerprint")
    path = Path(source)
    return not (path / "dataset.json").is_file() and (path.exists() or glob.has_magic(str(source)))


def absolute_source(source: str) -> str:
    """Return the absolute path of a source on disk, and any other name unchanged."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def require_utf8(path: Path) -> Path:
    """Return the path; refuse a name that is not UTF-8, which neither DuckDB nor JSON can hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DataError(f"the name {shown(path)} is not UTF-8 text; rename the file or folder.") from None
    return path


def shown(path: str | Path) -> str:
    """Return a name with line breaks escaped, for a message of one line; the terminal escapes other characters."""
    return str(path).replace("\n", "\\n").replace("\r", "\\r")


def shorten(text: str) -> str:
    """Return a value of the data in quotes, shortened, as one line."""
    return repr(text if len(text) <= 40 else text[:40] + "…")


def listed(names: Sequence[str]) -> str:
    """Return the first names of columns, shortened, as one line."""
    more = ["…"] if len(names) > 8 else []
    return ", ".join([*(shown(name[:40]) for name in names[:8]), *more])


def partitioned_below(files: list[Path], base: Path) -> bool:
    """Return whether all files are in folders ``key=value`` with the same keys below ``base``, as Hive writes them."""
    keys = {tuple(_keys(path.relative_to(base).parent)) for path in files}
    if len(keys) != 1 or keys == {()}:
        return False
    if _keys(base.absolute()):
        raise DataError(
            f"{shown(base)} holds folders named key=value and lies below another one, which would be read as a "
            "column too; move or rename it."
        )
    return True


def _keys(folder: Path) -> list[str]:
    return [part.partition("=")[0] for part in folder.parts if "=" in part]


def _exists(path: Path) -> bool:
    try:
        path.stat()
        if path.is_dir():
            os.scandir(path).close()
    except ValueError:
        raise DataError(f"the name {shown(path)} holds a NUL byte, which no file name has; check it.") from None
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        name = shown(path) if len(str(path)) < 200 else f"{shown(path)[:200]}…"
        raise DataError(f"cannot read {name}: {problem.strerror}; check the name and its permissions.") from problem
    return True
