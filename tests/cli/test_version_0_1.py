"""Files of version 0.1, which have no checksums, are read by every verb with one line of warning."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import Run

VERSION_0_1 = Path(__file__).parent.parent / "golden" / "version-0.1"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("data", "stats", "dataset"), 1),
        (("evaluate", "run"), 1),
        (("recommend", "run", "--user", "u00001"), 2),
        (("train", "--resume", "interrupted"), 1),
        (("recommend", "recommender.dgcf", "--user", "u00001"), 0),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_file_of_version_0_1_is_read(words: tuple[str, ...], lines: int, dgcf: Run, tmp_path: Path) -> None:
    shutil.copytree(VERSION_0_1, tmp_path / "old")
    done = dgcf(*words, "--json", cwd=tmp_path / "old")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert done.stderr.count("has no checksums") == (1 if lines else 0), done.stderr
    if words[0] != "train":
        assert done.stderr.count("\n") == lines, done.stderr
