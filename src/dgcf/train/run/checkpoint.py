"""Checkpoints: one safetensors file with its description inside, written atomically and verified when read.

The description is JSON in the file's header, so weights and state always belong together. It has no time and no path:
equal training gives equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from dgcf.errors import ArtifactError
from dgcf.files import atomic_file
from dgcf.stored import (
    InvalidFileError,
    NonNegativeInt,
    Range,
    Sha256,
    check_type,
    decode_json,
    open_member,
    seal,
    verify_seal,
)
from dgcf.train.adam import Optimizer

FORMAT = 1
ADAM = {"step", "exp_avg", "exp_avg_sq"}
Count = Annotated[int, Range(0, 2**40)]


class Stopping(TypedDict):
    """The state of early stopping; a solved model has only the epoch."""

    best_epoch: Count
    best: NotRequired[float | None]
    stale: NotRequired[Count]


class Description(TypedDict):
    """The description of a checkpoint: identity, progress and checksums, of which version 0.1 had fewer."""

    format: NonNegativeInt
    epoch: Count
    model: NotRequired[str]
    dataset: NotRequired[Sha256]
    settings: NotRequired[dict[str, Any]]
    seed: NotRequired[NonNegativeInt]
    done: NotRequired[Count]
    loss: NotRequired[float]
    stopping: NotRequired[Stopping]
    tensors: NotRequired[Sha256]
    blending: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and their description ``about``, which is plain JSON data."""

    tensors: Mapping[str, Tensor]
    about: Mapping[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """Return the tensors under ``name.``, without that prefix."""
        return {key.removeprefix(f"{name}."): t for key, t in self.tensors.items() if key.startswith(f"{name}.")}

    def save(self, path: Path) -> None:
        """Write the file atomically: the old one stays until the new one is complete."""
        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in self.tensors.items()}
        about = seal({**self.about, "format": FORMAT, "tensors": _digest(tensors)})
        # Serialised in memory: a full disk then raises Python's own error, which atomic_file explains.
        # One header entry only: safetensors writes several in no fixed order.
        content = save(tensors, metadata={"dgcf": json.dumps(about, sort_keys=True)})
        with atomic_file(path) as beside:
            beside.write_bytes(content)

    @classmethod
    def load(cls, path: Path, *, checked: bool = True) -> Checkpoint:
        """Read a file that ``save`` wrote and verify it; with ``checked=False`` one without checksums passes, too."""
        about = cls.describe(path, checked=checked)
        with _opened(path) as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
            if "tensors" in about and about["tensors"] != _digest(tensors):
                raise InvalidFileError("its tensors do not match their checksum")
        return cls(tensors, about)

    @staticmethod
    def describe(path: Path, *, checked: bool = True) -> Description:
        """Return what a file that ``save`` wrote says of itself, without reading its tensors."""
        with _opened(path) as file:
            raw = decode_json((file.metadata() or {}).get("dgcf", "").encode(), dict[str, Any], "its description")
            require_format(raw.get("format"), FORMAT, path)
            if not verify_seal(raw, "its description") and checked:
                raise InvalidFileError("it has no checksum, unlike the run that it is in")
            return check_type(raw, Description, "its description")


def require_format(written: object, expected: int, path: Path) -> None:
    """Raise ``ArtifactError`` if the format of a file or folder is not the one that this version reads."""
    if written != expected:
        raise ArtifactError(
            f"{path} was written by another version of dgcf (format {str(written)[:20]!r}, this one reads "
            f"{expected}); use that version, or train again."
        )


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield the open file; raise ``ArtifactError`` for anything wrong with it."""
    try:
        open_member(path).close()  # refuses what is not a regular file
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as problem:
        raise ArtifactError(
            f"{path} does not exist; give a run folder in which training saved a checkpoint."
        ) from problem
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as problem:
        reason = str(problem).splitlines()[0][:160] if str(problem) else type(problem).__name__
        raise ArtifactError(
            f"{path} is damaged or not a dgcf checkpoint ({reason}); train again, or restore it from a copy."
        ) from problem


def check_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Raise ``ArtifactError`` unless weights are finite and have the model's names, shapes and types."""
    state = model.state_dict()
    expected = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}
    given = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | given.keys()):
        if expected.get(name) != given.get(name):
            raise ArtifactError(
                f"{source} holds {name} as {_kind(given.get(name))}, expected {_kind(expected.get(name))}; "
                "use it with the dataset and settings that it was trained with."
            )
        _require_finite(weights[name], name, source)


def _kind(shape: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return "nothing" if shape is None else f"{shape[0]} of {str(shape[1]).removeprefix('torch.')}"


def _require_finite(tensor: Tensor, name: str, source: str) -> None:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise ArtifactError(f"{source} holds a number in {name} that is not finite; train again.")


def fill_model(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into a model of the same shapes; ``source`` names their origin in errors."""
    check_weights(model, weights, source)
    model.load_state_dict(dict(weights))


def adam_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return Adam's state by parameter name, ``layer0.exp_avg`` and so on; empty before the first step."""
    return {
        f"{name}.{kind}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def fill_adam(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor], source: str) -> None:
    """Restore the state that ``adam_tensors`` returned."""
    capturable = bool(optimizer.defaults.get("capturable"))  # then steps are counted on the device
    for name, parameter in model.named_parameters():
        kinds = {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.rpartition(".")[0] == name}
        if kinds and kinds.keys() != ADAM:
            raise ArtifactError(
                f"{source} holds {', '.join(sorted(kinds))} of {name}, expected {', '.join(sorted(ADAM))}."
            )
        for kind, value in kinds.items():
            shape = () if kind == "step" else tuple(parameter.shape)
            if tuple(value.shape) != shape or not value.is_floating_point():
                raise ArtifactError(
                    f"{source} holds {name}.{kind} as {tuple(value.shape)}, expected {shape}; "
                    "use it with the dataset and settings that it was trained with."
                )
            _require_finite(value, f"{name}.{kind}", source)
        if kinds:
            optimizer.state[parameter] = {
                kind: value.clone() if kind == "step" and not capturable else value.to(parameter.device, copy=True)
                for kind, value in kinds.items()
            }
