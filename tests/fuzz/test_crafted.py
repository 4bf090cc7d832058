"""A sample of crafted files; ``python -m tests.fuzz.crafted`` makes as many as there is time for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.crafted import Fuzzer


def test_crafted_files_are_refused_in_one_line_or_harmless(tmp_path: Path) -> None:
    refused, failures = Fuzzer(tmp_path, seed=0).run(30)
    assert failures == []
    assert refused > 15


@pytest.mark.slow
def test_many_crafted_files_are_refused_in_one_line_or_harmless() -> None:
    command = [sys.executable, "-m", "tests.fuzz.crafted", "--count", "5000", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("crafted files: 5000, refused: ")
