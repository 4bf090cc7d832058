"""The description of a run, ``run.json``: its fields, the environment that it was started in, the order of its data."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any, Literal, NotRequired, TypedDict

import torch

from dgcf.data.dataset import Dataset
from dgcf.stored import NonNegativeInt, Sha256
from dgcf.train.recipe import Recipe
from dgcf.train.sampler import require_order
from dgcf.version import __version__


class DatasetAbout(TypedDict):
    name: str
    source: str
    fingerprint: Sha256
    n_users: NonNegativeInt
    n_items: NonNegativeInt
    train: NonNegativeInt
    order: NotRequired[Sha256 | None]
    weights: NotRequired[Sha256 | None]
    read: NotRequired[dict[str, Any]]


class RunDescription(TypedDict):
    """``run.json``; its checksum came after version 0.1, ``on`` and the fields after it later still.

    ``on``: all splits of the dataset are training pairs. ``epochs_from``: what decided the epochs then. ``then``: the
    run is the first stage of such a training; the settings that the user gave. ``update``: the run continues another.
    ``launcher``: the torchrun process that began it, with several processes.
    """

    format: NonNegativeInt
    model: str
    preset: str
    seed: NonNegativeInt
    settings: dict[str, Any]
    dataset: DatasetAbout
    environment: dict[str, Any]
    on: NotRequired[Literal["everything"]]
    epochs_from: NotRequired[Literal["validation", "settings", "default"]]
    then: NotRequired[dict[str, Any]]
    update: NotRequired[dict[str, Any]]
    launcher: NotRequired[str]


def describe_dataset(dataset: Dataset, source: str, recipe: Recipe) -> dict[str, Any]:
    """Return the entry of a dataset, with the order and the weights of its pairs if the recipe uses them."""
    return {
        "name": dataset.name,
        "source": source or dataset.name,
        "fingerprint": dataset.fingerprint,
        "n_users": dataset.n_users,
        "n_items": dataset.n_items,
        "train": len(dataset.train),
        **order_of(dataset, used=recipe.train.recency > 0),
        **weights_of(dataset, recipe.weight_setting),
        **({"read": dict(dataset.read_options)} if dataset.read_options else {}),
    }


def order_of(dataset: Dataset, *, used: bool) -> dict[str, str | None]:
    """Return the ``order`` entry of a dataset's description; empty if sampling does not use the order."""
    if not used:
        return {}
    require_order(dataset.train)
    return {"order": dataset.order}


def weights_of(dataset: Dataset, setting: str | None) -> dict[str, str | None]:
    """Return the ``weights`` entry of a dataset's description; empty if no ``setting`` uses the weights."""
    if setting is None:
        return {}
    dataset.train.require_weights(setting)
    return {"weights": dataset.weighting}


def environment(device: str) -> dict[str, Any]:
    """Return the versions and hardware that may change the last bits of a result."""
    return {
        "dgcf": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scipy", "safetensors")},
        "machine": platform.machine(),
        "device": device,
        "threads": torch.get_num_threads(),
    }
