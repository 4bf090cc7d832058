"""Command lines of verbs that read or write, and functions that run them as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

QUICK = ("--set", "epochs=2", "--set", "dim=4", "--device", "cpu")
PLAIN = (*QUICK, "--preset", "plain")

READERS: dict[str, tuple[str, ...]] = {
    "list": ("data", "list"),
    "fetch": ("data", "fetch", "planted"),
    "stats": ("data", "stats", "{data}"),
    "graph": ("graph", "{data}"),
    "oscillation": ("oscillation", "{data}"),
    "models": ("models", "dgcf"),
    "evaluate": ("evaluate", "{run}", "--device", "cpu"),
    "recommend": ("recommend", "{films}", "--user", "u00001"),
    "similar": ("similar", "{films}", "--item", "i00001"),
    "explain": ("explain", "{films}", "--user", "u00001", "--item", "i00002"),
}
WRITERS: dict[str, tuple[str, ...]] = {
    "prepare": ("data", "prepare", "{csv}", "--out", "{out}/set"),
    "convert-csv": ("data", "convert", "{data}", "--out", "{out}/set.csv"),
    "convert-parquet": ("data", "convert", "{data}", "--out", "{out}/set.parquet"),
    "convert-adjacency": ("data", "convert", "{data}", "--to", "adjacency", "--out", "{out}/set"),
    "train": ("train", "{data}", *PLAIN, "--out", "{out}/run"),
    "update": ("update", "{run}", "{new}", "--device", "cpu", "--out", "{out}/run"),
    "tune": ("tune", "{data}", *QUICK, "--trials", "2", "--out", "{out}/study"),
    "compare": ("compare", "{data}", "--models", "bpr-mf,lightgcn", *PLAIN, "--out", "{out}/runs"),
    "forget": ("forget", "{films}", "u00001", "--out", "{out}/films.dgcf"),
    "recommend-all": ("recommend", "{films}", "--all", "--out", "{out}/all.csv"),
    "export-npy": ("export", "{films}", "--out", "{out}/rows"),
    "export-parquet": ("export", "{films}", "--to", "parquet", "--out", "{out}/rows"),
    "export-dgcf": ("export", "{films}", "--out", "{out}/films.dgcf"),
    "plot-graph": ("graph", "{data}", "--plot", "{out}/values.png"),
    "plot-oscillation": ("oscillation", "{data}", "--plot", "{out}/gaps.png"),
    "plot-explain": (*READERS["explain"], "--out", "{out}/why.png"),
    "reproduce": ("reproduce", "table3", "--project", "{project}", "--prepare", "{out}/prepared"),
}
VERBS = {**READERS, **WRITERS}


def words_of(verb: str, small: Path, out: Path) -> list[str]:
    """Return the arguments of a verb for the files of ``small``, with its output in ``out``."""
    places = {
        "data": small / "data",
        "csv": small / "data.csv",
        "new": small / "new.csv",
        "run": small / "run",
        "films": small / "films.dgcf",
    }
    places |= {"project": small / "project", "out": out}
    return [word.format(**{name: str(path) for name, path in places.items()}) for word in VERBS[verb]]


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "dgcf", *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONFAULTHANDLER": "1", **more}


def ran(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a process to its end, with captured streams unless ``options`` redirect them."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(
        command(*words), stdin=subprocess.DEVNULL, text=True, timeout=120, check=False, env=environment(), **streams
    )


def one_sentence(stderr: str) -> str:
    """Return the error at the end of stderr, which has no traceback."""
    assert "Traceback" not in stderr, stderr
    last = stderr.splitlines()[-1]
    assert last.startswith("error: "), stderr
    return last
