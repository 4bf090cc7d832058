"""What computes, in words that name no host, and how long it will probably take for what is not computed yet."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dgcf.experiments.reproduce.recipe import Cell
from dgcf.experiments.reproduce.results import TRAINED
from dgcf.train import pick_device


def hardware(device: str) -> dict[str, Any]:
    """What computed."""
    place = pick_device(device)
    found = {"device": place.type, "cpu": _processor(), "cores": os.cpu_count(), "torch": torch.__version__}
    return {**found, "gpu": torch.cuda.get_device_name(place)} if place.type == "cuda" else found


@cache
def _processor() -> str:
    """The processor's name; Linux keeps it in a file."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def estimate(cells: Sequence[Cell], recorded: Iterable[Mapping[str, Any]], here: Mapping[str, Any]) -> float | None:
    """How many seconds cells of one group will take on the hardware ``here``, by what is recorded of such hardware.

    The longest of the same dataset, model and settings; where there is none, of the dataset and model, and then of the
    dataset. None where nothing is known of that either.
    """
    first = cells[0]
    model = first.recipe.name if first.recipe else first.model
    settings = first.recipe.settings() if first.recipe else None
    kinds = TRAINED if first.kind in TRAINED else (first.kind,)
    same_data = [
        line
        for line in recorded
        if line["kind"] in kinds and line["data"]["name"] == first.source.name and _alike(line["hardware"], here)
    ]
    same_model = [line for line in same_data if line["model"] == model]
    nearest = [line for line in same_model if line["settings"] == settings] or same_model or same_data
    trainings = len({cell.fingerprint for cell in cells})  # two names may stand for one
    return trainings * max(line["seconds"] for line in nearest) if nearest else None


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """The same GPU, or no GPU both; processors differ less than GPUs do from them."""
    return (one["device"], one.get("gpu")) == (other["device"], other.get("gpu"))
