"""The commands that ``tests.fuzz.kills`` kills, their inputs, and readers of their outputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dgcf.data.dataset import Dataset
from dgcf.random import uniform
from dgcf.recommend.loading import load
from dgcf.train import Run

USERS, ITEMS, EACH = 60, 40, 10
SMALL = ("--device", "cpu", "--set", "epochs=4", "--set", "evaluate_every=2", "--set", "batch_size=256")
RECORDS = "trials.jsonl"
Words = tuple[str, ...]


def train(out: str, seed: int) -> Words:
    return ("train", "data", "--out", out, "--seed", str(seed), "--save-every", "0", "--set", "dim=8", *SMALL)


# Inputs of the jobs besides the tables: a dataset, a finished run, another run.
BASE = (("data", "prepare", "one.csv", "--out", "data"), train("run", 0), train("other", 1))
RESUME = ("train", "--resume", "new", "--save-every", "0")
ALL = ("recommend", "run", "--all", "--out", "all.parquet")


@dataclass(frozen=True)
class Job:
    """A command that writes ``target``, after the first ``base`` commands of ``BASE``.

    ``read`` returns the content of the target and raises if it is incomplete. ``before`` runs first, to its end or, if
    ``interrupted``, half-way. A ``gradual`` target exists before it is finished. ``again`` is the command that
    continues the job, if the same command refuses an existing target.
    """

    base: int
    words: Words
    target: str
    read: Callable[[Path], str]
    before: Words | None = None
    interrupted: bool = False
    gradual: bool = False
    again: Words | None = None

    def state(self, folder: Path) -> str | None:
        """Return the content of the target; None if it does not exist."""
        return self.read(folder / self.target) if (folder / self.target).exists() else None


def write_pairs(folder: Path) -> None:
    """Write two small tables of interactions, ``one.csv`` and ``two.csv``."""
    for seed, name in enumerate(("one.csv", "two.csv")):
        order = uniform(seed, "fuzz/kills", USERS * ITEMS).reshape(USERS, ITEMS).argsort(axis=1)[:, :EACH]
        rows = [f"u{user},i{item}\n" for user in range(USERS) for item in order[user]]
        (folder / name).write_text("user,item\n" + "".join(rows))


def read_bytes(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files of a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    named = [(str(file.relative_to(path.parent)), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
    return json.dumps(named)


def read_dataset(path: Path) -> str:
    return Dataset.load(path).fingerprint


def read_run(path: Path) -> str:
    """Return the best weights of a finished run."""
    run = Run.open(path)
    epochs = [line["epoch"] for line in run.metrics()]
    assert epochs == sorted(set(epochs)), f"epochs {epochs}"
    if not run.finished:
        return "unfinished"
    run.best()
    return read_bytes(path / "best.safetensors")


def read_users(path: Path) -> str:
    """Return the users of a run, its weights, and the lists of two users."""
    recommender = load(path)
    assert list(recommender.users) == list(Dataset.load(Run.open(path).source).users)
    return f"{list(recommender.users)} {read_run(path)} {recommender.recommend(['u1', 'u2'], k=5)}"


def read_runs(path: Path) -> str:
    runs = sorted(run for run in path.iterdir() if not run.name.startswith("."))
    return json.dumps([(run.name, read_run(run)) for run in runs])


def read_recommender(path: Path) -> str:
    return read_bytes(path) + str(load(path).recommend(["u1", "u2"], k=5))


def read_study(path: Path) -> str:
    """Return the best settings and all trials, without seconds."""
    rows = [json.loads(line) for line in _text(path / RECORDS).splitlines()]
    return json.dumps([_text(path / "best.toml"), [{key: row[key] for key in row if key != "seconds"} for row in rows]])


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


JOBS = {
    "prepare": Job(0, ("data", "prepare", "one.csv", "--out", "new"), "new", read_dataset),
    "prepare-overwrite": Job(
        0,
        ("data", "prepare", "one.csv", "--out", "new", "--overwrite"),
        "new",
        read_dataset,
        before=("data", "prepare", "two.csv", "--out", "new"),
    ),
    "train": Job(1, train("new", 2), "new", read_run, gradual=True, again=RESUME),
    "resume": Job(1, RESUME, "new", read_run, before=train("new", 2), interrupted=True, gradual=True),
    "recommend": Job(2, (*ALL, "-k", "5"), "all.parquet", read_bytes),
    "recommend-overwrite": Job(
        2, (*ALL, "-k", "5", "--overwrite"), "all.parquet", read_bytes, before=(*ALL, "-k", "3")
    ),
    "forget": Job(2, ("forget", "run", "u3"), "run", read_users),
    "export-folder": Job(
        3,
        ("export", "run", "--out", "rows", "--to", "parquet", "--overwrite"),
        "rows",
        read_bytes,
        before=("export", "other", "--out", "rows", "--to", "parquet"),
    ),
    "export-artifact": Job(
        3,
        ("export", "run", "--out", "out.dgcf", "--overwrite"),
        "out.dgcf",
        read_recommender,
        before=("export", "other", "--out", "out.dgcf"),
    ),
    "compare": Job(
        1, ("compare", "data", "--models", "bpr-mf,lightgcn", "--out", "runs", *SMALL), "runs", read_runs, gradual=True
    ),
    "tune": Job(
        1,
        ("tune", "data", "--model", "bpr-mf", "--trials", "3", "--out", "study", *SMALL),
        "study",
        read_study,
        gradual=True,
    ),
}
