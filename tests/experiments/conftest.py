"""What the tests of experiments share: the command line as a process that others run beside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def dgcf_popen() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``dgcf_popen("tune", …)`` starts a process and does not wait for it."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dgcf", *map(str, words)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
