"""All users into one file: the same as single calls, whole or not at all, and it goes on where it stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dgcf.errors import ConfigError, DataError
from dgcf.ranking.topk import NumpyBackend
from dgcf.recommend import Recommender, artifact
from dgcf.recommend.batch import Batch
from tests.recommend.conftest import random_dataset, untrained


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    reader = "read_csv" if path.suffix == ".csv" else "read_json" if path.suffix == ".jsonl" else "read_parquet"
    extra = ", header = true, all_varchar = true" if path.suffix == ".csv" else ""
    return duckdb.sql(f"SELECT * FROM {reader}('{path}'{extra})").fetchall()


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)


@example(set("abcdefgh"), {"", "0"}, 1)  # a chunk whose two users have seen all there is: a file without rows
@given(st.sets(texts, min_size=2, max_size=9), st.sets(texts, min_size=2, max_size=9), st.integers(1, 12))
def test_file_equals_single_calls(
    tmp_path_factory: pytest.TempPathFactory, users: set[str], items: set[str], k: int
) -> None:
    rec = Recommender.of(untrained(random_dataset(len(users), len(items), users=users, items=items, kind="text")))
    path = tmp_path_factory.mktemp("b") / "all.parquet"
    summary = Batch(rec.snapshot, k, chunk=2).write(path)
    expected = [tuple(row.values()) for user in rec.snapshot.users for row in rec.recommend(user, k)]
    assert rows_of(path) == expected
    assert summary["rows"] == len(expected)
    assert [file.name for file in path.parent.iterdir()] == ["all.parquet"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_every_format_holds_ids_titles_and_scores(fitted: Recommender, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"all{suffix}"
    Batch(fitted.snapshot, 3, chunk=50).write(path)
    expected = [tuple(row.values()) for row in fitted.recommend(fitted.snapshot.users.texts, 3)]
    rows = rows_of(path)
    if suffix == ".csv":
        rows = [(user, item, int(rank), float(score), title) for user, item, rank, score, title in rows]
    assert rows == expected


def test_integer_ids_stay_integers(tmp_path: Path) -> None:
    snapshot = untrained(random_dataset(4, 5))
    Batch(snapshot, 2).write(tmp_path / "all.parquet", update=None)
    user, item, *_ = rows_of(tmp_path / "all.parquet")[0]
    assert (type(user), type(item)) == (int, int)


def test_seen_items_are_included_on_request(tmp_path: Path) -> None:
    snapshot = untrained(random_dataset(4, 5))
    summary = Batch(snapshot, 5, exclude_seen=False).write(tmp_path / "all.parquet")
    assert summary["rows"] == 20


class StoppedError(Exception):
    pass


class Stopping(NumpyBackend):
    """Fails at the third chunk, as a full disk or a Ctrl-C would."""

    calls = 0

    def candidates(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            raise StoppedError
        return super().candidates(*arguments)


def test_stopped_job_resumes_to_same_file(fitted: Recommender, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole.parquet", tmp_path / "stopped.parquet"
    batch = Batch(fitted.snapshot, 4, chunk=25)
    batch.write(whole)
    with pytest.raises(StoppedError):
        batch.write(stopped, backend=Stopping())
    assert not stopped.exists()
    seen: list[float] = []
    summary = batch.write(stopped, update=lambda done, total: seen.append(done))
    assert summary["resumed"] == 2
    assert seen == [25, 50, 75, 100, 125, 150]
    assert rows_of(stopped) == rows_of(whole)


def test_chunks_of_other_job_are_not_reused(fitted: Recommender, tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    with pytest.raises(StoppedError):
        Batch(fitted.snapshot, 4, chunk=25).write(path, backend=Stopping())
    summary = Batch(fitted.snapshot, 5, chunk=25).write(path)
    assert summary["resumed"] == 0
    assert {row[2] for row in rows_of(path)} == {1, 2, 3, 4, 5}


def test_job_of_killed_process_resumes(fitted: Recommender, tmp_path: Path) -> None:
    """SIGKILL in the midst of it: no target, whole chunks, and the second try ends with the same file."""
    artifact.save(fitted.snapshot, tmp_path / "kept.dgcf")
    code = """
import sys, time
from pathlib import Path
from dgcf.recommend import load
from dgcf.recommend.batch import Batch
from dgcf.ranking.topk import NumpyBackend
class Slow(NumpyBackend):
    def candidates(self, *arguments):
        time.sleep(0.3)
        return super().candidates(*arguments)
Batch(load(sys.argv[1]).snapshot, 4, chunk=10).write(Path(sys.argv[2]), backend=Slow())
"""
    target = tmp_path / "all.parquet"
    chunks = tmp_path / ".all.parquet.chunks"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "kept.dgcf"), str(target)])
    try:
        deadline = time.monotonic() + 60
        while len(list(chunks.glob("0*.parquet"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(DataError, match="is in use by another process"):
            Batch(fitted.snapshot, 4, chunk=10).write(target)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not target.exists()
    summary = Batch(fitted.snapshot, 4, chunk=10).write(target)
    assert summary["resumed"] >= 2
    Batch(fitted.snapshot, 4).write(tmp_path / "other.parquet")
    assert rows_of(target) == rows_of(tmp_path / "other.parquet")
    assert not chunks.exists()


def test_invalid_target_is_refused_before_ranking(fitted: Recommender, tmp_path: Path) -> None:
    batch = Batch(fitted.snapshot, 4)
    with pytest.raises(ConfigError, match=r"all\.xlsx has no known suffix, expected one of \.parquet"):
        batch.write(tmp_path / "all.xlsx")
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(DataError, match="exists already"):
        batch.write(tmp_path / "there.csv")
    assert (tmp_path / "there.csv").read_text() == "mine"
    batch.write(tmp_path / "there.csv", overwrite=True)
    assert len(rows_of(tmp_path / "there.csv")) == 600
    with pytest.raises(DataError, match="cannot write"):
        batch.write(Path("/proc/nowhere/all.csv"))


def test_ids_beyond_64_bits_stay_text(tmp_path: Path) -> None:
    big = [str(2**64 + n) for n in range(3)]
    snapshot = untrained(random_dataset(3, 3, users=big, items=range(3)))
    Batch(snapshot, 3, exclude_seen=False).write(tmp_path / "all.parquet")
    rows = rows_of(tmp_path / "all.parquet")
    assert {row[0] for row in rows} == set(big)
    assert {type(row[1]) for row in rows} == {int}
    assert np.isfinite([row[3] for row in rows]).all()
