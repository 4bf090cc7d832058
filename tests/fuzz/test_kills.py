"""A few kills at system calls; ``python -m tests.fuzz.kills`` makes many."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.fuzz.jobs import Job, read_bytes
from tests.fuzz.kills import Jobs, Measured


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    ("name", "count"), [("prepare-overwrite", 3), pytest.param("train", 1, marks=pytest.mark.slow)]
)
def test_kill_at_a_system_call_leaves_old_or_new_target(name: str, count: int, tmp_path: Path) -> None:
    targets, chance = Jobs(tmp_path), random.Random(0)
    for _ in range(count):
        call = targets.measure(name).draw(chance)
        killed, problems = targets.strike(name, call)
        assert killed, call
        assert not problems, (call, problems)


@pytest.mark.parametrize(("now", "problem"), [("old", ""), ("new", ""), ("ne", "neither"), (None, "gone")])
def test_target_that_is_neither_old_nor_new_is_detected(now: str | None, problem: str, tmp_path: Path) -> None:
    states = {}
    for text in ("old", "new"):
        (tmp_path / "target").write_text(text)
        states[text] = read_bytes(tmp_path / "target")
    measured = Measured("job", Job(0, (), "target", read_bytes), [], states["old"], states["new"], set())
    (tmp_path / "target").write_text(now) if now else (tmp_path / "target").unlink()
    assert problem in " ".join(measured.wrong_after_kill(tmp_path))
    assert bool(problem) == bool(measured.wrong_after_kill(tmp_path))
