"""Files of results: complete lines are kept, broken ones are refused with their number."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from dgcf.errors import ArtifactError, DataError
from dgcf.experiments.reproduce.results import Store
from tests.experiments.reproduce.workspace import Workspace


def test_complete_line_without_newline_is_kept(small: Workspace) -> None:
    small.runner.run("first", only="layers=1:seed=0")
    path, (line,) = small.store.path("first"), small.store.lines("first")
    whole = path.read_bytes()
    path.write_bytes(whole.removesuffix(b"\n"))
    assert small.store.lines("first") == [line]
    assert small.runner.run("first", only="layers=1").known == [line["key"]]
    assert path.read_bytes().startswith(whole)
    assert len(small.lines("first")) == 2


@pytest.mark.parametrize(("kind", "lacking"), [("layers=1", "test"), ("statistics", "computed"), ("layers=1", "kind")])
def test_line_with_a_missing_field_is_refused_by_number(small: Workspace, kind: str, lacking: str) -> None:
    small.runner.run("first", only=kind)
    first, *rest = small.lines("first")
    del first[lacking]
    text = "".join(json.dumps(line) + "\n" for line in (*rest, first))
    small.store.path("first").write_text(text)
    number = len(rest) + 1
    with pytest.raises(
        ArtifactError, match=rf"line {number} of .*first\.jsonl is no finished cell \({lacking} is missing\)"
    ):
        small.store.lines("first")


def test_broken_line_before_others_is_refused_by_number(small: Workspace) -> None:
    small.runner.run("first", only="statistics")
    whole = small.store.path("first").read_bytes()
    small.store.path("first").write_bytes(b"{}\n" + whole)
    with pytest.raises(ArtifactError, match=r"line 1 of .*first\.jsonl is no finished cell"):
        small.runner.run("first")


def test_unreadable_and_unwritable_results_are_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"cannot write /dev/full/first.*; see that you may write there, then run it"):
        Store(Path("/dev/full")).append("first", {"key": "a"})
    (tmp_path / "first.jsonl").mkdir()
    with pytest.raises(
        DataError,
        match=r"cannot read .*first\.jsonl: first\.jsonl is not a regular file; see that it is a file you may read",
    ):
        Store(tmp_path).lines("first")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match=r"cannot write .*second\.jsonl: No space left on device; free some space"):
        Store(tmp_path).append("second", {"key": "a"})
