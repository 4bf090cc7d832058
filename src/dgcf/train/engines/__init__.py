"""Engines: the implementations of a training step. ``pick_engine`` is the only place that chooses one."""

from dgcf.train.engines.base import Engine, Training
from dgcf.train.engines.pick import groups, pick_device, pick_engine

__all__ = ["Engine", "Training", "groups", "pick_device", "pick_engine"]
