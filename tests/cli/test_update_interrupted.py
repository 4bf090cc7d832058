"""``dgcf update`` that is stopped while it trains: it is resumed to the bytes of the uninterrupted one."""

from __future__ import annotations

import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from dgcf.experiments.train import Options
from dgcf.experiments.update import update
from dgcf.recommend.update import How
from dgcf.train import Observer, Run
from tests.cli.in_process import invoke
from tests.cli.processes import command, environment

STEPS = {"batch_size": 8, "learning_rate": 0.001}
WORDS = ("--device", "cpu", *(word for name, value in STEPS.items() for word in ("--set", f"{name}={value}")))


class _KilledError(Exception):
    """Stands for a process that is killed."""


class Killed(Observer):
    """Raises after some batches, as a kill does: nothing is saved any more."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def batch_done(self) -> None:
        self.left -= 1
        if not self.left:
            raise _KilledError


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, the rows of a day, and the uninterrupted update of the run with them."""
    torch.set_num_threads(1)  # as in the processes, for the same bits
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    pairs = {(user, (user % 4) * 10 + item % 10) for user, item in rng.integers(0, 60, (900, 2))}
    (folder / "old.csv").write_text("user,item\n" + "".join(f"u{user},i{item}\n" for user, item in sorted(pairs)))
    (folder / "new.csv").write_text("user,item\n" + "".join(f"u{n},i{(7 * n) % 40}\nnew,i{n}\n" for n in range(30)))
    settings = ("--preset", "plain", "--set", "dim=8", "--set", "epochs=2", "--set", "batch_size=64", "--device", "cpu")
    invoke("train", folder / "old.csv", *settings, "--out", folder / "run")
    invoke("update", folder / "run", folder / "new.csv", *WORDS, "--out", folder / "whole")
    return folder


def require_same(run: Path, whole: Path) -> None:
    """Resume the run to its end, and compare its weights with those of the uninterrupted one."""
    invoke("train", "--resume", run, "--device", "cpu")
    for name in ("metrics.jsonl", "best.safetensors", "last.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signal_during_training_saves_and_stops(shop: Path, tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    words = command("update", shop / "run", shop / "new.csv", *WORDS, "--out", run)
    streams = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "env": environment(OMP_NUM_THREADS="1")}
    with subprocess.Popen(words, text=True, **streams) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "continuing with the weights of" in line:
                process.send_signal(number)
                break
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert f"dgcf train --resume {run}" in rest
    assert not Run.open(run).finished
    require_same(run, shop / "whole")


def test_kill_after_a_periodic_save_is_resumed(shop: Path, tmp_path: Path) -> None:
    options = Options("cpu", "train", 0.0, (), lambda: nullcontext(Killed(5)), lambda text: None)
    with pytest.raises(_KilledError):
        update(shop / "run", shop / "new.csv", tmp_path / "run", options, How(settings=STEPS))
    require_same(tmp_path / "run", shop / "whole")
