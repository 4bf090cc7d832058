"""An S3-compatible store as a process of its own, on loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

BUCKET = "models-of-tests"
_SERVER = """
import sys, time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Yield the environment in which ``s3://BUCKET`` is an empty bucket."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            environment = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(process.stdout.readline())}",
                "AWS_ACCESS_KEY_ID": "tests",
                "AWS_SECRET_ACCESS_KEY": "geheim-0123456789",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            _do("store.mkdir(sys.argv[1])", environment, BUCKET)
            yield environment
        finally:
            process.kill()


def files(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the files in the bucket."""
    return sorted(_do("print(*store.find(sys.argv[1]), sep='\\n')", environment, BUCKET).split())


def overwrite(environment: Mapping[str, str], name: str, text: str) -> None:
    """Write a text in place of a file."""
    _do("store.pipe(sys.argv[1], sys.argv[2].encode())", environment, name, text)


def _do(code: str, environment: Mapping[str, str], *words: str) -> str:
    """Run a statement on ``store`` in a process that has the environment."""
    script = f"import sys, s3fs\nstore = s3fs.S3FileSystem()\n{code}"
    command = [sys.executable, "-W", "ignore", "-c", script, *words]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=60
    ).stdout
