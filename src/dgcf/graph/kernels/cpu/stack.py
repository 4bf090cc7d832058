"""The whole stack of propagation layers as one differentiable step on a CPU, for the rows of a batch.

    E⁽ˡ⁾ = M̂⁽ˡ⁾ (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)   for l = 1 … L,      final = mean of E⁽⁰⁾ … E⁽ᴸ⁾ (or E⁽ᴸ⁾), at the batch's rows.

No column touches another one in this, upwards or downwards. So each thread takes a strip of columns through all layers
on its own: threads meet twice a step and not at every operation, all have the same work however the degrees lie, and
a strip of N × 32 numbers often fits the cache of one core. Nothing is added in an order that depends on the threads:
their number changes no bit.
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
"""Columns that stay together. A product of 16 takes longer than one of 32 (ML1M: 0.45 against 0.39 ms)."""
HELD = 1 << 28
"""Bytes of drawn weights that are held at a time: all layers of most graphs, one layer of a huge one."""
Scale = Tensor | float | None


@dataclass(frozen=True)
class Named:
    """The nodes that a batch names: ``rows`` (R,) int64, as the batch has them.

    ``places``: (N, R), ``weight`` where a place of the batch names a node: it collects what the batch sends back.
    ``times``: (N,), how often each node is named. ``distinct``: (n_distinct,), each named node once; ``place``: (R,),
    where among those the batch's rows lie.
    """

    rows: Tensor
    places: CSR

    @classmethod
    def of(cls, rows: Tensor, x: Tensor, weight: float) -> Named:
        """The nodes of ``rows``, of as many as ``x`` has rows."""
        names, n_nodes = rows.numpy(), x.shape[0]
        # NumPy sorts 16-bit numbers by counting, several times faster than longer ones.
        order = np.argsort(names.astype(np.uint16 if n_nodes <= 1 << 16 else np.int32), kind="stable")
        offsets = np.zeros(n_nodes + 1, dtype=np.int32)
        np.cumsum(np.bincount(names, minlength=n_nodes), out=offsets[1:])
        found = CSR(
            torch.from_numpy(offsets),
            torch.from_numpy(order.astype(np.int32)),
            x.new_full(rows.shape, weight),
            len(rows),
        )
        return cls(rows, found)

    @cached_property
    def times(self) -> Tensor:
        return self.places.offsets.diff().to(self.places.values.dtype)

    @cached_property
    def distinct(self) -> Tensor:
        return self.times.nonzero().squeeze(1)

    @cached_property
    def place(self) -> Tensor:
        return torch.searchsorted(self.distinct, self.rows)


@dataclass(frozen=True)
class Plan:
    """What all strips of a step share.

    ``scales[l]``: the gate of layer l and the ``1/(1-p)`` of drop-edge in one factor, (N, 1) or a number; None for 1.
    ``cut``: the last layer's matrix for the distinct named rows alone, where that is less work.
    """

    scales: tuple[Scale, ...]
    mean: bool
    batch: Named
    cut: CSR | None

    @property
    def layers(self) -> int:
        return len(self.scales)


class Strip:
    """Some columns of all layers, which one thread takes up the stack and down again."""

    def __init__(self, plan: Plan, columns: slice) -> None:
        self.plan, self.columns = plan, columns
        self.kept: list[Tensor] = []  # E⁽⁰⁾, E⁽¹⁾ …, (N, width) each

    def up(self, x: Tensor, matrices: Sequence[tuple[int, CSR]], final: Tensor) -> None:
        """Some layers upwards; after the last one, the rows of the batch into the strip of ``final``."""
        plan, columns = self.plan, self.columns
        if not self.kept:
            self.kept.append(x.detach()[:, columns].contiguous())
        for layer, M in matrices:
            self.kept.append(product(M, _scaled(self.kept[layer], plan.scales[layer])))
        if len(self.kept) > plan.layers:
            found = self._read_out(self.kept.pop())
            torch.div(found, plan.layers + 1 if plan.mean else 1, out=final[:, columns])

    def _read_out(self, last: Tensor) -> Tensor:
        """The last layer, or the sum of all layers, at the batch's rows: (R, width)."""
        plan, batch = self.plan, self.plan.batch
        below = self.kept if plan.mean else []
        if plan.cut is None:  # the batch names so much that whole layers are added faster than their rows are gathered
            for layer in below:
                last += layer
            return last.index_select(0, batch.rows)
        found = last.index_select(0, batch.place)
        for layer in below:
            found += layer.index_select(0, batch.rows)
        return found

    def _turn(self, sent: Tensor) -> None:
        """Collect what the batch sends back: ``grad`` to the last layer, ``straight`` to the others."""
        plan, batch = self.plan, self.plan.batch
        straight = product(batch.places, sent[:, self.columns].contiguous())
        self.grad = straight if plan.cut is None else straight.index_select(0, batch.distinct)
        self.straight = straight if plan.mean else None

    def down(
        self,
        sent: Tensor,
        decay: Tensor | None,
        matrices: Sequence[tuple[int, CSR]],
        dots: Tensor | None,
        out: Tensor,
    ) -> None:
        """Some layers downwards; below the first one, the gradient of E⁽⁰⁾ into the strip of ``out``.

        ``sent``: (R, dim), the gradient of the read-out; ``decay``: (N, 1), by which L2 multiplies E⁽⁰⁾. ``dots``:
        (n_blocks, layers, N), where a gate's gradient is left, a block of columns each.
        """
        plan = self.plan
        for layer, M in matrices:
            if layer == plan.layers - 1:
                self._turn(sent)
            grad = product(M, self.grad)
            if dots is not None:
                self._dot(grad, self.kept[layer], dots[:, layer])
            self.grad = grad = _scaled_onto(self.straight, grad, plan.scales[layer])
            if layer == 0:
                out[:, self.columns] = grad if decay is None else grad.addcmul_(self.kept[0], decay)

    def _dot(self, grad: Tensor, inner: Tensor, dots: Tensor) -> None:
        """The inner products of two matrices' rows, block by block."""
        first = self.columns.start // BLOCK
        for block, (a, b) in enumerate(
            zip(torch.split(grad, BLOCK, dim=1), torch.split(inner, BLOCK, dim=1), strict=True)
        ):
            torch.linalg.vecdot(a, b, out=dots[first + block])


