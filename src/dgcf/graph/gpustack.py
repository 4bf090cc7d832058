"""The whole stack of propagation layers as one differentiable step on a CUDA device, for the rows of a batch.

    E⁽ˡ⁾ = M̂⁽ˡ⁾ (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)   for l = 1 … L,      final = mean of E⁽⁰⁾ … E⁽ᴸ⁾ (or E⁽ᴸ⁾), at the batch's rows.

Of the last layer only those rows are computed. In the adjoint, what flows into layer L − 1 comes from those rows alone:
the others are skipped by a flag, not multiplied by zero. No (N, dim) sum of layers exists: the read-out gathers rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgcf.graph.gpu import GpuMatrix, collect


@dataclass(frozen=True)
class DeviceDrop:
    """The draws of one step, layer by layer, as words on the device: a captured step reads new ones at every replay.

    ``keys``: (layers, 2) int32, the two words of each layer (``EdgeDrop.keys``); ``limit`` is ``floor(p · 2³²)``.
    """

    keys: Tensor
    limit: int
    kind: str = "entries"

    def at(self, layer: int) -> dict[str, Any]:
        return {"keys": self.keys[layer], "limit": self.limit, "kind": self.kind}


class FusedStack(torch.autograd.Function):
    """``(x, α, …) ↦ (final, ego)``: the read-out and the layer-0 rows of the batch, (R, dim) in float32 each.

    ``x`` (N, dim) float32; ``alpha`` (layers, N) or None; ``rows`` (R,) int64, repeats allowed. ``storage`` is the type
    in which layers and their gradients are kept between products: float32 or bfloat16.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        alpha: Tensor | None,
        matrix: GpuMatrix,
        layers: int,
        rows: Tensor,
        drop: DeviceDrop | None,
        mean: bool,
        storage: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        kept = [x.to(storage)]
        for layer in range(layers - 1):
            out = torch.empty_like(kept[-1])
            kept.append(matrix.product(kept[-1], out, alpha=_gate(alpha, layer), **_draw(drop, layer)))
        last = layers - 1
        final = matrix.rows(kept[-1], rows, alpha=_gate(alpha, last), **_draw(drop, last))
        ego = x.index_select(0, rows)
        if mean:
            for below in reversed(kept[1:]):
                final += below.index_select(0, rows)
            final = (final + ego) / (layers + 1)
        ctx.save_for_backward(rows, *([] if alpha is None else [alpha]), *kept)
        ctx.about = (alpha is not None, matrix, layers, drop, mean, storage, x.shape)
        return final, ego

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_final: Tensor, grad_ego: Tensor) -> tuple[Any, ...]:
        gated, matrix, layers, drop, mean, storage, shape = ctx.about
        rows, *saved = ctx.saved_tensors
        alpha = saved.pop(0) if gated else None
        ranked, order = rows.sort(stable=True)
        flags = torch.zeros(shape[0], dtype=torch.int32, device=rows.device).index_fill_(0, rows, 1)
        # Rows that the batch does not name are never read, so the buffers need no zeros.
        sent = grad_final / (layers + 1) if mean else grad_final
        straight = collect(sent.contiguous(), order, ranked, torch.empty(shape, device=rows.device))
        into_first = (sent + grad_ego if mean else grad_ego).contiguous()
        bottom = collect(into_first, order, ranked, torch.empty(shape, device=rows.device))
        dots = torch.empty(layers, shape[0], device=rows.device) if gated else None
        grad = straight
        for layer in reversed(range(layers)):
            out = torch.empty(shape, dtype=storage if layer else torch.float32, device=rows.device)
            matrix.adjoint(
                grad,
                out,
                alpha=_gate(alpha, layer),
                inner=saved[layer] if gated else None,
                dot=None if dots is None else dots[layer],
                base=bottom if layer == 0 else straight if mean else None,
                flags=flags,
                sparse=layer == layers - 1,
                **_draw(drop, layer),
            )
            grad = out
        shared = alpha is not None and len(alpha) == 1
        grad_alpha = dots.sum(dim=0, keepdim=True) if dots is not None and shared else dots
        return grad, grad_alpha, None, None, None, None, None, None


def _gate(alpha: Tensor | None, layer: int) -> Tensor | None:
    return None if alpha is None else alpha[layer % len(alpha)]


def _draw(drop: DeviceDrop | None, layer: int) -> dict[str, Any]:
    return {} if drop is None else drop.at(layer)
