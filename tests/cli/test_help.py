"""Help and completion: bare ``dgcf``, the order of the verbs, and what a shell completes, in real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dgcf.models.catalog import CATALOG

SCRIPT = Path(sys.executable).with_name("dgcf")


@pytest.mark.parametrize("words", [(), ("data",)], ids=["dgcf", "dgcf data"])
def test_command_without_arguments_prints_its_help_once_and_succeeds(dgcf: Any, words: tuple[str, ...]) -> None:
    done = dgcf(*words)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("Usage: ") == 1
    assert done.stdout == dgcf(*words, "--help").stdout


def test_help_begins_with_the_verbs_of_the_first_hour(dgcf: Any) -> None:
    lines = [line.strip("│ ") for line in dgcf("--help").stdout.partition("Commands")[2].splitlines()]
    verbs = [line.split()[0] for line in lines if line.partition(" ")[0].isalpha()]
    places = [verbs.index(verb) for verb in ("data", "train", "recommend", "evaluate", "graph", "reproduce")]
    assert places == sorted(places)
    assert verbs[:3] == ["data", "train", "recommend"]


def test_help_imports_no_large_library() -> None:
    """Otherwise `dgcf --help` would take seconds; ``benchmarks/startup.py`` measures it."""
    large = {"torch", "scipy", "pandas", "duckdb", "pydantic", "sklearn", "matplotlib", "optuna"}
    code = f"import sys; from dgcf.cli import application; application(); print(sorted({large} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def completed(line: str, folder: Path) -> list[str]:
    """Return what bash offers for the last word of a command line."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_DGCF_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    if not SCRIPT.exists():
        pytest.skip(f"there is no script {SCRIPT}")
    done = subprocess.run(
        [SCRIPT], capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=folder
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def folder(small: Path, tmp_path: Path) -> Path:
    """A folder with a dataset, runs, a recommender file and other files."""
    shutil.copytree(small / "run", tmp_path / "runs" / "first")
    shutil.copytree(small / "run", tmp_path / "runs" / "second")
    shutil.copytree(small / "data", tmp_path / "films")
    shutil.copy(small / "films.dgcf", tmp_path)
    (tmp_path / "notes.txt").write_text("no data")
    (tmp_path / "purchases.csv").write_text("user,item\n")
    return tmp_path


@pytest.mark.parametrize("verb", ["train DATA", "tune DATA"])
def test_models_are_completed(verb: str, folder: Path) -> None:
    assert completed(f"dgcf {verb} --model light", folder) == ["lightgcn"]
    assert completed(f"dgcf {verb} --model ", folder) == list(CATALOG)


def test_name_of_a_model_is_completed_for_its_settings(folder: Path) -> None:
    assert completed("dgcf models dgcf", folder) == ["dgcf", "dgcf-chp", "dgcf-la", "dgcf-sl"]


def test_datasets_are_completed_by_name_and_by_path(folder: Path) -> None:
    offered = completed("dgcf train ", folder)
    assert {"ml-100k", "planted", "films/", "runs/", "purchases.csv"} <= set(offered)
    assert completed("dgcf train deoscirec/ml-1", folder) == ["deoscirec/ml-100k", "deoscirec/ml-1m"]
    assert completed("dgcf data stats pur", folder) == ["purchases.csv"]


def test_runs_and_recommenders_are_completed_by_path(folder: Path) -> None:
    assert completed("dgcf recommend ", folder) == ["films/", "films.dgcf", "runs/"]
    assert completed("dgcf recommend runs/", folder) == ["runs/first", "runs/second"]
    assert completed("dgcf evaluate runs/f", folder) == ["runs/first"]
    assert completed("dgcf train --resume runs/s", folder) == ["runs/second"]
    assert completed("dgcf evaluate films", folder) == ["films/"]  # a recommender file has no splits
