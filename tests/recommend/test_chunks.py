"""The chunks of a batch: only its own, only intact ones, and the same bytes however often it was stopped."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dgcf.errors import DataError
from dgcf.ranking.topk import NumpyBackend
from dgcf.recommend import Recommender, artifact
from dgcf.recommend.batch import Batch
from dgcf.recommend.chunks import sweep_chunks
from dgcf.recommend.export import export


class StoppedError(Exception):
    pass


class Stopping(NumpyBackend):
    """Stops after some chunks."""

    def __init__(self, chunks: int) -> None:
        self.left = chunks

    def candidates(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise StoppedError
        return super().candidates(*arguments)


@pytest.fixture
def batch(fitted: Recommender) -> Batch:
    return Batch(fitted.snapshot, 4, chunk=25)  # six chunks


def stop(batch: Batch, target: Path, chunks: int = 4) -> Path:
    """Leave some chunks behind; return their folder."""
    with pytest.raises(StoppedError):
        batch.write(target, backend=Stopping(chunks))
    return target.with_name(f".{target.name}.chunks")


def count(path: Path) -> int:
    with path.open() as file:
        return sum(1 for _ in file) - 1


@pytest.mark.parametrize("name", ["g[1]", "g*", "g?", "g[12]", "a'b", "{x}", "~home", "file:x"])
def test_path_with_glob_characters_is_literal(
    batch: Batch, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks of other folders were joined: 8 foreign rows in place of 298,580."""
    monkeypatch.chdir(tmp_path)  # relative, as people type it
    for other in ("g1", "gx"):
        folder = tmp_path / other / ".o.csv.chunks"
        folder.mkdir(parents=True)
        for start in range(0, 150, 25):
            duckdb.sql("SELECT 'foreign' AS user").write_parquet(str(folder / f"{start:012d}.parquet"))
    result = batch.write(Path(name) / "o.csv")
    assert result["rows"] == count(tmp_path / name / "o.csv") == 600
    export(batch.snapshot, Path(name) / "tables", "parquet")
    assert sorted(path.name for path in (tmp_path / name / "tables").iterdir()) == ["items.parquet", "users.parquet"]


