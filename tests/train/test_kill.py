"""Killed processes: a resumed run ends in the bytes of the uninterrupted one."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgcf.data.dataset import Dataset
from dgcf.random import uniform
from dgcf.train import Run

PROJECT = Path(__file__).resolve().parents[2]
KILLS, EPOCHS = 10, 150


class Nursery:
    """Where training processes come from."""

    def __init__(self, data: Path) -> None:
        command = [sys.executable, "-m", "tests.train.killable", str(data)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT)

    def _hear(self, word: str) -> int:
        assert self.process.stdout is not None
        said, _, number = self.process.stdout.readline().partition(" ")
        assert said == word
        return int(number)

    def start(self, folder: Path) -> int:
        """The process number of a training that is about to make its first step."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        return self._hear("ready")

    def wait(self) -> int:
        """The exit status of that training."""
        return self._hear("ended")


@pytest.fixture
def nursery(tmp_path: Path, dataset: Dataset) -> Iterator[Nursery]:
    made = Nursery(dataset.save(tmp_path / "data"))
    yield made
    made.process.communicate(timeout=60)


def hashes(path: Path) -> dict[str, str]:
    names = ("last.safetensors", "best.safetensors", "metrics.jsonl")
    return {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_run_killed_ten_times_ends_with_the_same_bytes(tmp_path: Path, nursery: Nursery) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    nursery.start(whole)
    began = time.perf_counter()
    assert nursery.wait() == 0
    lasting = time.perf_counter() - began
    reached = []
    for share in uniform(1, "test/kill", KILLS):
        pid = nursery.start(killed)
        time.sleep(share * lasting / KILLS)  # half the training in all, so that ten of them surely fit into it
        os.kill(pid, signal.SIGKILL)
        assert nursery.wait() == -signal.SIGKILL
        reached.append(len(Run.open(killed).metrics()))
    assert 0 < reached[-1] < EPOCHS, f"the kills must strike in mid-training, not at epochs {reached}"
    assert len(set(reached)) > 3
    nursery.start(killed)
    assert nursery.wait() == 0
    assert hashes(killed) == hashes(whole)
