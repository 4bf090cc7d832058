"""Triton kernels of losses against float64 references."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest
import torch

from dgcf.train.losses import bpr, bpr_hardest

pytestmark = pytest.mark.gpu
# With TRITON_INTERPRET=1 the same kernels run on the CPU, slowly.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not torch.cuda.is_available() and not INTERPRETED:
    pytest.skip("needs a CUDA device", allow_module_level=True)
DEVICE = "cpu" if INTERPRETED else "cuda"

from dgcf.train.engines.seed_lanes import FusedLoss  # noqa: E402
from dgcf.train.loss_kernels import bpr_step  # noqa: E402


def distance(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float((value.double().cpu() - reference).norm() / reference.norm().clamp_min(1e-30))


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """Return a float32 copy on the device."""
    return tensor.detach().to(DEVICE, torch.float32, copy=True)


@pytest.mark.parametrize("loss", [bpr, bpr_hardest])
@pytest.mark.parametrize("negatives", [1, 3])
def test_bpr_and_its_gradient(loss: Callable[..., torch.Tensor], negatives: int) -> None:
    size, dim, decay = 40, 24, 0.2
    final = (3 * torch.randn(2, size * (2 + negatives), dim, dtype=torch.float64)).requires_grad_()
    norms = torch.rand(2, size * (2 + negatives), dtype=torch.float64)
    values = []
    for rows in final:
        own = rows[2 * size :].view(size, negatives, dim)
        values.append(loss(rows[:size], rows[size : 2 * size], own))
    sum(values).backward()
    losses, grad = bpr_step(on_device(final), on_device(norms), size, decay, hardest=loss is bpr_hardest)
    expected = torch.stack(values) + 0.5 * decay * norms.sum(dim=1) / size
    assert distance(losses.mean(dim=1), expected.detach()) < 1e-6
    assert distance(grad, final.grad) < 1e-6


@pytest.mark.parametrize("loss", [bpr, bpr_hardest])
def test_fused_loss_has_a_gradient(loss: Callable[..., torch.Tensor]) -> None:
    size, dim, negatives = 40, 24, 3
    rows = torch.randn(size * (2 + negatives), dim, dtype=torch.float64, requires_grad=True)
    expected = loss(rows[:size], rows[size : 2 * size], rows[2 * size :].view(size, negatives, dim))
    (expected**2).backward()
    again = on_device(rows).detach().requires_grad_()
    fused = partial(bpr_step, hardest=loss is bpr_hardest)
    value = FusedLoss.apply(again, size, fused)
    (value**2).backward()
    assert distance(value.detach(), expected.detach()) < 1e-6
    assert distance(again.grad, rows.grad) < 1e-6
