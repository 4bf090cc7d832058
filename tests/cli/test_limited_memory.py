"""A process with little memory: one sentence with the figures and advice, no files left."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.in_process import invoke
from tests.cli.processes import PLAIN, VERBS, one_sentence, ran, words_of

MB = 1_000_000


def limited(size: int) -> Callable[[], None]:
    """Return a function that sets ``ulimit -v``."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


def test_training_out_of_memory_is_one_sentence(small: Path, tmp_path: Path) -> None:
    words = ("train", small / "data", *PLAIN, "--set", "dim=8192", "--set", "layers=16", "--out", tmp_path / "run")
    done = ran(*words, "--json", preexec_fn=limited(1200 * MB))
    assert done.returncode == 1, done.stderr
    assert "error: not enough memory: " in one_sentence(done.stderr)
    assert json.loads(done.stdout)["error"]["kind"] == "memory"
    assert list(tmp_path.iterdir()) == []


def test_model_above_the_memory_limit_is_refused_by_its_estimate(tmp_path: Path) -> None:
    rows = [f"{n % 300},{n % 12_000}" for n in range(24_000)]
    (tmp_path / "wide.csv").write_text("\n".join(["user,item", *rows, ""]))
    invoke("data", "prepare", tmp_path / "wide.csv", "--out", tmp_path / "wide")
    words = ("train", tmp_path / "wide", "--model", "ease", "--out", tmp_path / "run")
    done = ran(*words, "--device", "cpu", preexec_fn=limited(1500 * MB))
    assert done.returncode == 1, done.stderr
    assert "model ease needs about 1.7 GB of memory for " in one_sentence(done.stderr)
    assert {path.name for path in tmp_path.iterdir()} == {"wide.csv", "wide"}


@pytest.mark.slow
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "update"])
def test_every_verb_works_in_little_memory_or_reports_it(verb: str, small: Path, tmp_path: Path) -> None:
    """With less memory, the libraries abort while they are loaded. DuckDB cannot start its threads beside torch's,
    and crashes, in an update."""
    done = ran(*words_of(verb, small, tmp_path), preexec_fn=limited(1000 * MB))
    assert done.returncode in (0, 1), done.stderr
    if done.returncode:
        assert "memory" in one_sentence(done.stderr)
