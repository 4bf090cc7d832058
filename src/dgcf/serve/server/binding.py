"""What is checked before workers are started: packages, model, address, data folder."""

from __future__ import annotations

import errno
import os
import socket
from importlib.util import find_spec
from pathlib import Path

from dgcf.errors import ConfigError, DataError
from dgcf.files import explain_os_errors, fcntl
from dgcf.serve.server.handover import StartError

PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")
LOCK = "service.lock"
BACKLOG = 2048


def require_packages() -> None:
    """Raise ConfigError if the extra ``serve`` is not installed, or the system cannot pass sockets to processes."""
    if os.name != "posix":
        raise ConfigError("the service runs on Linux and macOS; on Windows, run it in WSL or a container.")
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        raise ConfigError(f"the service needs {' and '.join(absent)}; install it with: pip install 'dgcf[serve]'.")


def require_model(model: Path) -> None:
    """Raise DataError if there is nothing at the path of the model."""
    if not model.exists():
        raise DataError(f"there is no model {model}; give a run folder of `dgcf train` or a .dgcf file.")


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound and accepts connections into its queue."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"the host {host!r} is unknown; give --host an address of this machine.") from None
    family, kind, protocol, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as problem:
        sock.close()
        raise _refused(problem, host, port) from problem
    return sock


def _refused(problem: OSError, host: str, port: int) -> StartError:
    if problem.errno == errno.EADDRINUSE:
        return StartError(f"port {port} of {host} is in use; give --port another one, or 0 for any that is free.")
    if problem.errno in (errno.EACCES, errno.EPERM):
        return StartError(f"port {port} needs the rights of root; give --port one above 1023, behind a proxy.")
    if problem.errno == errno.EADDRNOTAVAIL:
        return StartError(f"{host} is no address of this machine; give --host 127.0.0.1, or 0.0.0.0 for all networks.")
    return StartError(f"cannot listen at {host} port {port}: {problem.strerror}; give another --host or --port.")


def url_of(host: str, sock: socket.socket) -> str:
    """Return the address of the service for this machine."""
    port = sock.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)  # nosec B104
    return f"http://{name}:{port}"


def default_data(model: Path) -> Path:
    """Return the data folder of a model that is served without ``--data``: a folder beside it."""
    path = Path(os.path.abspath(model.expanduser()))  # noqa: PTH100 (a link keeps its own name)
    return path.with_name(f"{path.name.removesuffix('.dgcf')}-service")


class DataFolder:
    """The folder of the events, with a lock that shows whether another service uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shared = False
        """Whether another service uses the folder too."""
        with explain_os_errors(path):
            path.mkdir(0o700, parents=True, exist_ok=True)
            self._handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if fcntl is None:
            return
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.shared = True
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self._handle)
