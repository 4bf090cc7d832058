"""Checkpoints: one safetensors file with its description inside, written whole or not at all, checked when read.

The description is JSON in the file's header, so weights and state can never be of two different moments. It holds
no time and no path: equal training gives equal bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from dgcf.errors import ArtifactError
from dgcf.files import whole_file

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and what they are: ``about`` is plain JSON data."""

    tensors: Mapping[str, Tensor]
    about: Mapping[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors under ``name.``, without that prefix."""
        return {key.removeprefix(f"{name}."): t for key, t in self.tensors.items() if key.startswith(f"{name}.")}

    def save(self, path: Path) -> None:
        """Write the file beside and rename it, so the old one stays until the new one is whole."""
        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in self.tensors.items()}
        about = json.dumps({"format": FORMAT, **self.about}, sort_keys=True)
        # Serialised in memory: a full disk is then Python's own error, which whole_file knows how to explain.
        # One header entry only: safetensors writes several in no fixed order.
        content = save(tensors, metadata={"dgcf": about})
        with whole_file(path) as beside:
            beside.write_bytes(content)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a file that ``save`` wrote."""
        with _opened(path) as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
        return cls(tensors, cls.describe(path))

    @staticmethod
    def describe(path: Path) -> dict[str, Any]:
        """What a file that ``save`` wrote says of itself, without reading its tensors."""
        with _opened(path) as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["dgcf"])
            written = about["format"]
        if written != FORMAT:
            raise ArtifactError(
                f"{path} was written by another version of dgcf (format {written}, this one reads {FORMAT}); "
                "use that version, or train again."
            )
        return about


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, with one sentence for whatever is wrong with it."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as problem:
        raise ArtifactError(
            f"{path} does not exist; give a run folder in which training saved a checkpoint."
        ) from problem
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as problem:
        raise ArtifactError(
            f"{path} is damaged or not a dgcf checkpoint ({problem}); train again, or restore it from a copy."
        ) from problem


def fill_model(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into a model of the same shapes; ``source`` names where they came from."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if expected != found:
        name = min(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise ArtifactError(
            f"{source} holds {name} as {found.get(name, 'nothing')}, expected {expected.get(name, 'nothing')}; "
            "use it with the dataset and settings that it was trained with."
        )
    model.load_state_dict(dict(weights))


def adam_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's state by parameter name: ``layer0.exp_avg`` and so on; empty before the first step."""
    return {
        f"{name}.{kind}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def fill_adam(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], source: str) -> None:
    """Put back what ``adam_tensors`` took."""
    capturable = bool(optimizer.defaults.get("capturable"))  # then the number of steps is counted on the device
    for name, parameter in model.named_parameters():
        kinds = {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.rpartition(".")[0] == name}
        for kind, value in kinds.items():
            if kind != "step" and value.shape != parameter.shape:
                raise ArtifactError(
                    f"{source} holds {name}.{kind} as {tuple(value.shape)}, expected {tuple(parameter.shape)}; "
                    "use it with the dataset and settings that it was trained with."
                )
        if kinds:
            optimizer.state[parameter] = {
                kind: value.clone() if kind == "step" and not capturable else value.to(parameter.device, copy=True)
                for kind, value in kinds.items()
            }
