"""Claims: one process at a time, whichever comes and goes, and nothing is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dgcf.errors import DataError
from dgcf.files import claimed


def test_one_has_it_and_the_next_when_that_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "new" / "claims" / "one"
    with claimed(path) as first:
        with claimed(path) as second, claimed(path.with_name("other")) as other:
            assert (first, second, other) == (True, False, True)
        assert path.exists()
    assert not path.parent.exists()
    with claimed(path) as again:
        assert again


def test_a_claim_that_was_taken_away_while_one_waited_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before its holder took it away, locked afterwards: another may have made a new one of that name."""
    path = tmp_path / "claims" / "one"
    path.parent.mkdir()
    early = os.open(path, os.O_CREAT)
    path.unlink()
    monkeypatch.setattr("dgcf.files._opened", lambda _: early)
    with claimed(path) as got:
        assert not got
    path.touch()
    monkeypatch.setattr("dgcf.files._opened", lambda _: os.open(path, os.O_RDONLY))
    with claimed(path) as got:
        assert got


def test_processes_that_come_and_go_never_have_it_together(tmp_path: Path) -> None:
    script = f"""
        import sys
        from pathlib import Path
        from dgcf.files import claimed
        path, count, done = Path({str(tmp_path)!r}) / "claims" / "one", Path({str(tmp_path)!r}) / "count", 0
        while done < 300:
            with claimed(path) as got:
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


def test_where_nothing_can_be_written_it_is_one_sentence() -> None:
    with pytest.raises(DataError, match="cannot write /proc/claims/one"), claimed(Path("/proc/claims/one")):
        pass
