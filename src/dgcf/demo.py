"""``make demo``: from nothing to recommendations with reasons, by the commands that a user would type.

It takes MovieLens 100K; without a way to get it, the generated dataset, and says so.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from dgcf.cli.terminal import notify, out
from dgcf.data.catalog import fetch
from dgcf.errors import DataError

FOLDER = Path("demo")
# Small enough for a coffee break on two cores; `dgcf train ml-100k` has the paper's settings.
QUICK = ["layers=2", "learning_rate=0.005", "batch_size=4096", "epochs=40", "min_epochs=20", "patience=3"]


def main() -> None:
    name, user, liked = _dataset()
    data, run = FOLDER / name, FOLDER / "run"
    shutil.rmtree(run, ignore_errors=True)
    _dgcf("data", "prepare", name, "--out", str(data), "--overwrite")
    settings = [word for setting in QUICK for word in ("--set", setting)]
    _dgcf("train", str(data), "--model", "dgcf", "--preset", "plain", *settings, "--out", str(run))
    _dgcf("recommend", str(run), "--user", user, "-k", "5", "--why")
    _dgcf("recommend", str(run), *(word for item in liked for word in ("--items", item)), "-k", "5", "--why")
    notify("That was all: `dgcf explain`, `dgcf similar` and `dgcf evaluate` take the same folder, demo/run.")


def _dataset() -> tuple[str, str, tuple[str, ...]]:
    """A dataset that can be had here, one of its users, and three of its titles."""
    try:
        fetch("ml-100k", notify)
    except DataError as problem:
        notify(f"MovieLens 100K cannot be had here: {problem}\nThe generated dataset `planted` takes its place.")
        return (
            "planted",
            "u00007",
            ("The Silent Harbour (Noir)", "The Golden Station (Noir)", "The Broken Orchard (Noir)"),
        )
    return "ml-100k", "196", ("Toy Story", "Aladdin", "Lion King")


def _dgcf(*words: str) -> None:
    """Show a command and run it, as a process of its own."""
    out.print(f"\n$ dgcf {shlex.join(words)}", style="bold", soft_wrap=True, markup=False)
    done = subprocess.run([sys.executable, "-m", "dgcf", *words], check=False)  # nosec B603 # a list of words, no shell
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
