"""Training: from a dataset and a recipe to a trained model and its run folder."""

from dgcf.train.api import SeedJob, Trained, build, load, train, train_many, train_together
from dgcf.train.config import TrainConfig
from dgcf.train.engines import groups, pick_device
from dgcf.train.presets import Size
from dgcf.train.recipe import Recipe, resolve
from dgcf.train.run.folder import Run
from dgcf.train.run.observer import EpochReport, Observer, PlainLines
from dgcf.train.trainer import DivergedError, Trainer, Validate

Each = SeedJob
"""The name of ``SeedJob`` in version 0.1."""

__all__ = [
    "DivergedError",
    "Each",
    "EpochReport",
    "Observer",
    "PlainLines",
    "Recipe",
    "Run",
    "SeedJob",
    "Size",
    "TrainConfig",
    "Trained",
    "Trainer",
    "Validate",
    "build",
    "groups",
    "load",
    "pick_device",
    "resolve",
    "train",
    "train_many",
    "train_together",
]
