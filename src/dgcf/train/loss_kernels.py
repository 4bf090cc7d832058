# The arguments of Triton kernels are pointers, whose types mypy cannot know.
# mypy: disable-error-code="untyped-decorator,no-untyped-def"
"""Triton kernels of losses: the value and the gradient in one pass, for trainings side by side (lanes)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dgcf.graph.kernels.cuda.sparse import block_shape


def bpr_step(final: Tensor, norms: Tensor, size: int, decay: float, *, hardest: bool) -> tuple[Tensor, Tensor]:
    """Return the losses (lanes, size) and the gradient of ``final``, as ``Objective.fused`` describes.

    All negatives of a pair count, or only the ``hardest``; of equal ones the first, as these are one item drawn twice.
    """
    lanes, rows, D = final.shape
    losses = torch.empty(lanes, size, dtype=torch.float32, device=final.device)
    grad = torch.empty_like(final)
    bpr_kernel[(size, lanes)](
        losses, grad, final, norms, decay, size, rows // size - 2, rows, D,
        HARDEST=hardest, BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1,
    )  # fmt: skip
    return losses, grad


@triton.jit
def bpr_kernel(losses, grad, final, norms, decay, B, n, R, D, HARDEST: tl.constexpr, BLOCK_D: tl.constexpr):
    """Write one pair's BPR loss against its n negatives, or the hardest of them, with its L2 term, and its gradient."""
    pair = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)
    mask = columns < D
    final += lane * R * D
    grad += lane * R * D
    norms += lane * R
    user = tl.load(final + pair * D + columns, mask=mask, other=0.0)
    item = tl.load(final + (B + pair) * D + columns, mask=mask, other=0.0)
    score = tl.sum(user * item, axis=0)
    first = 2 * B + pair * n
    hardest = 0
    if HARDEST:
        highest = -float("inf")
        for k in range(n):
            other = tl.load(final + (first + k) * D + columns, mask=mask, other=0.0)
            other_score = tl.sum(user * other, axis=0)
            hardest = tl.where(other_score > highest, k, hardest)
            highest = tl.maximum(other_score, highest)
    to_user = tl.zeros((BLOCK_D,), dtype=tl.float32)
    to_item = 0.0
    loss = 0.0
    squares = tl.load(norms + pair) + tl.load(norms + B + pair)
    counted = 1 if HARDEST else n
    share = 1.0 / (B * counted)
    for k in range(n):
        at = first + k
        counts = 1.0
        if HARDEST:
            counts = tl.where(k == hardest, 1.0, 0.0)
        other = tl.load(final + at * D + columns, mask=mask, other=0.0)
        ahead = tl.sum(user * other, axis=0) - score
        small = tl.exp(-tl.abs(ahead))
        loss += counts * (tl.maximum(ahead, 0.0) + tl.log(1.0 + small))  # log(1 + e^ahead) without its overflow
        weight = tl.where(ahead > 0, 1.0 / (1.0 + small), small / (1.0 + small)) * share * counts
        to_user += weight * (other - item)
        to_item -= weight
        tl.store(grad + at * D + columns, weight * user, mask=mask)
        squares += tl.load(norms + at)
    tl.store(grad + pair * D + columns, to_user, mask=mask)
    tl.store(grad + (B + pair) * D + columns, to_item * user, mask=mask)
    tl.store(losses + lane * B + pair, loss / counted + 0.5 * decay * squares)
