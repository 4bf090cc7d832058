"""Training processes to be killed: ``python -m tests.train.killable DATASET`` starts one for every folder on stdin.

Each is a process of its own, forked after the imports: importing torch a dozen times takes longer than all the
training. It prints ``ready PID`` when it is about to make its first step; the parent prints ``ended STATUS``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from dgcf.data.dataset import Dataset
from dgcf.train import Observer, Run, resolve, train
from tests.train.planted_tastes import validation_of

SETTINGS = {
    "dim": 16,
    "layers": 2,
    "batch_size": 64,
    "epochs": 150,
    "evaluate_every": 2,
    "patience": 0,
    "edge_dropout": 0.1,
    "learning_rate": 0.01,
}


class Ready(Observer):
    """Says so when the first step is about to be made."""

    said = False

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        if not self.said:
            print(f"ready {os.getpid()}", flush=True)
        self.said = True


def go(dataset: Dataset, folder: str) -> None:
    """Start the run, or go on with it."""
    if (Path(folder) / "run.json").exists():
        run = Run.open(folder)
    else:
        recipe = resolve("dgcf", preset="paper", settings=SETTINGS)
        run = Run.create(folder, dataset, recipe, seed=5, device="cpu")
    run.autosave = 0.05
    validate = validation_of(dataset)
    train(dataset, run.recipe, seed=run.seed, device="cpu", validate=validate, run=run, observer=Ready())


def main(data: str) -> None:
    torch.set_num_threads(1)
    dataset = Dataset.load(data)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one imports half of torch
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            go(dataset, line.strip())
            os._exit(0)
        print(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
