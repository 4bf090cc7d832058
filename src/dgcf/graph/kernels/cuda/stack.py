"""The stack of propagation layers on a CUDA device, forward and adjoint, for the nodes of a batch.

    E⁽ˡ⁾ = M̂⁽ˡ⁾ (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)   for l = 1 … L,      final = mean of E⁽⁰⁾ … E⁽ᴸ⁾ (or E⁽ᴸ⁾), at the batch's nodes.

The last layer is computed for those rows only. In the adjoint, the gradient of layer L − 1 comes from those rows alone:
a flag skips the others. No (N, dim) sum of layers is stored: the readout gathers rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgcf.graph.edge_dropout import EdgeDrop
from dgcf.graph.kernels.cuda.sparse import GpuMatrix, collect, readout


class BatchNodes(NamedTuple):
    """The nodes of a batch, (lanes, R) int64 with repeats; the same sorted, and their positions before sorting."""

    nodes: Tensor
    ranked: Tensor
    order: Tensor


@dataclass(frozen=True)
class GpuStack:
    """``layers`` propagations and a readout: the ``mean`` of all layers, otherwise the last. Without layers, no matrix.

    ``storage``: the type of layers and their gradients between products, float32 or bfloat16. Lanes are trainings side
    by side: x (lanes, N, dim), α (lanes, n_gates, N) with one gate per layer or one for all.
    """

    matrix: GpuMatrix | None
    layers: int
    mean: bool
    storage: torch.dtype = torch.float32

    def forward(
        self, x: Tensor, alpha: Tensor | None, batch: BatchNodes, drops: Sequence[EdgeDrop] | None
    ) -> tuple[Tensor, Tensor, Passed]:
        """Return the final rows (lanes, R, dim), ``‖x‖²`` of their layer-0 rows (lanes, R), and ``Passed``."""
        flags = torch.zeros(x.shape[:2], dtype=torch.int32, device=x.device).scatter_(1, batch.nodes, 1)
        kept = torch.empty(self.layers, *x.shape, dtype=self.storage, device=x.device)
        below = x.to(self.storage)
        for layer in range(self.layers):
            last = layer == self.layers - 1
            drop = None if drops is None else drops[layer]
            assert self.matrix is not None
            self.matrix.product(below, kept[layer], alpha=_gate(alpha, layer), drop=drop, only=flags if last else None)
            below = kept[layer]
        final, norms = readout(x, kept, batch.nodes, mean=self.mean)
        return final, norms, Passed(x, alpha, kept, batch, drops, flags)

    def backward(self, passed: Passed, grad: Tensor, decay: float) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of x and α from that of the final rows, with ``½ decay ‖x‖²`` of each row."""
        x, alpha, kept, batch, drops, flags = passed
        scale = 1.0 / (self.layers + 1) if self.mean else 1.0
        straight, bottom = collect(grad, x, batch.order, batch.ranked, scale=scale, decay=decay, mean=self.mean)
        if self.matrix is None:
            return torch.where(flags[:, :, None] != 0, bottom, 0.0), None
        dots = None if alpha is None else torch.empty(x.shape[0], self.layers, x.shape[1], device=x.device)
        sent = straight
        for layer in reversed(range(self.layers)):
            first = layer == 0
            out = torch.empty(x.shape, dtype=torch.float32 if first else self.storage, device=x.device)
            sent = self.matrix.adjoint(
                sent,
                out,
                alpha=_gate(alpha, layer),
                inner=None if alpha is None else x if first else kept[layer - 1],
                dot=None if dots is None else dots[:, layer],
                base=bottom if first else straight if self.mean else None,
                flags=flags,
                sparse=layer == self.layers - 1,
                drop=None if drops is None else drops[layer],
            )
        if dots is not None and alpha is not None and alpha.shape[1] == 1:
            dots = dots.sum(dim=1, keepdim=True)
        return sent, dots


class Passed(NamedTuple):
    """The values of a forward pass that its adjoint needs."""

    x: Tensor
    alpha: Tensor | None
    kept: Tensor
    batch: BatchNodes
    drops: Sequence[EdgeDrop] | None
    flags: Tensor


class NodeRows(torch.autograd.Function):
    """``x ↦ x[nodes]``, (N, dim) to (R, dim), for one lane; the adjoint adds repeats in a fixed order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, batch: BatchNodes) -> Tensor:
        ctx.batch, ctx.shape = batch, x.shape
        return x.index_select(0, batch.nodes[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        zeros = torch.zeros(1, *ctx.shape, device=grad.device)
        flags = torch.zeros(ctx.shape[0], 1, dtype=torch.bool, device=grad.device)
        flags.index_fill_(0, ctx.batch.nodes[0], value=True)
        summed, _ = collect(
            grad.contiguous()[None], zeros, ctx.batch.order, ctx.batch.ranked, scale=1.0, decay=0.0, mean=False
        )
        return torch.where(flags, summed[0], 0.0), None


def _gate(alpha: Tensor | None, layer: int) -> Tensor | None:
    return None if alpha is None else alpha[:, layer % alpha.shape[1]]
