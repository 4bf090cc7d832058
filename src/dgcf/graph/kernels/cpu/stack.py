"""The stack of propagation layers as one differentiable operation on a CPU, for the rows of a batch.

    E⁽ˡ⁾ = M̂⁽ˡ⁾ (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)   for l = 1 … L,      final = mean of E⁽⁰⁾ … E⁽ᴸ⁾ (or E⁽ᴸ⁾), at the batch's rows.

Columns are independent, forward and backward. So each thread takes a strip of columns through all layers: threads
synchronise twice a step and not after every operation, all have the same work for any degrees, and a strip of N × 32
numbers often fits the cache of one core. No sum depends on the threads, so their number changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgcf.graph.edge_dropout import EdgeDrop
from dgcf.graph.kernels.cpu.sparse import CSR, product, transpose
from dgcf.graph.kernels.cpu.threads import available, together, undivided
from dgcf.graph.operators.stored import StoredMatrix

BLOCK = 32
"""The fewest columns of a strip. A product of 16 takes longer than one of 32 (ML1M: 0.45 against 0.39 ms)."""
HELD = 1 << 28
"""The most bytes of drawn weights held at a time: all layers of most graphs, one layer of a huge one."""
Scale = Tensor | float | None


@dataclass(frozen=True)
class BatchRows:
    """The nodes of a batch: ``rows`` (R,) int64, with repeats.

    ``positions``: (N, R), ``weight`` where a row of the batch is a node, so that a product with it collects the
    gradient of the nodes. ``times``: (N,), how often each node occurs. ``distinct``: (n_distinct,), each node once;
    ``position``: (R,), where among those each row is.
    """

    rows: Tensor
    positions: CSR

    @classmethod
    def of(cls, rows: Tensor, x: Tensor, weight: float) -> BatchRows:
        """Return the nodes of ``rows``, of as many as ``x`` has rows."""
        nodes, n_nodes = rows.numpy(), x.shape[0]
        # NumPy sorts 16-bit numbers by counting, several times faster than longer ones.
        order = np.argsort(nodes.astype(np.uint16 if n_nodes <= 1 << 16 else np.int32), kind="stable")
        offsets = np.zeros(n_nodes + 1, dtype=np.int32)
        np.cumsum(np.bincount(nodes, minlength=n_nodes), out=offsets[1:])
        places = torch.from_numpy(order.astype(np.int32))
        return cls(rows, CSR(torch.from_numpy(offsets), places, x.new_full(rows.shape, weight), len(rows)))

    @cached_property
    def times(self) -> Tensor:
        return self.positions.offsets.diff().to(self.positions.values.dtype)

    @cached_property
    def distinct(self) -> Tensor:
        return self.times.nonzero().squeeze(1)

    @cached_property
    def position(self) -> Tensor:
        return torch.searchsorted(self.distinct, self.rows)


@dataclass(frozen=True)
class Plan:
    """The values that all strips of a step share.

    ``scales[l]``: the gate of layer l and the ``1/(1-p)`` of edge dropout as one factor, (N, 1) or a number, or None.
    ``cut``: the last layer's matrix for the distinct rows of the batch only, if that is less work.
    """

    scales: tuple[Scale, ...]
    mean: bool
    batch: BatchRows
    cut: CSR | None

    @property
    def layers(self) -> int:
        return len(self.scales)


class Strip:
    """Some columns of all layers, which one thread computes forward and backward."""

    def __init__(self, plan: Plan, columns: slice) -> None:
        self.plan, self.columns = plan, columns
        self.kept: list[Tensor] = []  # E⁽⁰⁾, E⁽¹⁾ …, (N, width) each

    def forward(self, x: Tensor, matrices: Sequence[tuple[int, CSR]], final: Tensor) -> None:
        """Compute some layers; after the last one, write the batch's rows to the strip of ``final``."""
        plan, columns = self.plan, self.columns
        if not self.kept:
            self.kept.append(x.detach()[:, columns].contiguous())
        for layer, M in matrices:
            self.kept.append(product(M, _scaled(self.kept[layer], plan.scales[layer])))
        if len(self.kept) > plan.layers:
            total = self._readout(self.kept.pop())
            torch.div(total, plan.layers + 1 if plan.mean else 1, out=final[:, columns])

    def _readout(self, last: Tensor) -> Tensor:
        """Return the last layer, or the sum of all layers, at the batch's rows, (R, width)."""
        plan, batch = self.plan, self.plan.batch
        below = self.kept if plan.mean else []
        if plan.cut is None:  # the batch is so large that adding whole layers is faster than gathering rows
            for layer in below:
                last += layer
            return last.index_select(0, batch.rows)
        total = last.index_select(0, batch.position)
        for layer in below:
            total += layer.index_select(0, batch.rows)
        return total

    def _begin_backward(self, sent: Tensor) -> None:
        """Start the backward pass: ``grad`` is the gradient of the last layer, ``straight`` that of the others."""
        plan, batch = self.plan, self.plan.batch
        straight = product(batch.positions, sent[:, self.columns].contiguous())
        self.grad = straight if plan.cut is None else straight.index_select(0, batch.distinct)
        self.straight = straight if plan.mean else None

    def backward(
        self, sent: Tensor, decay: Tensor | None, matrices: Sequence[tuple[int, CSR]], dots: Tensor | None, out: Tensor
    ) -> None:
        """Propagate the gradient through some layers; after the first, write that of E⁽⁰⁾ to the strip of ``out``.

        ``sent``: (R, dim), the gradient of the readout; ``decay``: (N, 1), the factor of E⁽⁰⁾ from L2. ``dots``:
        (n_blocks, layers, N), receives the gradient of the gates, one part for each block of columns.
        """
        plan = self.plan
        for layer, M in matrices:
            if layer == plan.layers - 1:
                self._begin_backward(sent)
            grad = product(M, self.grad)
            if dots is not None:
                self._dot(grad, self.kept[layer], dots[:, layer])
            self.grad = grad = _scaled_onto(self.straight, grad, plan.scales[layer])
            if layer == 0:
                out[:, self.columns] = grad if decay is None else grad.addcmul_(self.kept[0], decay)

    def _dot(self, grad: Tensor, inner: Tensor, dots: Tensor) -> None:
        """Write the inner products of the rows of two matrices, block by block."""
        first = self.columns.start // BLOCK
        blocks = zip(torch.split(grad, BLOCK, dim=1), torch.split(inner, BLOCK, dim=1), strict=True)
        for block, (a, b) in enumerate(blocks, start=first):
            torch.linalg.vecdot(a, b, out=dots[block])


