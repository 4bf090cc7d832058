"""Fixtures of all tests: a private cache, the public datasets, and the command line as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

# A console keeps the COLUMNS of the moment when it is made, which pytest-xdist sets in its processes, and some tests.
for _size in ("COLUMNS", "LINES"):
    os.environ.pop(_size, None)
import_module("dgcf.cli.terminal")

# The same examples every time, so that a failure is due to a change; `make fuzz` searches new ones.
_common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", _common, max_examples=50, derandomize=True)
settings.register_profile("fuzz", _common, max_examples=300)
# For `make mutants`: a failing example is enough, it need not be shrunk.
settings.register_profile(
    "mutants", _common, max_examples=20, derandomize=True, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

PROJECT = Path(__file__).resolve().parent.parent


def data_home() -> Path:
    return Path(os.environ.get("DGCF_DATA_HOME") or PROJECT.parent / "shared" / "data")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("data"):
        if not (data_home() / marker.args[0]).exists():
            pytest.skip(f"needs {marker.args[0]} under DGCF_DATA_HOME")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a cache of its own."""
    monkeypatch.setenv("DGCF_CACHE", str(tmp_path_factory.mktemp("cache")))
    if data_home().exists():
        monkeypatch.setenv("DGCF_DATA_HOME", str(data_home()))


def hear_ctrl_c() -> None:
    """Restore the handling of SIGINT in a child process; tests that run in the background ignore the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def dgcf() -> Run:
    """Run the command line as a process: ``dgcf("data", "list")``."""

    def run(*words: str | Path, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dgcf", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    return run


@pytest.fixture
def dgcf_json(dgcf: Run) -> Callable[..., dict[str, Any]]:
    """Return the JSON object that a verb prints."""

    def run(*words: str | Path, **options: Any) -> dict[str, Any]:
        done = dgcf(*words, "--json", **options)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert isinstance(result, dict)
        return result

    return run


@pytest.fixture
def refused(dgcf: Run) -> Callable[..., str]:
    """Run a call that must fail with one sentence on stderr and nothing on stdout; return the sentence."""

    def run(*words: str | Path, **options: Any) -> str:
        done = dgcf(*words, **options)
        assert done.returncode not in (0, None), done.stdout
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    return run
