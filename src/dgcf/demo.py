"""``make demo``: prepare a dataset, train a model and recommend with explanations, by the commands of a user.

``make serve`` serves the same model with its page. The dataset is MovieLens 100K, or a generated one if it cannot be
fetched.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from dgcf.cli.terminal import notify, out
from dgcf.data.catalog import fetch
from dgcf.errors import DataError
from dgcf.recommend.loading import BESIDE_WEIGHTS

FOLDER = Path("demo")
RUN = FOLDER / "run"
# A few minutes on two cores; `dgcf train ml-100k` uses the settings of the paper.
QUICK = ["layers=2", "learning_rate=0.005", "batch_size=4096", "epochs=40", "min_epochs=20", "patience=3"]


def main() -> None:
    """Run the demo in the folder ``demo``; with ``serve``, only train if there is no model yet, and serve it."""
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
        return
    user, liked = _train()
    _dgcf("recommend", str(RUN), "--user", user, "-k", "5", "--why")
    _dgcf("recommend", str(RUN), *(word for item in liked for word in ("--items", item)), "-k", "5", "--why")
    notify(
        "Next: `dgcf explain`, `dgcf similar`, `dgcf evaluate` and `dgcf serve` accept the same folder, demo/run; "
        "`make serve` shows it in a browser."
    )


def serve(*options: str) -> None:
    """Serve the model of the demo; ``options`` are those of ``dgcf serve``."""
    if not (RUN / BESIDE_WEIGHTS).is_file():
        _train()
    notify("The page is at the address that is printed when the service is ready.")
    words = [sys.executable, "-m", "dgcf", "serve", str(RUN), *options]
    os.execv(sys.executable, words)  # nosec B606 # in place of this process, so that signals reach the service


def _train() -> tuple[str, tuple[str, ...]]:
    """Train the model; return a user and three titles of its dataset."""
    name, user, liked = _dataset()
    data = FOLDER / name
    shutil.rmtree(RUN, ignore_errors=True)
    _dgcf("data", "prepare", name, "--out", str(data), "--overwrite")
    settings = [word for setting in QUICK for word in ("--set", setting)]
    _dgcf("train", str(data), "--model", "dgcf", "--preset", "plain", *settings, "--out", str(RUN))
    return user, liked


def _dataset() -> tuple[str, str, tuple[str, ...]]:
    """Return the name of an available dataset, one of its users, and three of its titles."""
    try:
        fetch("ml-100k", notify)
    except DataError as problem:
        notify(f"MovieLens 100K is not available: {problem} The generated dataset `planted` is used instead.")
        return (
            "planted",
            "u00007",
            ("The Silent Harbour (Noir)", "The Golden Station (Noir)", "The Broken Orchard (Noir)"),
        )
    return "ml-100k", "196", ("Toy Story", "Aladdin", "Lion King")


def _dgcf(*arguments: str) -> None:
    """Print a command and run it in a new process."""
    out.print(f"\n$ dgcf {shlex.join(arguments)}", style="bold", soft_wrap=True, markup=False)
    done = subprocess.run([sys.executable, "-m", "dgcf", *arguments], check=False)  # nosec B603 # no shell
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
