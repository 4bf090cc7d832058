"""The job layer of compare, tune and reproduce: claim a job, run it, record its result, resume it.

A job is one training, or several seeds of one recipe that train together. Tune and reproduce implement `Queue` and hand
it to `work`; any number of processes may do so over the same folder. Compare runs its jobs in order, without claims:
training locks a run folder.

- Claim: ``files.try_claim(path)`` holds a file for each job. The kernel releases it when its process dies, so a job
  that is neither recorded nor claimed is free, and the next process that looks takes it.
- Run: `train_seeds` trains the seeds of a job. `TRAINING_FAILED` are the errors that end a job, not the experiment.
- Record: `append_line` adds a line to a file of results; a kill leaves all of it or nothing.
- Resume: `open_run` opens the run folder of an interrupted job, whose training continues from its last checkpoint.

`worker_processes` starts further processes for the same queue, and stops them with their parent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import IO, Protocol, TypeVar

import torch

from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError, DgcfError
from dgcf.experiments.progress import Progress
from dgcf.train import DivergedError, EpochReport, Recipe, Run, SeedJob, Trained, Validate, train_together

POLL_SECONDS = 0.5
"""Time between two looks at jobs that other processes run."""
TRAINING_FAILED = (DivergedError, torch.cuda.OutOfMemoryError)
"""Errors of one job; the others can still be trained."""

Job = TypeVar("Job")


class Queue(Protocol[Job]):
    """The jobs of an experiment, as one process sees them. It also decides when time is up."""

    def claim(self) -> AbstractContextManager[Job | None]:
        """Hold a job that is neither recorded nor claimed by another process; None if there is none."""

    def run(self, job: Job) -> None:
        """Run a claimed job and record its result."""

    def waiting(self) -> bool:
        """Return whether to wait for jobs that other processes hold: they may die and leave them."""


def work(queue: Queue[Job]) -> None:
    """Claim and run jobs until none is left. KeyboardInterrupt keeps what is recorded."""
    while True:
        with queue.claim() as job:
            if job is not None:
                queue.run(job)
                continue
        if not queue.waiting():
            return
        time.sleep(POLL_SECONDS)


# -- run and record ---------------------------------------------------------------------------------------------------


def train_seeds(
    dataset: Dataset, recipe: Recipe, seeds: Sequence[SeedJob], *, device: str, validate: Validate | None
) -> Iterator[tuple[SeedJob, Trained]]:
    """Train the seeds of one group side by side, and yield each that was trained to its end.

    Raises KeyboardInterrupt after these if Ctrl-C stopped the others.
    """
    results = train_together(dataset, recipe, seeds, device=device, validate=validate)
    for seed, trained in zip(seeds, results, strict=True):
        if not trained.interrupted:
            yield seed, trained
    if any(trained.interrupted for trained in results):
        raise KeyboardInterrupt


def open_run(path: Path, dataset: Dataset, recipe: Recipe, *, seed: int, device: str, source: str = "") -> Run:
    """Open the run folder at ``path`` to resume it, or create it."""
    if (path / "run.json").exists():
        return Run.open(path)
    return Run.create(path, dataset, recipe, seed=seed, device=device, source=source)


def numbered(path: Path) -> Iterator[Path]:
    """Yield the path, then the same with ``-2``, ``-3``, … after its name, without end."""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.name}-{number}")


@contextlib.contextmanager
def discard_unstarted(runs: Sequence[Run], on: type[BaseException] = BaseException) -> Iterator[None]:
    """Delete the folders of runs that have no checkpoint if the block raises ``on``; they would block a new attempt."""
    try:
        yield
    except on:
        for run in runs:
            if not run.has_checkpoint:
                shutil.rmtree(run.path, ignore_errors=True)
        raise


def append_line(file: IO[bytes], end: int, line: bytes) -> None:
    """Write a line after the first ``end`` bytes, in place of what a killed process left, and flush it to the disk."""
    file.truncate(end)
    file.write(line)
    file.flush()
    os.fsync(file.fileno())


# -- more processes ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def worker_processes(
    jobs: int, target: Callable[..., None], args: Sequence[object], progress: Progress
) -> Iterator[None]:
    """Call ``target(*args, progress)`` in ``jobs - 1`` further processes during the block; all share the CPU threads.

    On an exception the workers are interrupted as by Ctrl-C. They stop by themselves if this process is killed.
    """
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, expected a whole number from 1 on.")
    threads = torch.get_num_threads()
    share = max(1, threads // jobs)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_run_worker, args=(target, args, share)) for _ in range(jobs - 1)]
    for worker in workers:
        worker.start()
    torch.set_num_threads(share)
    try:
        yield
    except BaseException:
        for worker in workers:
            worker.terminate()  # training saves and stops, as on Ctrl-C
        raise
    finally:
        torch.set_num_threads(threads)
        for worker in workers:
            worker.join()
    if failed := sum(worker.exitcode != 0 for worker in workers):
        progress.note(f"{failed} of {jobs} processes ended before the others, which ran the rest.")


def _run_worker(target: Callable[..., None], args: Sequence[object], threads: int) -> None:
    torch.set_num_threads(threads)
    try:
        target(*args, _StopIfParentDied())
    except KeyboardInterrupt:
        sys.exit(130)
    except DgcfError as problem:
        print(f"error: {problem}", file=sys.stderr, flush=True)
        sys.exit(1)


class _StopIfParentDied(Progress):
    """Interrupt the training of a worker after an epoch if its parent was killed; the job can be resumed."""

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            raise KeyboardInterrupt
