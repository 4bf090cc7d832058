"""A full disk: one sentence that names the file and the reason, exit code 1, no partial files."""

from __future__ import annotations

import functools
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import READERS, WRITERS, command, environment, one_sentence, ran, words_of

# Mounts a small file system in its own mount namespace, runs the command there and lists the files that remain.
ON_A_SMALL_DISK = 'mount -t tmpfs -o size="$1" none "$2" && { "${@:3}"; code=$?; ls -A "$2" >&3; exit $code; }'
KEPT_FOR_RESUMING = {
    "tune": {"study"},
    "reproduce": {"prepared"},
    "compare": {"runs"},
    "recommend-all": {".all.csv.chunks"},
}
SAMPLE = ["convert-parquet", "recommend-all", "train"]


@functools.cache
def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    if not can_mount():
        pytest.skip("needs permission to mount in a user namespace")
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def on_full_disk(verb: str, small: Path, disk: Path, size: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Return the finished process and the names of the files on the disk."""
    script = ["unshare", "-rm", "bash", "-c", ON_A_SMALL_DISK, "bash", size, str(disk)]
    with (disk.parent / "left").open("w") as left:
        done = subprocess.run(
            ["bash", "-c", f'exec "$@" 3>&{left.fileno()}', "bash", *script, *command(*words_of(verb, small, disk))],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment(TMPDIR=str(disk.parent)),
            pass_fds=[left.fileno()],
        )
    return done, set((disk.parent / "left").read_text().split())


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=() if verb in SAMPLE else pytest.mark.slow) for verb in WRITERS]
)
def test_full_disk_is_one_sentence_and_leaves_no_partial_files(verb: str, small: Path, disk: Path) -> None:
    done, left = on_full_disk(verb, small, disk, "4k")
    assert done.returncode == 1, done.stderr
    sentence = one_sentence(done.stderr)
    assert "No space left on device" in sentence or "disk is full" in sentence
    assert str(disk) in sentence
    assert left <= KEPT_FOR_RESUMING.get(verb, set())


@pytest.mark.slow
@pytest.mark.parametrize("size", ["8k", "12k", "16k", "24k", "32k"])
@pytest.mark.parametrize("verb", ["train", "tune", "compare", "recommend-all", "export-parquet"])
def test_disk_that_fills_up_later_is_one_sentence(verb: str, size: str, small: Path, disk: Path) -> None:
    done, _ = on_full_disk(verb, small, disk, size)
    assert done.returncode in (0, 1), done.stderr
    if done.returncode:
        one_sentence(done.stderr)


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=() if verb == "export-parquet" else pytest.mark.slow) for verb in WRITERS]
)
def test_file_above_the_size_limit_is_one_sentence(verb: str, small: Path, tmp_path: Path) -> None:
    done = ran(*words_of(verb, small, tmp_path), preexec_fn=small_files)
    assert done.returncode == 1, done.stderr
    one_sentence(done.stderr)
    assert {path.name for path in tmp_path.iterdir()} <= KEPT_FOR_RESUMING.get(verb, set())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["--json", None])
@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=() if verb == "stats" else pytest.mark.slow) for verb in READERS]
)
def test_unwritable_result_is_one_sentence(verb: str, form: str | None, small: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = ran(*words_of(verb, small, small), *([form] if form else []), stdout=full)
    assert done.returncode == 1
    assert one_sentence(done.stderr) == "error: cannot write the result: No space left on device; free some space."


def test_unwritable_remarks_are_ignored(small: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = ran(*words_of("stats", small, small), "--json", stderr=full)
    assert done.returncode == 0
    assert done.stdout.startswith('{"name": ')


if sys.platform != "linux":
    pytestmark = pytest.mark.skip(reason="uses limits and mounts of Linux")
