"""Exceptions of libraries: each becomes one sentence with a kind and an exit code."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.cli.failures import Failure, failure_of
from dgcf.errors import ArtifactError, ConfigError, DataError, DgcfError, NotFittedError, StoppedError, hint_of

HUGE = 10**15


def full_of_duckdb() -> None:
    with duckdb.connect() as engine:
        engine.execute("SET memory_limit = '10MB'; SET temp_directory = ''")
        engine.execute("SELECT string_agg(range::VARCHAR, '-' ORDER BY hash(range)) FROM range(3000000)")


def nested() -> None:
    json.loads("[" * 1_000_000)


def copy_into_nowhere(folder: Path) -> None:
    duckdb.sql("SELECT 1 AS x").write_csv(str(folder / "absent" / "x.csv"))


def reported(throw: Callable[[], Any]) -> Failure:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        throw()
    failure = failure_of(caught.value)
    assert failure is not None, caught.value
    assert failure.message.endswith(".")
    assert "\n" not in failure.message
    return failure


@pytest.mark.parametrize(
    ("throw", "requested"),
    [
        (lambda: np.empty(HUGE), "7.11 PiB"),
        (lambda: torch.empty(HUGE), "4,000,000.0 GB"),
        (lambda: bytearray(2**62), ""),
        (full_of_duckdb, ""),
    ],
    ids=["numpy", "torch", "python", "duckdb"],
)
def test_lack_of_memory_names_requested_and_free_memory(throw: Callable[[], Any], requested: str) -> None:
    failure = reported(throw)
    assert (failure.kind, failure.code) == ("memory", 1)
    assert failure.message.startswith("not enough memory")
    assert f"{requested} more were requested" in failure.message or not requested
    assert " are free; use a smaller dataset (" in failure.message


def test_lack_of_gpu_memory_is_lack_of_memory() -> None:
    problem = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …")
    failure = failure_of(problem)
    assert failure is not None
    assert failure.kind == "memory"
    assert "2.00 GiB more were requested" in failure.message


def test_deeply_nested_input_is_one_sentence() -> None:
    assert reported(nested) == Failure("data", "the input is nested too deeply; give a flatter file.")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space, or choose another disk"),
        (errno.EACCES, "choose a path that you can read and write"),
        (errno.ENOENT, "check the path"),
        (errno.EMFILE, "raise the limit of open files (`ulimit -n`)"),
        (errno.EXDEV, "set DGCF_DEBUG=1 to see the traceback"),
    ],
)
def test_system_error_names_its_file_and_advice(number: int, advice: str) -> None:
    import os

    failure = failure_of(OSError(number, os.strerror(number), "some/file"))
    assert failure == Failure("io", f"cannot access some/file: {os.strerror(number)}; {advice}.")
    assert failure_of(OSError(number, os.strerror(number))) == Failure(
        "io", f"the operating system reported an error: {os.strerror(number)}; {advice}."
    )


def test_missing_file_is_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    failure = reported(lambda: (tmp_path / "absent").read_text())
    assert failure.message == f"cannot access {tmp_path / 'absent'}: No such file or directory; check the path."


def test_duckdb_write_error_is_a_system_error(tmp_path: Path) -> None:
    failure = reported(lambda: copy_into_nowhere(tmp_path))
    assert failure.kind == "io"
    assert failure.message.startswith(f"cannot access {tmp_path / 'absent'}")
    assert failure.message.endswith(": No such file or directory; check the path.")


def test_unexpected_error_is_not_explained() -> None:
    assert failure_of(ValueError("x")) is None
    assert failure_of(RuntimeError("x")) is None
    assert failure_of(ImportError("x")) is None


def test_bug_shows_its_traceback_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.data.catalog.is_local", lambda known: {}["x\x1b"])
    done = CliRunner().invoke(application(), ["data", "list", "--json"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert "\x1b" not in done.output
    assert json.loads(done.stdout)["error"]["kind"] == "internal"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (DataError, "data", 1),
        (ConfigError, "config", 2),
        (ArtifactError, "artifact", 1),
        (NotFittedError, "not-fitted", 1),
        (StoppedError, "interrupted", 130),
    ],
)
def test_errors_of_dgcf_have_a_kind_a_code_and_a_hint(kind: type[DgcfError], name: str, code: int) -> None:
    problem = kind("there is a; b; do this.")
    assert (problem.kind, problem.exit_code, problem.hint) == (name, code, "do this.")
    assert failure_of(problem) == Failure(name, "there is a; b; do this.", code)


def test_hint_is_what_follows_the_last_semicolon_else_the_last_sentence() -> None:
    assert hint_of("a is b; did you mean 'c'?") == "did you mean 'c'?"
    assert hint_of("saved. Resume with: x") == "Resume with: x"
    assert hint_of("a is 1.5, expected b.") is None
