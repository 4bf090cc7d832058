"""Decode safetensors members; the header is checked against the file's size before any array is created."""

from __future__ import annotations

import math
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.stored import InvalidFileError, NonNegativeInt, check_type, decode_json

HEADER_BYTES = 2**16
"""The largest header that is read; members of an artefact have at most eight arrays."""
LARGEST = 1e16
"""The largest number accepted: inner products of larger ones overflow float32."""
_DTYPES = {"U8": "|u1", "I32": "<i4", "I64": "<i8", "F32": "<f4"}
Arrays = dict[str, NDArray[Any]]


class _Tensor(TypedDict):
    dtype: Literal["U8", "I32", "I64", "F32"]
    shape: list[NonNegativeInt]
    data_offsets: list[NonNegativeInt]


def decode_tensors(data: bytes, name: str) -> Arrays:
    """Return the arrays of a safetensors file as read-only views of ``data``, which they must fill without gaps."""
    start = 8 + int.from_bytes(data[:8], "little")
    if start > min(len(data), HEADER_BYTES):
        raise InvalidFileError(f"{name} has a damaged header")
    header = decode_json(data[8:start], dict[str, Any], name)
    header.pop("__metadata__", None)
    tensors = check_type(header, dict[str, _Tensor], name)
    arrays: Arrays = {}
    end = 0
    for key, tensor in sorted(tensors.items(), key=lambda entry: entry[1]["data_offsets"]):
        dtype, count = np.dtype(_DTYPES[tensor["dtype"]]), math.prod(tensor["shape"])
        if tensor["data_offsets"] != [end, end + count * dtype.itemsize]:
            raise InvalidFileError(f"{name}: the bytes of {key[:40]!r} do not follow from its shape")
        end += count * dtype.itemsize
        if end > len(data) - start or len(tensor["shape"]) > 3 or any(n > len(data) for n in tensor["shape"]):
            raise InvalidFileError(f"{name}: {key[:40]!r} is larger than the file")
        array = np.frombuffer(data, dtype, count, start + end - count * dtype.itemsize).reshape(tensor["shape"])
        arrays[key] = array if array.flags.aligned else array.copy()
    if end != len(data) - start:
        raise InvalidFileError(f"{name} has {len(data) - start - end:,} bytes that belong to no array")
    return arrays


def floats(arrays: Arrays, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a float32 array of this shape; raise if a number is not finite or beyond ``LARGEST``."""
    array = _named(arrays, name, np.float32)
    if array.shape != shape:
        raise InvalidFileError(f"{name} has the shape {array.shape}, expected {shape}")
    # Not isfinite(): minimum and maximum need no memory, and NaN fails both comparisons.
    if array.size and not (array.min() >= -LARGEST and array.max() <= LARGEST):
        raise InvalidFileError(f"{name} holds a number that is not finite, or beyond {LARGEST:g}")
    return array


def integers(arrays: Arrays, name: str, dtype: str) -> NDArray[Any]:
    """Return a one-dimensional array of integers of a NumPy dtype."""
    array = _named(arrays, name, dtype)
    if array.ndim != 1:
        raise InvalidFileError(f"{name} has {array.ndim} dimensions, expected one")
    return array


def _named(arrays: Arrays, name: str, dtype: Any) -> NDArray[Any]:
    if name not in arrays:
        raise InvalidFileError(f"there is no array {name}")
    if arrays[name].dtype != dtype:
        raise InvalidFileError(f"{name} is {arrays[name].dtype}, expected {np.dtype(dtype)}")
    return arrays[name]
