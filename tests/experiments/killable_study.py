"""Tuning processes to be killed: ``python -m tests.experiments.killable_study DATASET TRIALS FOLDER``.

With a fourth word, ``slowly``, each setting takes its time to be drawn, and ``drawing`` is printed first.

For every line on stdin a child is forked, after the imports, that works on the study; it prints ``ready PID`` before
its first trial and ``epoch`` after every epoch, and the parent prints ``ended STATUS`` when the child is gone.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from dgcf.data.dataset import Dataset
from dgcf.experiments.progress import Progress
from dgcf.experiments.search import Search, search_for
from dgcf.experiments.tune import tune
from dgcf.train import EpochReport

SETTINGS = {"loss": "bpr", "batch_size": 128, "epochs": 20, "min_epochs": 4, "evaluate_every": 2, "patience": 3}


def small_search(dataset: Dataset, out: Path) -> Search:
    """A study whose trials take a fraction of a second, and of which some are pruned."""
    return search_for(dataset, "bpr-mf", preset="plain", settings=SETTINGS, seed=3, out=out)


class Loud(Progress):
    """Print when the first trial is about to begin, and when an epoch has ended."""

    def started(self, done: int, total: int | None) -> None:
        print(f"ready {os.getpid()}", flush=True)

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        print("epoch", flush=True)


def draw_slowly() -> None:
    """Print a word and wait whenever settings are drawn."""
    from optuna.samplers import TPESampler

    for name in ("infer_relative_search_space", "sample_independent", "sample_relative"):
        draw = getattr(TPESampler, name)

        def slow(*words: Any, draw: Any = draw) -> Any:
            print("drawing", flush=True)
            time.sleep(0.02)
            return draw(*words)

        setattr(TPESampler, name, slow)


def main(data: str, trials: str, folder: str, how: str = "") -> None:
    torch.set_num_threads(1)
    import optuna  # noqa: F401 (imported before the fork)

    if how == "slowly":
        draw_slowly()
    search = small_search(Dataset.load(data), Path(folder))
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one imports half of torch
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            tune(search, trials=int(trials), device="cpu", save_every=0.02, progress=Loud())
            os._exit(0)
        print(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
