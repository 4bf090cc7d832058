"""Sparse products and propagation stacks on each kind of device."""

from importlib.util import find_spec

import torch


def triton_runs(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the Triton kernels can work on tensors of this device and type."""
    return device.type == "cuda" and dtype != torch.float64 and find_spec("triton") is not None
