"""A training by several processes, which ``torchrun`` starts and starts again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from dgcf.data import Dataset
from dgcf.errors import ConfigError, did_you_mean
from dgcf.evaluate.validation import validator
from dgcf.train import Recipe, SeedJob, pick_device, train_together
from dgcf.train.run.folder import ABOUT
from dgcf.train.shards.base import MODES, Mode
from dgcf.train.shards.world import World, joined, restarts
from dgcf.version import __version__


def processes(device: str) -> AbstractContextManager[World]:
    """Return the context of the processes that torchrun started, or of this one alone.

    On GPUs, each process of a machine has one of its own.
    """

    def own(number: int) -> torch.device:
        place = pick_device(device)
        if place.type != "cuda" or ":" in str(place):
            return place
        torch.cuda.set_device(number % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device())

    return joined(own)


def follow(dataset: Dataset, world: World, mode: Mode, device: str) -> bool:
    """Train what the first process trains; return False if that was interrupted."""
    recipe, seed = agree(world, dataset)
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    jobs = [SeedJob(seed)]
    results = train_together(dataset, recipe, jobs, device=device, validate=validate, world=world, mode=mode)
    return not results[0].interrupted


def agree(world: World, dataset: Dataset, job: Callable[[], tuple[Recipe, int]] | None = None) -> tuple[Recipe, int]:
    """Return the recipe and the seed of the first process, which gives its ``job``, once all have the same data."""
    world.require_same("version of dgcf", __version__)
    world.require_same("dataset", dataset.fingerprint)

    def given() -> tuple[Recipe, int]:
        assert job is not None, "the first process says what is trained"
        return job()

    return world.from_first(given)


def launched() -> dict[str, str]:
    """Return the field of a run's description that names the torchrun process; none without torchrun."""
    return {"launcher": launcher()} if "TORCHELASTIC_RUN_ID" in os.environ else {}


def launcher() -> str:
    """Return what names the torchrun process that started this one, and that may start it again."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', 'none')}/{os.getppid()}"


def begun_before(folder: Path | None) -> Path | None:
    """Return the run that the same torchrun began before it started the processes again; None at their first start.

    ``folder``: that of the run, if it was given.
    """
    if not restarts():
        return None
    for path in [folder] if folder is not None else sorted(Path("runs").glob("*")):
        try:
            about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(about, dict) and about.get("launcher") == launcher():
            return path
    return None


def checked(world: World, mode: str, seeds: int, on: str | None) -> Mode:
    """Return the mode of that name; refuse an unknown one, and what takes more than one training."""
    if mode not in MODES:
        raise ConfigError(f"--shard is {mode!r}, expected {' or '.join(MODES)}{did_you_mean(mode, MODES) or '.'}")
    if world.size > 1 and (seeds > 1 or on not in (None, "train")):
        what = "--seeds" if seeds > 1 else "--on everything"
        raise ConfigError(f"{what} takes several trainings, and several processes share one; start them one by one.")
    return MODES[MODES.index(mode)]
