"""Compute cells and make their lines, and estimate how long cells take; one dataset at a time is in memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dgcf.data.dataset import Dataset
from dgcf.experiments.reproduce.cells.base import Cell, Line
from dgcf.experiments.reproduce.datasets import open_dataset
from dgcf.experiments.reproduce.results import Store
from dgcf.train import pick_device
from dgcf.version import __version__


class Executor:
    """What cells are computed with: their datasets, a device, and the ``store`` of the values of single users.

    ``measures`` are the names of those that any experiment needs of a training, by its fingerprint.
    """

    def __init__(self, store: Store, prepared: Path | None, device: str) -> None:
        self.store, self.prepared, self.device = store, prepared, device
        self.measures: Mapping[str, Sequence[str]] = {}
        self._dataset: tuple[str, Dataset] | None = None

    def dataset(self, cell: Cell) -> Dataset:
        """Return the dataset of a cell."""
        variant = cell.source.variant(cell.seed or 0)
        name = cell.source.folder(variant)
        if self._dataset is None or self._dataset[0] != name:
            self._dataset = name, open_dataset(cell.source, variant, self.prepared)
        return self._dataset[1]

    def line(self, cell: Cell, result: Line) -> Line:
        """Return the line of a cell with its result, as it is recorded."""
        data: dict[str, Any] = {"name": cell.source.name, "source": cell.source.known}
        if cell.needs_dataset:
            dataset = self.dataset(cell)
            data |= {"fingerprint": dataset.fingerprint, "n_users": dataset.n_users, "n_items": dataset.n_items}
        recipe = cell.recipe
        return {
            **cell.labels,
            "kind": cell.kind,
            "fingerprint": cell.fingerprint,
            "data": data,
            "model": recipe.name if recipe else cell.model,
            "preset": recipe.preset if recipe else None,
            "settings": recipe.settings() if recipe else None,
            "seed": cell.seed,
            "version": __version__,
            "hardware": hardware(self.device),
            **result,
        }


def hardware(device: str) -> dict[str, Any]:
    """Return the device, processor, number of cores, version of torch and GPU, but no name of a host."""
    place = pick_device(device)
    parts = {"device": place.type, "cpu": _processor(), "cores": os.cpu_count(), "torch": torch.__version__}
    return {**parts, "gpu": torch.cuda.get_device_name(place)} if place.type == "cuda" else parts


def describe_hardware(parts: Mapping[str, Any]) -> str:
    """Return ``NVIDIA H200``, or ``AMD EPYC, 2 cores``."""
    cores = parts["cores"]
    return str(parts["gpu"]) if "gpu" in parts else f"{parts['cpu']}, {cores:,} core{'s' * (cores != 1)}"


@cache
def _processor() -> str:
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
        # CPUs differ less from each other than from GPUs.
        and all(line["hardware"].get(part) == machine.get(part) for part in ("device", "gpu"))
    ]
    same_model = [line for line in same_data if line["model"] == model]
    nearest = [line for line in same_model if line["settings"] == settings] or same_model or same_data
    trainings = len({cell.fingerprint for cell in cells})  # one training may have two names
    return trainings * max(line["seconds"] for line in nearest) if nearest else None