class StripStack(torch.autograd.Function):
    """``(x, α, …) ↦ (final, ½ Σ ‖x_r‖²)``: the readout of the batch's rows, (R, dim), and their L2 term in layer 0.

    ``x`` (N, dim); ``alpha`` (layers, N), (1, N) if shared, or None; ``drops``: the edge dropout of each layer;
    ``rows`` (R,) int64, repeats allowed; ``begun``: a drawing started earlier, used if it is of these ``drops``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        alpha: Tensor | None,
        matrix: StoredMatrix,
        drops: tuple[EdgeDrop | None, ...],
        rows: Tensor,
        mean: bool,
        begun: Drawing | None = None,
    ) -> tuple[Tensor, Tensor]:
        _keep_memory()
        cutting = matrix.worth_cutting(len(rows))
        if begun is None or begun.what != (matrix, drops, cutting, False):
            begun = Drawing(matrix, drops, cut=cutting, adjoint=False)
        batch = BatchRows.of(rows, x, 1.0 / (len(drops) + 1) if mean else 1.0)
        cut = matrix.rows(batch.distinct, drops[-1]) if cutting else None
        plan = Plan(tuple(_scale(alpha, layer, drop) for layer, drop in enumerate(drops)), mean, batch, cut)
        strips = [Strip(plan, columns) for columns in strips_of(x.shape[1])]
        final = x.new_empty(len(rows), x.shape[1])
        for matrices in begun.groups(cut):
            together([partial(strip.forward, x, matrices, final) for strip in strips])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.strips, ctx.drops, ctx.cut, ctx.batch = strips, drops, cut, batch
        ctx.gates = 0 if alpha is None else len(alpha)
        with undivided():  # otherwise the sum would depend on the number of threads
            squares = torch.linalg.vecdot(x, x).mul_(batch.times).sum()
        # Drawn while the loss is computed, which one thread does alone.
        ctx.drawing = Drawing(matrix, drops, cut=cutting, adjoint=True) if any(ctx.needs_input_grad) else None
        return final, squares / 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sent: Tensor | None, sent_l2: Tensor | None) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        batch: BatchRows = ctx.batch
        n_nodes, dim = x.shape
        if sent is None:
            sent = x.new_zeros(len(batch.rows), dim)
        out = torch.empty_like(x)
        dots = x.new_empty(-(-dim // BLOCK), len(ctx.drops), n_nodes) if ctx.gates else None
        decay = None if sent_l2 is None else (batch.times * sent_l2).unsqueeze(1)
        cut = None if ctx.cut is None else transpose(ctx.cut)
        for matrices in ctx.drawing.groups(cut):
            together([partial(strip.backward, sent, decay, matrices, dots, out) for strip in ctx.strips])
        return out, None if dots is None else _gate_gradient(dots, ctx.drops, ctx.gates), *[None] * 5


@cache
def _keep_memory() -> None:
    """Make the C library keep freed memory: otherwise it may return whole layers to the system after each step.

    glibc keeps blocks smaller than the largest that was mapped and freed, up to 32 MiB; a block that is never written
    takes no memory. LightGCN on ML1M: 0.1 page faults a step; before, 56 in one process and 1,197 in another.
    """
    np.empty((32 << 20) - (1 << 14), dtype=np.uint8)


def strips_of(dim: int) -> list[slice]:
    """Return strips of whole blocks of columns, as even as possible, one for each of torch's threads."""
    blocks = -(-dim // BLOCK)
    n = min(available(), blocks)
    ends = [min(dim, BLOCK * (blocks * (strip + 1) // n)) for strip in range(n)]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


class Drawing:
    """Draws the matrix of each layer, from the first or (``adjoint``) from the last, as many at a time as may be held.

    Idle threads start with the first ones at once. With ``cut`` the last layer is not drawn.
    """

    def __init__(self, matrix: StoredMatrix, drops: Sequence[EdgeDrop | None], *, cut: bool, adjoint: bool) -> None:
        self.what = (matrix, tuple(drops), cut, adjoint)
        self._matrix, self._drops, self._adjoint = matrix, drops, adjoint
        self._cut = len(drops) - 1 if cut else None
        layers = list(range(len(drops)))[:: -1 if adjoint else 1]
        size = len(layers) if not any(drops) else max(1, HELD // max(1, matrix.values.nbytes))
        self._groups = [layers[first : first + size] for first in range(0, len(layers), size)]
        self._begun: Callable[[], list[CSR]] | None = self._begin(self._groups[0])

    def _begin(self, group: list[int]) -> Callable[[], list[CSR]]:
        drops = [self._drops[layer] for layer in group if layer != self._cut]
        return self._matrix.drawing(drops, adjoint=self._adjoint)

    def groups(self, cut: CSR | None) -> Iterator[list[tuple[int, CSR]]]:
        """Yield groups of layers and their matrices; ``cut``: the matrix of the last layer, if it was not drawn."""
        for group in self._groups:
            finish, self._begun = self._begun or self._begin(group), None
            matrices = finish()
            rest = iter(matrices)
            yield [(layer, cut if cut is not None and layer == self._cut else next(rest)) for layer in group]
            self._matrix.reuse(matrices)


def _scale(alpha: Tensor | None, layer: int, drop: EdgeDrop | None) -> Scale:
    if alpha is None:
        return None if drop is None else drop.rescale
    gate = alpha.detach()[layer % len(alpha)].unsqueeze(1)
    return gate if drop is None else gate * drop.rescale


def _scaled(x: Tensor, scale: Scale) -> Tensor:
    return x if scale is None else x * scale


def _scaled_onto(base: Tensor | None, x: Tensor, scale: Scale) -> Tensor:
    """Return ``base + scale · x`` in the memory of x, in one pass; without a base, ``scale · x``."""
    if base is None:
        return x if scale is None else x.mul_(scale)
    if isinstance(scale, Tensor):
        return torch.addcmul(base, x, scale, out=x)
    return torch.add(base, x, alpha=1.0 if scale is None else scale, out=x)


def _gate_gradient(dots: Tensor, drops: Sequence[EdgeDrop | None], gates: int) -> Tensor:
    """Return the gradient of the gates, (n_gates, N), from (n_blocks, layers, N); a shared gate sums all layers."""
    gradient = dots.sum(dim=0)
    for layer, drop in enumerate(drops):
        if drop is not None:
            gradient[layer] *= drop.rescale
    return gradient.sum(dim=0, keepdim=True) if gates < len(drops) else gradient
