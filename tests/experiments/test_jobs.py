"""The job layer: every job is run once, waited for while another process has it, and kept when a process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgcf.data.synthetic import planted
from dgcf.errors import ConfigError
from dgcf.experiments import jobs
from dgcf.experiments.jobs import append_line, discard_unstarted, open_run, train_seeds, work, worker_processes
from dgcf.experiments.progress import Progress
from dgcf.files import try_claim
from dgcf.train import SeedJob, resolve, train
from tests.conftest import PROJECT


class Files:
    """A queue of jobs that are files to write, claimed by files beside them."""

    def __init__(self, folder: Path, names: str) -> None:
        self.folder, self.names, self.ran, self.waits = folder, names, "", 0

    def left(self) -> list[str]:
        return [name for name in self.names if not (self.folder / name).exists()]

    @contextmanager
    def claim(self) -> Iterator[str | None]:
        for name in self.left():
            with try_claim(self.folder / f"{name}.claim") as claimed:
                if claimed:
                    yield name
                    return
        yield None

    def run(self, job: str) -> None:
        (self.folder / job).touch()
        self.ran += job

    def waiting(self) -> bool:
        self.waits += 1
        return bool(self.left())


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)


def test_every_job_is_run_once_and_recorded_jobs_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    first, second = Files(tmp_path, "abc"), Files(tmp_path, "abc")
    work(first)
    work(second)
    assert (first.ran, second.ran) == ("ac", "")


def test_job_of_another_process_is_taken_when_its_claim_ends(tmp_path: Path) -> None:
    queue = Files(tmp_path, "ab")
    with try_claim(tmp_path / "a.claim") as claimed:
        assert claimed

        class Releasing(Files):
            def waiting(self) -> bool:
                self.waits += 1
                return self.waits < 3

        other = Releasing(tmp_path, "ab")
        work(other)
    assert (other.ran, other.waits) == ("b", 3), "the claimed job is waited for, not run"
    work(queue)
    assert queue.ran == "a"


def test_interrupted_job_is_left_for_the_next_process(tmp_path: Path) -> None:
    class Interrupted(Files):
        def run(self, job: str) -> None:
            if job == "b":
                raise KeyboardInterrupt
            super().run(job)

    with pytest.raises(KeyboardInterrupt):
        work(Interrupted(tmp_path, "abc"))
    queue = Files(tmp_path, "abc")
    work(queue)
    assert queue.ran == "bc"


def test_finished_seeds_are_yielded_before_the_interruption_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    results: Any = [SimpleNamespace(interrupted=False), SimpleNamespace(interrupted=True)]
    monkeypatch.setattr(jobs, "train_together", lambda *words, **more: results)
    seeds = [SeedJob(seed) for seed in range(2)]
    finished = train_seeds(planted(20, 10), resolve("bpr-mf"), seeds, device="cpu", validate=None)
    assert next(finished) == (seeds[0], results[0])
    with pytest.raises(KeyboardInterrupt):
        next(finished)


def test_run_is_created_then_opened_and_deleted_only_without_a_checkpoint(tmp_path: Path) -> None:
    dataset, recipe = planted(20, 10), resolve("popularity")
    run = open_run(tmp_path / "run", dataset, recipe, seed=0, device="cpu")
    with pytest.raises(ConfigError), discard_unstarted([run], on=ConfigError):
        raise ConfigError("no")
    assert not run.path.exists()
    run = open_run(tmp_path / "run", dataset, recipe, seed=0, device="cpu")
    train(dataset, recipe, device="cpu", run=run)
    with pytest.raises(ConfigError), discard_unstarted([run]):
        raise ConfigError("no")
    assert open_run(tmp_path / "run", dataset, recipe, seed=0, device="cpu").finished


def test_line_replaces_what_a_killed_process_left_of_one(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"first\nsec")
    with path.open("ab") as file:
        append_line(file, len(b"first\n"), b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"


# -- worker processes -------------------------------------------------------------------------------------------------


def wait_for_parent(report: Path, progress: Progress) -> None:
    """Pretend to train until interrupted; write what happened to ``report``."""
    report.write_text("started")
    try:
        while True:
            progress.epoch_ended("job", None)  # type: ignore[arg-type]
            time.sleep(0.02)
    except KeyboardInterrupt:
        report.write_text("interrupted")
        raise


def start_worker(report: str) -> None:
    """Run in the process that is killed."""
    with worker_processes(2, wait_for_parent, [Path(report)], Progress()):
        time.sleep(600)


def await_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_text() != text:
        assert time.monotonic() < deadline, text
        time.sleep(0.05)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_worker_stops_if_its_parent_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "report"
    code = "import sys; from tests.experiments.test_jobs import start_worker; start_worker(sys.argv[1])"
    parent = subprocess.Popen([sys.executable, "-c", code, str(report)], cwd=PROJECT)
    try:
        await_text(report, "started")
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    await_text(report, "interrupted")


def fail(problem: str, progress: Progress) -> None:
    raise ConfigError(problem)


def test_failed_worker_is_noted_and_does_not_stop_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    notes: list[str] = []

    class Notes(Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    with worker_processes(2, fail, ["no such thing"], Notes()):
        pass
    assert notes == ["1 of 2 processes ended before the others, which ran the rest."]
    assert "error: no such thing" in capfd.readouterr().err
    with pytest.raises(ConfigError, match="jobs is 0"), worker_processes(0, fail, [], Progress()):
        pass
