"""Trainings by several real processes, against the same training by one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from dgcf.train.shards.rows import dealt

ROOT = Path(__file__).parents[2]
CASES: list[dict[str, Any]] = [
    {"model": model, "settings": settings, "mode": mode}
    for mode in ("columns", "rows")
    for model, settings in (
        ("dgcf", {}),
        ("dgcf", {"edge_dropout": 0.2, "loss": "bpr-hardest", "negatives": 3, "l2": 0.01}),
        ("dgcf", {"loss": "softmax", "negatives": 16, "gates": "shared", "layers": 2}),
        ("lightgcn", {"readout": "last"}),
        ("dgcf-chp", {"epsilon": 0.0}),
    )
]
BY_COLUMNS: list[dict[str, Any]] = [
    {"model": "dgcf", "settings": {"cross": "matrix-free"}, "mode": "columns"},
    {"model": "bpr-mf", "settings": {"loss": "directau"}, "mode": "columns"},
]


def torchrun(processes: int, *arguments: str, restarts: int = 0, **more: Any) -> subprocess.Popen[str]:
    """Start processes that end with the test session's process group."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more.pop("env", {})}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    command += ["--max-restarts", str(restarts), "-m", *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def ended(process: subprocess.Popen[str], seconds: float = 240) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out, err


def compare(processes: int, cases: list[dict[str, Any]], tmp_path: Path) -> None:
    """Assert that each case has the results of one process, to float rounding."""
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    results = tmp_path / "results.json"
    code, _, err = ended(
        torchrun(processes, "tests.train.together", str(tmp_path / "cases.json"), str(results), cwd=ROOT)
    )
    assert code == 0, err[-3000:]
    for case, result in zip(cases, json.loads(results.read_text()), strict=True):
        assert result["epochs"] == 0, case
        assert result["metric"] <= 1e-6, case
        assert max(result["users"], result["items"], result["weights"]) <= 1e-5, (case, result)


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    compare(2, CASES + BY_COLUMNS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3, 4])
def test_any_number_of_processes_trains_as_one(processes: int, tmp_path: Path) -> None:
    compare(processes, CASES + BY_COLUMNS, tmp_path)


@given(st.lists(st.integers(0, 50), min_size=8, max_size=60), st.integers(1, 8))
def test_nodes_are_dealt_out_evenly(entries: list[int], size: int) -> None:
    parts = dealt(np.array(entries), size)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(entries)))
    sums = [sum(entries[node] for node in part) for part in parts]
    assert max(len(part) for part in parts) - min(len(part) for part in parts) <= 1
    assert max(sums) - min(sums) <= max(entries)


def test_nodes_are_dealt_forth_and_back() -> None:
    """Dealt always in the same order, the first process would have the larger node of every turn."""
    entries = np.arange(400)
    assert len({int(entries[part].sum()) for part in dealt(entries, 4)}) == 1


# The command line


@pytest.fixture
def interactions(tmp_path: Path) -> Path:
    """A file of interactions: users like the items of their group."""
    rng = np.random.default_rng(0)
    lines = [
        f"{user},{item}" for user in range(150) for item in range(90) if item % 3 == user % 3 and rng.random() < 0.5
    ]
    (tmp_path / "log.csv").write_text("user,item\n" + "\n".join(lines) + "\n")
    return tmp_path / "log.csv"


TRAIN = ["--preset", "paper", "--no-baselines", "--set", "blend=none", "--set", "dim=16", "--set", "batch_size=256"]


def train(log: Path, out: Path, *more: str, epochs: int = 5) -> list[str]:
    return ["dgcf", "train", str(log), *TRAIN, "--set", f"epochs={epochs}", "--out", str(out), *more]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "best.safetensors")


def assert_close(run: Path, other: Path) -> None:
    ours, expected = weights(run), weights(other)
    assert ours.keys() == expected.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], expected[name], atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["columns", "rows"])