@pytest.mark.parametrize("name", ["a\\b[1]", "\udcff"])
def test_unreadable_target_name_is_refused_before_ranking(batch: Batch, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError):
        batch.write(tmp_path / name / "o.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["notes.txt", "000000000000.parquet", "job", "job.json"])
def test_foreign_folder_in_place_of_chunks_is_kept(batch: Batch, tmp_path: Path, content: str) -> None:
    folder = tmp_path / ".all.csv.chunks"
    folder.mkdir()
    (folder / content).write_text("mine")
    with pytest.raises(DataError, match="exists and does not hold chunks of this job"):
        batch.write(tmp_path / "all.csv")
    assert (folder / content).read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.parametrize("make", [lambda path: path.write_text("mine"), lambda path: path.symlink_to("elsewhere")])
def test_file_or_link_in_place_of_chunks_is_kept(batch: Batch, tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "elsewhere").mkdir()
    make(tmp_path / ".all.csv.chunks")
    with pytest.raises(DataError, match="is not a folder"):
        batch.write(tmp_path / "all.csv")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_foreign_file_among_chunks_is_kept(batch: Batch, tmp_path: Path) -> None:
    folder = stop(batch, tmp_path / "all.csv")
    (folder / "mine.txt").write_text("mine")
    batch.write(tmp_path / "all.csv")
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_other_files_beside_target_are_kept(batch: Batch, tmp_path: Path) -> None:
    (tmp_path / ".all.csv.probe").write_text("mine")
    batch.write(tmp_path / "all.csv")
    assert (tmp_path / ".all.csv.probe").read_text() == "mine"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def other_columns(path: Path) -> None:
    duckdb.sql("SELECT 1 AS other").write_parquet(str(path))


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def linked(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        other_columns,
        fifo,
        linked,
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: os.truncate(path, 9),
    ],
)
def test_damaged_chunk_is_computed_again(batch: Batch, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    whole = tmp_path / "whole.parquet"
    batch.write(whole)
    folder = stop(batch, tmp_path / "all.parquet")
    damage(folder / "000000000025.parquet")
    assert batch.write(tmp_path / "all.parquet")["resumed"] == 3
    assert (tmp_path / "all.parquet").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(("line", "kept"), [(0, 0), (2, 2), (3, 3)])
def test_damaged_record_is_used_up_to_the_damage(batch: Batch, tmp_path: Path, line: int, kept: int) -> None:
    whole = tmp_path / "whole.csv"
    batch.write(whole)
    record = stop(batch, tmp_path / "all.csv") / "chunks.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    lines[line] = lines[line].replace('"rows": 100', '"rows": 101')
    record.write_text("".join(lines))
    assert batch.write(tmp_path / "all.csv")["resumed"] == kept
    assert (tmp_path / "all.csv").read_bytes() == whole.read_bytes()


def test_chunk_of_other_job_is_computed_again(batch: Batch, fitted: Recommender, tmp_path: Path) -> None:
    folder = stop(batch, tmp_path / "all.csv")
    other = stop(Batch(fitted.snapshot, 5, chunk=25), tmp_path / "other.csv")
    name = "000000000025.parquet"
    (folder / name).write_bytes((other / name).read_bytes())
    assert batch.write(tmp_path / "all.csv")["resumed"] == 3
    assert count(tmp_path / "all.csv") == 600


def test_target_with_wrong_number_of_rows_is_not_written(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing makes DuckDB read other files any more; were it so, it would be seen."""
    from dgcf.recommend import batch as module

    real = module.path_literal
    first = tmp_path / ".all.csv.chunks" / f"{0:012d}.parquet"
    monkeypatch.setattr(module, "path_literal", lambda path, write=False: real(path if write else first, write=write))
    with pytest.raises(DataError, match="its chunks have changed"):
        Batch(batch.snapshot, 200, chunk=25).write(tmp_path / "all.csv")
    assert not (tmp_path / "all.csv").exists()


def test_killed_batch_resumes_to_same_bytes(fitted: Recommender, tmp_path: Path) -> None:
    """SIGKILL right after each write to the disk that matters: chunk, record, target."""
    artifact.save(fitted.snapshot, tmp_path / "kept.dgcf")
    code = """
import os, signal, sys
from pathlib import Path
from dgcf.recommend import load
from dgcf.recommend.batch import Batch
from dgcf.recommend.chunks import sweep_chunks
left = int(sys.argv[3])
def counting(call):
    def counted(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return counted
Path.replace, os.fsync, Path.unlink = counting(Path.replace), counting(os.fsync), counting(Path.unlink)
Batch(load(sys.argv[1]).snapshot, 4, chunk=50).write(Path(sys.argv[2]), overwrite=True)
"""
    target, whole = tmp_path / "all.parquet", tmp_path / "whole.parquet"
    Batch(fitted.snapshot, 4, chunk=50).write(whole)
    codes = []
    for calls in (0, 1, 5, 9, 12, 17, 22):
        command = [sys.executable, "-c", code, str(tmp_path / "kept.dgcf"), str(target), str(calls)]
        codes.append(subprocess.run(command, check=False).returncode)
        assert not target.exists() or target.read_bytes() == whole.read_bytes()
    assert codes.count(-9) > 3
    Batch(fitted.snapshot, 4, chunk=50).write(target, overwrite=True)
    assert target.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.parquet", "kept.dgcf", "whole.parquet"]


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file may grow beyond ``limit`` bytes: what a full disk does, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["all.csv", "all.parquet", "all.jsonl"])
def test_full_disk_is_reported_in_one_sentence(fitted: Recommender, tmp_path: Path, name: str) -> None:
    with small_files(1500), pytest.raises(DataError, match="cannot write") as caught:
        Batch(fitted.snapshot, 20).write(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / name).exists()
    assert Batch(fitted.snapshot, 20).write(tmp_path / name)["rows"] == 3000


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_full_disk_during_export_is_reported_in_one_sentence(fitted: Recommender, tmp_path: Path, kind: str) -> None:
    with small_files(1500), pytest.raises(DataError, match="cannot write") as caught:
        export(fitted.snapshot, tmp_path / "out", kind)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_sweep_deletes_chunks_of_finished_job_only(tmp_path: Path) -> None:
    """A kill after the target was in place leaves the chunks behind; one in the middle of --overwrite does, too."""
    target, folder = tmp_path / "o.csv", tmp_path / ".o.csv.chunks"
    for younger, kept in ((False, False), (True, True)):
        folder.mkdir()
        (folder / "job.json").write_text('{"kind": "dgcf chunks", "job": "' + "0" * 64 + '"}')
        (folder / "chunks.jsonl").write_text("")
        target.write_text("whole")
        os.utime(folder / "chunks.jsonl", (2e9, 2e9) if younger else (1e9, 1e9))
        sweep_chunks(target)
        assert folder.exists() == kept
