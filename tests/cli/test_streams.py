"""Closed streams, closed readers, closed terminals and signals: only the work decides the exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dgcf.train import Run
from dgcf.train.interrupt import stop_requested
from dgcf.train.run.observer import PlainLines
from tests.cli.processes import VERBS, command, environment, words_of
from tests.conftest import hear_ctrl_c

LONG = ("--set", "epochs=100000", "--set", "patience=0", "--save-every", "1000")


def in_shell(line: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``"$@"`` is the verb."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "bash", *command(*words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(),
    )


def matrix(*sample: tuple[str, str]) -> list[object]:
    """Return each verb with each way of closing streams; those in the sample run by default."""
    cases = [(verb, closing) for verb in VERBS for closing in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-")]
    return [pytest.param(*case, marks=() if case in sample else pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(
    ("verb", "closing"), matrix(("stats", ">&-"), ("recommend", "2>&-"), ("train", "<&- >&- 2>&-"))
)
def test_closed_streams_do_not_change_the_result(verb: str, closing: str, small: Path, tmp_path: Path) -> None:
    done = in_shell(f'"$@" {closing}', *words_of(verb, small, tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for path in tmp_path.rglob("*.json*"):  # no remark was written into a file that got the number of a closed stream
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line)


def test_closed_streams_do_not_hide_a_failure(small: Path) -> None:
    assert in_shell('"$@" >&- 2>&-', "data", "stats", str(small / "absent")).returncode == 1
    assert in_shell('"$@" >&- 2>&-', "data", "stat").returncode == 2


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=() if verb == "stats" else pytest.mark.slow) for verb in VERBS]
)
def test_reader_that_closes_early_is_no_failure(verb: str, small: Path, tmp_path: Path) -> None:
    done = in_shell('"$@" 2>&1 | head -c 1 >/dev/null', *words_of(verb, small, tmp_path))
    assert done.returncode == 0
    assert done.stderr == ""


def test_training_continues_after_the_reader_of_stderr_closed(small: Path, tmp_path: Path) -> None:
    words = words_of("train", small, tmp_path)
    done = in_shell('"$@" --set evaluate_every=1 2> >(head -c 1 >/dev/null)', *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 2


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_training(small: Path, folder: Path, **options: object) -> subprocess.Popen[str]:
    """Start a training without end, and wait for its first epoch."""
    words = [*words_of("train", small, folder), *LONG]
    process: subprocess.Popen[str] = subprocess.Popen(command(*words), text=True, env=environment(), **options)  # type: ignore[call-overload]
    wait_for((folder / "run" / "metrics.jsonl").exists, process)
    return process


@pytest.mark.parametrize("name", [pytest.param("SIGTERM", marks=pytest.mark.slow), "SIGHUP"])
def test_signal_in_training_saves_and_stops(name: str, small: Path, tmp_path: Path) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = in_training(small, tmp_path, **pipes, preexec_fn=default_signals)
    process.send_signal(getattr(signal, name))
    output, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == f"saved. Resume with: dgcf train --resume {tmp_path / 'run'}"
    assert output == ""
    assert Run.open(tmp_path / "run").has_checkpoint


def default_signals() -> None:
    hear_ctrl_c()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_ignored_sighup_stays_ignored_in_training() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requested() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not asked()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stop_requested() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            assert asked()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True])
def test_closed_terminal_stops_training_at_a_checkpoint(ignored: bool, small: Path, tmp_path: Path) -> None:
    """Without ``nohup`` the kernel sends SIGHUP; with it, training continues until SIGTERM."""
    leader, follower = pty.openpty()
    drain = threading.Thread(target=drained, args=(leader,), daemon=True)
    drain.start()

    def in_the_terminal() -> None:
        default_signals()
        os.setsid()
        os.close(os.open(os.ttyname(follower), os.O_RDWR))  # becomes the controlling terminal
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = in_training(small, tmp_path, stdin=follower, stdout=follower, stderr=follower, preexec_fn=in_the_terminal)
    os.close(follower)
    os.close(leader)
    if ignored:
        size = (tmp_path / "run" / "metrics.jsonl").stat().st_size
        wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").stat().st_size > size, process)
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    assert Run.open(tmp_path / "run").has_checkpoint


def drained(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        pass


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.slow)])
def test_signal_outside_training_is_one_sentence(name: str, tmp_path: Path) -> None:
    """Reading is interrupted within DuckDB, which raises an error of its own."""
    with (tmp_path / "big.csv").open("w") as file:
        file.write("user,item\n")
        file.writelines(f"user-{n * 7919 % 99991},item-{n * 104729 % 49999}\n" for n in range(1_000_000))
    (tmp_path / "spill").mkdir()
    process = subprocess.Popen(
        command("data", "prepare", "big.csv", "--out", "set", "--json"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(tmp_path / "spill")),
        preexec_fn=default_signals,
    )
    wait_for(lambda: any((tmp_path / "spill").iterdir()), process)
    process.send_signal(getattr(signal, name))
    output, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stderr == f"stopped by {name}; no partial files remain.\n"
    assert json.loads(output)["error"]["kind"] == "interrupted"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["big.csv", "spill"]


def test_plain_lines_ignore_a_closed_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        lines = PlainLines(stream)
        lines.note("nobody reads this")
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # so that closing it is quiet
    monkeypatch.setattr(sys, "stderr", None)  # as in a process that starts with a closed stream
    PlainLines().note("nor this")
    assert capsys.readouterr().out == ""  # nor to stdout


def test_debug_variable_shows_the_traceback(small: Path) -> None:
    done = subprocess.run(
        command("data", "stats", small / "absent"),
        capture_output=True,
        text=True,
        check=False,
        env=environment(DGCF_DEBUG="1"),
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.splitlines()[-1].startswith("error: there is no file")