def test_the_command_line_trains_with_several_processes(mode: str, interactions: Path, tmp_path: Path) -> None:
    code, out, err = ended(torchrun(3, *train(interactions, tmp_path / "three", "--shard", mode, "--json")))
    assert code == 0, err[-2000:]
    answer = json.loads(out)  # one object, from the first process alone
    done = subprocess.run([sys.executable, "-m", *train(interactions, tmp_path / "one", "--json")], capture_output=True)
    alone = json.loads(done.stdout)
    assert answer["test"]["recall@20"] == pytest.approx(alone["test"]["recall@20"], abs=1e-6)
    assert_close(tmp_path / "three", tmp_path / "one")


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["columns", "rows"])
def test_a_group_of_one_gpu_trains_as_a_cpu(mode: str, interactions: Path, tmp_path: Path) -> None:
    command = train(interactions, tmp_path / "gpu", "--device", "cuda", "--shard", mode)
    code, _, err = ended(torchrun(1, *command))
    assert code == 0, err[-2000:]
    subprocess.run([sys.executable, "-m", *train(interactions, tmp_path / "cpu", "--device", "cpu")], check=True)
    ours, expected = weights(tmp_path / "gpu"), weights(tmp_path / "cpu")
    for name in ours:
        torch.testing.assert_close(ours[name], expected[name], atol=1e-3, rtol=0)


@pytest.mark.slow
def test_a_training_goes_on_with_another_number_of_processes(interactions: Path, tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    assert ended(torchrun(2, *train(interactions, whole, epochs=60)))[0] == 0
    first = torchrun(3, *train(interactions, resumed, "--shard", "rows", "--save-every", "0", epochs=60))
    wait_for(resumed / "last.safetensors")
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] != 0
    code, _, err = ended(torchrun(2, "dgcf", "train", "--resume", str(resumed), "--no-baselines"))
    assert code == 0, err[-2000:]
    assert "resuming" in err
    assert_close(resumed, whole)


def wait_for(path: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.05)


def rank_of(process: subprocess.Popen[str], rank: int) -> int:
    """Return the process number of a rank."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        names = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in names:
            return int(child)
    raise AssertionError(f"no process of rank {rank} among {children}")


@pytest.mark.slow
def test_all_stop_when_one_is_killed(interactions: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = torchrun(3, *train(interactions, run, "--save-every", "0", epochs=5000))
    wait_for(run / "last.safetensors")
    os.kill(rank_of(process, 2), signal.SIGKILL)
    started = time.monotonic()
    code, _, err = ended(process, 60)
    assert code != 0
    assert time.monotonic() - started < 60
    assert "error: another process of the training ended or does not answer" in err or "Signal 9" in err
    assert "Traceback" not in err.partition("failed (exitcode")[0]  # what follows is torchrun's own


@pytest.mark.slow
def test_a_process_with_other_data_is_refused(interactions: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(interactions.read_text() + "0,0\n1,0\n2,0\n3,0\n")
    script = tmp_path / "chosen.py"
    script.write_text(
        "import os, sys\n"
        f"data = {str(other)!r} if os.environ['RANK'] == '1' else {str(interactions)!r}\n"
        f"sys.argv = ['dgcf', 'train', data, '--no-baselines', '--out', {str(tmp_path / 'run')!r}]\n"
        "from dgcf.cli import main\nmain()\n"
    )
    code, _, err = ended(torchrun(2, "chosen", cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}))
    assert code != 0
    errors = re.findall(r"^error: .*", err, re.MULTILINE)
    assert len(errors) == 1, errors
    assert "process 1 has another dataset" in errors[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_restarts_finish_as_if_nothing_had_happened(interactions: Path, tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert ended(torchrun(2, *train(interactions, whole, epochs=400)))[0] == 0
    process = torchrun(4, *train(interactions, run, "--save-every", "0", epochs=400), restarts=20)
    rng, kills = np.random.default_rng(0), 0
    wait_for(run / "last.safetensors")
    while kills < 10 and process.poll() is None:
        time.sleep(2 + 4 * rng.random())
        try:
            os.kill(rank_of(process, int(rng.integers(4))), signal.SIGKILL)
            kills += 1
        except (AssertionError, ProcessLookupError, FileNotFoundError):
            continue
    code, _, err = ended(process, 500)
    assert code == 0, err[-3000:]
    assert kills == 10
    assert_close(run, whole)
