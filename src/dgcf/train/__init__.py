"""The train room: a model, a dataset and settings in; a trained model, its record and its run folder out."""

from dgcf.train.api import Each, Trained, build, groups, load, pick_device, train, train_many
from dgcf.train.config import TrainConfig
from dgcf.train.recipe import Recipe, resolve
from dgcf.train.run.folder import Run
from dgcf.train.run.observer import EpochReport, Observer, PlainLines
from dgcf.train.trainer import DivergedError, Trainer, Validate

__all__ = [
    "DivergedError",
    "Each",
    "EpochReport",
    "Observer",
    "PlainLines",
    "Recipe",
    "Run",
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
]
