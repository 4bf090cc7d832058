"""The interface between the training loop and the engines that compute its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dgcf.graph import Propagation
from dgcf.models.base import GraphModel
from dgcf.train.adam import Optimizer
from dgcf.train.config import TrainConfig
from dgcf.train.sampler import Sampler
from dgcf.train.shards.base import Sharding


class Training(Protocol):
    """The state of a training that an engine reads and updates; ``Trainer`` is one."""

    model: GraphModel
    propagation: Propagation | None
    config: TrainConfig
    sampler: Sampler
    optimizer: Optimizer
    device: torch.device
    drop_seed: int
    sharding: Sharding
    running_loss: Tensor


class Engine(Protocol):
    """Computes the steps of one training, or of several that differ in their seeds alone.

    A step updates the weights, the optimizer state and ``running_loss`` of each training.
    """

    def begin_epoch(self, epoch: int, batch: int) -> None:
        """Prepare an epoch (from 1), starting at one of its batches (from 0)."""

    def step(self, batch: int) -> None:
        """Take one step of each training on batch ``batch`` of the epoch."""


class InTurn:
    """Runs the engines of several trainings one after the other."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines

    def begin_epoch(self, epoch: int, batch: int) -> None:
        for engine in self.engines:
            engine.begin_epoch(epoch, batch)

    def step(self, batch: int) -> None:
        for engine in self.engines:
            engine.step(batch)
