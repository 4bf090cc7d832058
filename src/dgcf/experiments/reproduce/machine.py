"""The hardware that computes, in words that name no host, and estimates of how long cells take on it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dgcf.experiments.reproduce.cells.base import Cell
from dgcf.train import pick_device


def hardware(device: str) -> dict[str, Any]:
    """Return the device, processor, number of cores, version of torch and GPU."""
    place = pick_device(device)
    parts = {"device": place.type, "cpu": _processor(), "cores": os.cpu_count(), "torch": torch.__version__}
    return {**parts, "gpu": torch.cuda.get_device_name(place)} if place.type == "cuda" else parts


@cache
def _processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def estimate(cells: Sequence[Cell], recorded: Iterable[Mapping[str, Any]], machine: Mapping[str, Any]) -> float | None:
    """Return the seconds that cells of one group will take on the hardware ``machine``, by lines of like hardware.

    Uses the longest of the same dataset, model and settings; without one, of the dataset and model, then of the
    dataset. Returns None if there is none.
    """
    first = cells[0]
    model = first.recipe.name if first.recipe else first.model
    settings = first.recipe.settings() if first.recipe else None
    same_data = [
        line
        for line in recorded
        if line["kind"] in first.timed_with
        and line["data"]["name"] == first.source.name
        and _same_device(line["hardware"], machine)
    ]
    same_model = [line for line in same_data if line["model"] == model]
    nearest = [line for line in same_model if line["settings"] == settings] or same_model or same_data
    trainings = len({cell.fingerprint for cell in cells})  # one training may have two names
    return trainings * max(line["seconds"] for line in nearest) if nearest else None


def _same_device(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether both have the same GPU or none; CPUs differ less from each other than from GPUs."""
    return (one["device"], one.get("gpu")) == (other["device"], other.get("gpu"))
