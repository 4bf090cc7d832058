"""Atomic files and folders, recovery after kills, and claims."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dgcf import files
from dgcf.errors import DataError
from dgcf.files import atomic_file, atomic_folder, recover_folder, try_claim


def test_claim_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "claims" / "one"
    with try_claim(path) as first:
        with try_claim(path) as second, try_claim(path.with_name("other")) as other:
            assert (first, second, other) == (True, False, True)
        assert path.exists()
    assert not path.parent.exists()
    with try_claim(path) as again:
        assert again


def test_claim_fails_if_file_deleted_while_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before its holder took it away, locked afterwards: another may have made a new one of that name."""
    path = tmp_path / "claims" / "one"
    path.parent.mkdir()
    early = os.open(path, os.O_CREAT)
    path.unlink()
    monkeypatch.setattr("dgcf.files._open_claim", lambda _: early)
    with try_claim(path) as got:
        assert not got
    path.touch()
    monkeypatch.setattr("dgcf.files._open_claim", lambda _: os.open(path, os.O_RDONLY))
    with try_claim(path) as got:
        assert got


def test_concurrent_processes_never_share_a_claim(tmp_path: Path) -> None:
    script = f"""
        import sys
        from pathlib import Path
        from dgcf.files import try_claim
        path, count, done = Path({str(tmp_path)!r}) / "claims" / "one", Path({str(tmp_path)!r}) / "count", 0
        while done < 300:
            with try_claim(path) as got:
                if got:
                    count.write_text(str(int(count.read_text()) + 1))
                    done += 1
    """
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", textwrap.dedent(script)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "900"
    assert not (tmp_path / "claims").exists()


def test_unwritable_claim_is_refused_in_one_sentence() -> None:
    with pytest.raises(DataError, match="cannot write /proc/claims/one"), try_claim(Path("/proc/claims/one")):
        pass


# -- replacing what is there -------------------------------------------------------------------------------------------


def fill(folder: Path, content: str) -> None:
    (folder / "a").write_text(content)


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def exchanges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system can exchange two paths; where it cannot, two renames and a recovery do."""
    if not request.param:
        monkeypatch.setattr("dgcf.files.exchange", lambda one, other: False)
    return bool(request.param)


def test_target_exists_at_all_times_while_overwriting(tmp_path: Path) -> None:
    """A second process looks at the target all the time while it is replaced 200 times."""
    with atomic_folder(tmp_path / "set") as beside:
        fill(beside, "0")
    watch = f"""
        import os
        from pathlib import Path
        target, stop = Path({str(tmp_path)!r}) / "set" / "a", Path({str(tmp_path)!r}) / "stop"
        looks = 0
        print("ready", flush=True)
        while not stop.exists():
            os.stat(target)
            looks += 1
        print(looks)
    """
    watcher = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(watch)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "ready\n"
    for number in range(200):
        with atomic_folder(tmp_path / "set", overwrite=True) as beside:
            fill(beside, str(number))
    (tmp_path / "stop").touch()
    out, err = watcher.communicate(timeout=60)
    assert (int(out) > 200, err) == (True, "")


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", [1, 2, 3])
def test_kill_between_renames_loses_nothing(
    step: int, exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "set"
    with atomic_folder(target) as beside:
        fill(beside, "old")
    count = 0

    def dies(real: Any) -> Any:
        def call(*words: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count >= step:
                raise Killed
            return real(*words, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dies(Path.rename))
        patch.setattr(files, "exchange", dies(files.exchange))
        patch.setattr(files.shutil, "rmtree", lambda *words, **options: None)  # a dead process deletes nothing
        with contextlib.suppress(Killed), atomic_folder(target, overwrite=True) as beside:
            fill(beside, "new")
    recover_folder(target)
    assert (target / "a").read_text() in ("old", "new")
    with atomic_folder(target, overwrite=True) as beside:
        fill(beside, "newer")
    assert (target / "a").read_text() == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_sweep_deletes_files_of_killed_processes_only(tmp_path: Path) -> None:
    script = """
        import os, sys, time
        from pathlib import Path
        from dgcf.files import atomic_file, atomic_folder
        with atomic_file(Path("file")) as beside, atomic_folder(Path("set")) as folder:
            (folder / "a").write_text("part")
            (folder.parent / f"tmp_{beside.name}").write_text("of DuckDB")
            print("ready", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]

    def started() -> subprocess.Popen[str]:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    dead, alive = started(), started()
    dead.kill()
    dead.communicate()
    (tmp_path / ".file.more.12345678.part").write_text("of file.more")
    (tmp_path / ".file.mine.part").write_text("foreign")
    assert len(list(tmp_path.iterdir())) == 8
    try:
        with atomic_file(tmp_path / "file") as beside:
            beside.write_text("whole")
        with atomic_folder(tmp_path / "set") as folder:
            fill(folder, "whole")
        left = sorted(path.name for path in tmp_path.iterdir())
    finally:
        alive.kill()
        alive.communicate()
    assert len([name for name in left if name.startswith(".file.") and name.endswith(".part")]) == 3
    assert len([name for name in left if name.startswith(".set.")]) == 1
    with atomic_file(tmp_path / "file") as beside:
        beside.write_text("again")
    with atomic_folder(tmp_path / "set", overwrite=True) as folder:
        fill(folder, "again")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".file.mine.part", ".file.more.12345678.part", "file", "set"]


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (OSError(28, "x"), "No space left on device; free some space, or choose another disk"),
        (OSError("10 requested and 3 written"), "No space left on device; free some space, or choose another disk"),
        (OSError("strange"), "strange; choose another place"),
        (OSError(5, "x"), "Input/output error; check the disk"),
        (OSError(13, "x"), "Permission denied; choose a path that you can read and write"),
    ],
)
def test_os_error_becomes_one_sentence(problem: OSError, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught, atomic_file(tmp_path / "a"):
        raise problem
    assert str(caught.value) == f"cannot write {tmp_path / 'a'}: {sentence}."