class StripStack(torch.autograd.Function):
    """``(x, α, …) ↦ (final, ½ Σ ‖x_r‖²)``: the read-out of the batch's rows, (R, dim), and their L2 term in layer 0.

    ``x`` (N, dim); ``alpha`` (layers, N), (1, N) if shared, or None; ``drops``: what each layer leaves out; ``rows``
    (R,) int64, repeats allowed; ``begun``: what has been drawn already, perhaps, of those ``drops``.
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
        batch = Named.of(rows, x, 1.0 / (len(drops) + 1) if mean else 1.0)
        cut = matrix.rows(batch.distinct, drops[-1]) if cutting else None
        plan = Plan(tuple(_scale(alpha, layer, drop) for layer, drop in enumerate(drops)), mean, batch, cut)
        strips = [Strip(plan, columns) for columns in strips_of(x.shape[1])]
        final = x.new_empty(len(rows), x.shape[1])
        for matrices in begun.groups(cut):
            together([partial(strip.up, x, matrices, final) for strip in strips])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.strips, ctx.drops, ctx.cut = strips, drops, cut
        ctx.gates = 0 if alpha is None else len(alpha)
        ctx.batch = batch
        with undivided():  # or the sum would depend on how many threads there are
            squares = torch.linalg.vecdot(x, x).mul_(batch.times).sum()
        # Drawn while the loss is computed, which one thread does alone.
        ctx.drawing = Drawing(matrix, drops, cut=cutting, adjoint=True) if any(ctx.needs_input_grad) else None
        return final, squares / 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sent: Tensor | None, sent_l2: Tensor | None) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        batch: Named = ctx.batch
        n_nodes, dim = x.shape
        if sent is None:
            sent = x.new_zeros(len(batch.rows), dim)
        out = torch.empty_like(x)
        dots = x.new_empty(-(-dim // BLOCK), len(ctx.drops), n_nodes) if ctx.gates else None
        decay = None if sent_l2 is None else (batch.times * sent_l2).unsqueeze(1)
        cut = None if ctx.cut is None else transpose(ctx.cut)
        for matrices in ctx.drawing.groups(cut):
            together([partial(strip.down, sent, decay, matrices, dots, out) for strip in ctx.strips])
        return out, None if dots is None else _gate_gradient(dots, ctx.drops, ctx.gates), *[None] * 5


@cache
def _keep_memory() -> None:
    """Have the C library keep what is freed: it may give whole layers back after each step, to be cleared anew.

    glibc keeps what is smaller than the largest block that was mapped and freed, up to 32 MiB; a block that nobody
    writes to takes no memory. LightGCN on ML1M: 0.1 page faults a step; before, 56 in one process and 1,197 in another.
    """
    np.empty((32 << 20) - (1 << 14), dtype=np.uint8)


def strips_of(dim: int) -> list[slice]:
    """Whole blocks of columns for each of torch's threads, as even as can be; no more strips than blocks."""
    blocks = -(-dim // BLOCK)
    n = min(available(), blocks)
    ends = [min(dim, BLOCK * (blocks * (strip + 1) // n)) for strip in range(n)]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


class Drawing:
    """Each layer and its matrix, from below or (``adjoint``) from above, as many at a time as may be held.

    Idle threads draw the first ones from now on. With ``cut`` the last layer is not drawn.
    """

    def __init__(self, matrix: StoredMatrix, drops: Sequence[EdgeDrop | None], *, cut: bool, adjoint: bool) -> None:
        self.what = (matrix, tuple(drops), cut, adjoint)
        self._matrix, self._drops, self._adjoint = matrix, drops, adjoint
        self._cut = len(drops) - 1 if cut else None
        layers = list(range(len(drops)))[:: -1 if adjoint else 1]
        at_once = len(layers) if not any(drops) else max(1, HELD // max(1, matrix.values.nbytes))
        self._groups = [layers[first : first + at_once] for first in range(0, len(layers), at_once)]
        self._begun: Callable[[], list[CSR]] | None = self._begin(self._groups[0])

    def _begin(self, group: list[int]) -> Callable[[], list[CSR]]:
        drops = [self._drops[layer] for layer in group if layer != self._cut]
        return self._matrix.drawing(drops, adjoint=self._adjoint)

    def groups(self, cut: CSR | None) -> Iterator[list[tuple[int, CSR]]]:
        """``cut``: the matrix of the last layer, if it was left out."""
        for group in self._groups:
            finish, self._begun = self._begun or self._begin(group), None
            drawn = finish()
            left = iter(drawn)
            yield [(layer, cut if cut is not None and layer == self._cut else next(left)) for layer in group]
            self._matrix.reuse(drawn)


def _scale(alpha: Tensor | None, layer: int, drop: EdgeDrop | None) -> Scale:
    if alpha is None:
        return None if drop is None else drop.rescale
    gate = alpha.detach()[layer % len(alpha)].unsqueeze(1)
    return gate if drop is None else gate * drop.rescale


def _scaled(x: Tensor, scale: Scale) -> Tensor:
    return x if scale is None else x * scale


def _scaled_onto(base: Tensor | None, x: Tensor, scale: Scale) -> Tensor:
    """``base + scale · x`` in the memory of x, in one pass; without a base, ``scale · x``."""
    if base is None:
        return x if scale is None else x.mul_(scale)
    if isinstance(scale, Tensor):
        return torch.addcmul(base, x, scale, out=x)
    return torch.add(base, x, alpha=1.0 if scale is None else scale, out=x)


def _gate_gradient(dots: Tensor, drops: Sequence[EdgeDrop | None], gates: int) -> Tensor:
    """(n_gates, N), of (n_blocks, layers, N); a gate that is shared hears all layers."""
    found = dots.sum(dim=0)
    for layer, drop in enumerate(drops):
        if drop is not None:
            found[layer] *= drop.rescale
    return found.sum(dim=0, keepdim=True) if gates < len(drops) else found
