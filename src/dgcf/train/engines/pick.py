"""The choice of a device, of an engine, and of which trainings share one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

from dgcf.errors import ConfigError
from dgcf.graph.kernels import triton_runs
from dgcf.train.engines.base import Engine, InTurn, Training
from dgcf.train.engines.cpu import CpuEngine
from dgcf.train.engines.cuda_graph import CudaGraphEngine
from dgcf.train.engines.eager import EagerEngine
from dgcf.train.engines.seed_lanes import ModelLanes, StackLanes
from dgcf.train.engines.sharded import ColumnEngine, RowEngine
from dgcf.train.recipe import Recipe
from dgcf.train.shards.columns import Columns
from dgcf.train.shards.rows import Rows

T = TypeVar("T")


def pick_device(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is the GPU if there is one, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        raise ConfigError(f"device {name!r} cannot be used here; choose auto or cpu.") from problem
    return device


def groups(jobs: Sequence[T], recipe: Recipe, device: str) -> list[list[T]]:
    """Return which of several trainings of a recipe run side by side: all on a GPU, otherwise each alone."""
    if pick_device(device).type == "cuda" and not recipe.entry.solved:
        return [list(jobs)]
    return [[job] for job in jobs]


def pick_engine(trainings: Sequence[Training]) -> Engine:
    """Return the fastest engine for trainings that differ in their seeds alone.

    To add an engine, write one file beside this one and one line here.
    """
    first = trainings[0]
    is_stack = first.model.stack() is not None
    one_by_one = CpuEngine if is_stack and _stored_on_cpu(first) else EagerEngine
    if isinstance(first.sharding, Columns):
        return ColumnEngine(one_by_one(first), first.sharding)
    if isinstance(first.sharding, Rows):
        return RowEngine(first, first.sharding)
    if _recordable(first):
        return CudaGraphEngine(trainings, StackLanes(trainings) if is_stack else ModelLanes(trainings))
    engines = [one_by_one(training) for training in trainings]
    return engines[0] if len(engines) == 1 else InTurn(engines)


def _recordable(training: Training) -> bool:
    """Return whether the steps of a training can be recorded: on a GPU, without waiting for the host."""
    propagation = training.propagation
    if not training.model.recordable or not triton_runs(training.device, torch.float32):
        return False
    return propagation is None or (propagation.gpu_matrix is not None and propagation.dtype == torch.float32)


def _stored_on_cpu(training: Training) -> bool:
    """Return whether the propagation is a stored matrix on the CPU, in the precision of the embeddings."""
    propagation = training.propagation
    if propagation is None or not propagation.is_stored or propagation.device.type != "cpu":
        return False
    return propagation.dtype == training.model.layer0.dtype
