"""The process of a worker, as the supervisor sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import dgcf
from dgcf.serve.events.address import VARIABLE as EVENTS_VARIABLE
from dgcf.serve.server.handover import Channel
from dgcf.serve.server.tokens import FILE_VARIABLE, VARIABLES

# One thread computes; more would only take turns with the requests of other workers.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
KILL_SECONDS = 10.0
_SECRET = (FILE_VARIABLE, *VARIABLES.values(), EVENTS_VARIABLE)
"""What a worker gets over its channel instead."""


class WorkerProcess:
    """A worker that was started; ``since``: when. ``failed``: what it reported before it ended."""

    def __init__(self, number: int, listening: int, shared: int) -> None:
        self.number = number
        self.ready = False
        self.failed: dict[str, str] | None = None
        self.since = time.monotonic()
        ours, theirs = socket.socketpair()
        descriptors = (listening, theirs.fileno(), shared)
        # -P: the folder that the service is started in holds no code for it.
        words = [sys.executable, "-P", "-m", "dgcf.serve.server.worker", *map(str, descriptors)]
        self._process = subprocess.Popen(  # nosec B603 # no shell
            words, stdin=subprocess.DEVNULL, stdout=2, pass_fds=descriptors, env=environment()
        )
        theirs.close()
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def finish(self) -> None:
        """Wait for the end of the process, which has closed its channel; kill it if it does not end."""
        self.channel.close()
        try:
            self._process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def end_in_words(self) -> str:
        """Return how the process ended."""
        code = self._process.returncode
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def environment() -> dict[str, str]:
    """Return the environment of a worker: one thread for linear algebra unless it says otherwise, and no tokens."""
    kept = {name: value for name, value in os.environ.items() if name not in _SECRET}
    package = str(Path(dgcf.__file__).parents[1])
    kept["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [kept.get("PYTHONPATH")])])
    for name in THREADS:
        kept.setdefault(name, "1")
    kept.setdefault("MALLOC_ARENA_MAX", "2")  # glibc's arenas for each thread would hold memory that nobody uses
    return kept
