"""The real service as a process on loopback: started on a free port, and ended by its own id."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from dgcf import client

START_SECONDS, STOP_SECONDS = 90.0, 40.0
READ, WRITE, ADMIN = "read-0123456789abcdef", "write-0123456789abcdef", "admin-0123456789abcdef"
# For limits that the command line does not offer: the same supervisor, with other settings.
WITH_LIMITS = """
import json, sys
from pathlib import Path
from dgcf.cli.streams import secure_streams
from dgcf.serve.server.supervisor import serve
from dgcf.serve.settings import Limits, Refreshing, Settings
model, data, more, limits = sys.argv[1:]
more = json.loads(more)
more["refresh"] = Refreshing(**more.pop("refresh", {}))
settings = Settings(Path(model), Path(data), port=0, **more, limits=Limits(**json.loads(limits)))
secure_streams()
serve(settings, lambda about: print(json.dumps(about), flush=True), print)
"""


class Service:
    """A context manager: ``with Service(model, folder) as service: httpx.get(service.url + "/v1/model")``.

    ``words`` are further options of ``dgcf serve``. ``limits``: fields of ``Limits`` that differ, and ``settings``
    fields of ``Settings``; with them the supervisor is started without the command line. ``prefix``: a command to run
    it with.
    """

    def __init__(
        self,
        model: Path,
        data: Path,
        *words: str,
        limits: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        before: Callable[[], None] | None = None,
    ) -> None:
        self.model, self.data = model, data
        if limits is None:
            command = [sys.executable, "-m", "dgcf", "serve", str(model), "--data", str(data), "--port", "0", "--json"]
            command += words
        else:
            command = [sys.executable, "-c", WITH_LIMITS, str(model), str(data)]
            command += [json.dumps(settings or {}), json.dumps(limits)]
        self._command = [*prefix, *command]
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self._before = before
        self.log_file = data.with_name(f"{data.name}.log")
        self.about: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None

    # -- the process --------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the service and wait until it is ready."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                preexec_fn=self._before,
            )
        try:
            self.about = json.loads(self._first_line())
            if "url" not in self.about:
                raise AssertionError(f"the service did not start: {self.about}")
        except BaseException:
            self.kill()
            raise
        return self

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            raise AssertionError(f"the service did not start: {self.log_file.read_text()}")
        return line

    @property
    def url(self) -> str:
        url: str = self.about["url"]
        return url

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.about["port"])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def workers(self) -> list[int]:
        """Return the ids of the processes of the workers."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the end, and return the exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self) -> int:
        """Stop the service with SIGTERM, and return the exit code."""
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill the supervisor and its workers at once."""
        if self._process is None:
            return
        if self._process.poll() is None:
            for pid in [*self.workers(), self.pid]:
                os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.stop()
        finally:
            self.kill()

    # -- what it does -------------------------------------------------------------------------------------------------

    def get(self, path: str, *, token: str | None = None, **options: Any) -> httpx.Response:
        return self.request("GET", path, token=token, **options)

    def request(self, method: str, path: str, *, token: str | None = None, **options: Any) -> httpx.Response:
        """Send one request on a connection of its own."""
        headers = {**bearer(token), **options.pop("headers", {})}
        with httpx.Client(timeout=30, trust_env=False) as http:
            return http.request(method, self.url + path, headers=headers, **options)

    def client(self, token: str | None = None, **options: Any) -> client.Client:
        return client.Client(self.url, token, trust_env=False, **options)

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log that are JSON."""
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def logged(self, event: str, count: int = 1, seconds: float = 10.0) -> list[dict[str, Any]]:
        """Wait until the log has ``count`` lines of an event, and return them."""
        wait_for(lambda: len([line for line in self.log() if line["event"] == event]) >= count, seconds)
        return [line for line in self.log() if line["event"] == event]


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def tokens_file(folder: Path, *scopes: str) -> Path:
    """Write a file of tokens with these scopes."""
    known = {"read": READ, "write": WRITE, "admin": ADMIN}
    path = folder / "tokens.txt"
    path.write_text("# tokens of the tests\n" + "".join(f"{scope} {known[scope]}\n" for scope in scopes))
    path.chmod(0o600)
    return path


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited {seconds:g} s in vain")
        time.sleep(0.02)
