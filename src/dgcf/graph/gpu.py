# Triton kernels are not Python functions: their arguments are pointers and have no types that mypy could know.
# mypy: disable-error-code="untyped-decorator,no-untyped-def"
"""Triton kernels for the propagation stack: product, gate, drop-edge and read-out of a training step on a CUDA device.

A row is cut into segments of at most ``SEGMENT`` entries, the longest first, so that no row decides the time; the parts
of a cut row are added afterwards, in order. Nothing is added atomically: the same input gives the same bits.
Sums are float32, whatever the storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from dgcf.graph.dropedge import GOLDEN, EdgeDrop
from dgcf.graph.maps import StoredMap
from dgcf.graph.stored import StoredMatrix

SEGMENT = 128
"""Entries that one program sums at most."""


@triton.jit
def _kept(hashes, entries, within, keys, limit, GOLDEN: tl.constexpr):
    """Which entries stay under drop-edge: the formula of ``dgcf.graph.dropedge`` in unsigned 32-bit arithmetic."""
    h = tl.load(hashes + entries, mask=within, other=0).to(tl.uint32, bitcast=True)
    k0 = tl.load(keys).to(tl.uint32, bitcast=True)
    k1 = tl.load(keys + 1).to(tl.uint32, bitcast=True)
    z = (h ^ k0) * k1
    z = (z ^ (z >> 16)) * GOLDEN
    return z >= limit.to(tl.uint32)


@triton.jit
def _sum_entries(
    x, indices, values, hashes, alpha, keys, flags, limit, start, end, D,
    DROP: tl.constexpr, GATE: tl.constexpr, SPARSE: tl.constexpr, GOLDEN: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """``Σ_e v_e α_e x[index_e]`` over the entries from ``start`` to ``end``, (BLOCK_D,) in float32."""
    columns = tl.arange(0, BLOCK_D)
    total = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for first in range(start, end, BLOCK_E):
        entries = first + tl.arange(0, BLOCK_E)
        within = entries < end
        index = tl.load(indices + entries, mask=within, other=0)
        value = tl.load(values + entries, mask=within, other=0.0).to(tl.float32)
        if DROP:
            within = within & _kept(hashes, entries, within, keys, limit, GOLDEN)
        if SPARSE:
            within = within & (tl.load(flags + index, mask=within, other=0) != 0)
        if GATE:
            value = value * tl.load(alpha + index, mask=within, other=0.0)
        mask = within[:, None] & (columns < D)[None, :]
        rows = tl.load(x + index.to(tl.int64)[:, None] * D + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(tl.where(within, value, 0.0)[:, None] * rows, axis=0)
    return total


@triton.jit
def _finish(
    out, row, total, rescale, alpha, inner, dot, base, flags, D,
    ADJOINT_GATE: tl.constexpr, BASE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write one row; in the adjoint also the gate's gradient and what the read-out sends straight to this layer."""
    columns = tl.arange(0, BLOCK_D)
    mask = columns < D
    here = row.to(tl.int64) * D + columns
    total = total * rescale
    if ADJOINT_GATE:
        tl.store(dot + row, tl.sum(total * tl.load(inner + here, mask=mask, other=0.0).to(tl.float32), axis=0))
        total = total * tl.load(alpha + row)
    if BASE:
        total += tl.load(base + here, mask=columns < D * tl.load(flags + row), other=0.0)
    tl.store(out + here, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _segments(
    out, partial, x, indices, values, hashes, alpha, keys, flags, inner, dot, base,
    seg_row, seg_start, seg_end, seg_slot, limit, rescale, N, D, parts, alpha_lane, keys_lane, dot_lane,
    DROP: tl.constexpr, GATE: tl.constexpr, SPARSE: tl.constexpr, ONLY: tl.constexpr, ADJOINT_GATE: tl.constexpr,
    BASE: tl.constexpr, GOLDEN: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One segment a program; a row that is one segment is finished at once, a part of a longer one is put aside."""
    place = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    row = tl.load(seg_row + place)
    flags += lane * N
    if ONLY:  # noqa: SIM102 (the outer one is decided when the kernel is compiled)
        if tl.load(flags + row) == 0:
            return
    slot = tl.load(seg_slot + place)
    whole = lane * N * D
    alpha += lane * alpha_lane
    total = _sum_entries(
        x + whole, indices, values, hashes, alpha, keys + lane * keys_lane, flags, limit,
        tl.load(seg_start + place), tl.load(seg_end + place), D,
        DROP, GATE, SPARSE, GOLDEN, BLOCK_E, BLOCK_D,
    )  # fmt: skip
    if slot < 0:
        _finish(
            out + whole, row, total, rescale, alpha, inner + whole, dot + lane * dot_lane, base + whole, flags, D,
            ADJOINT_GATE, BASE, BLOCK_D,
        )  # fmt: skip
    else:
        tl.store(partial + (lane * parts + slot) * BLOCK_D + tl.arange(0, BLOCK_D), total)


@triton.jit
def _long_rows(
    out, partial, alpha, flags, inner, dot, base, long_row, long_first, rescale, N, D, parts, alpha_lane, dot_lane,
    ONLY: tl.constexpr, ADJOINT_GATE: tl.constexpr, BASE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Add the parts of one long row, in order."""
    place = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    row = tl.load(long_row + place)
    flags += lane * N
    if ONLY:  # noqa: SIM102 (the outer one is decided when the kernel is compiled)
        if tl.load(flags + row) == 0:
            return
    whole = lane * N * D
    total = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for slot in range(tl.load(long_first + place), tl.load(long_first + place + 1)):
        total += tl.load(partial + (lane * parts + slot) * BLOCK_D + tl.arange(0, BLOCK_D))
    _finish(
        out + whole, row, total, rescale, alpha + lane * alpha_lane, inner + whole, dot + lane * dot_lane,
        base + whole, flags, D, ADJOINT_GATE, BASE, BLOCK_D,
    )  # fmt: skip


@triton.jit
def _readout(
    out, norms, x, layers, nodes, scale, first, last, N, D, R, layer_step, nodes_lane, EGO: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """What is ranked of one node of the batch: layers ``first`` to ``last``, summed and scaled; and ``‖x‖²`` of it."""
    place = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)
    mask = columns < D
    here = (lane * N + tl.load(nodes + lane * nodes_lane + place)) * D + columns
    ego = tl.load(x + here, mask=mask, other=0.0)
    total = ego * EGO
    for layer in range(first, last):
        total += tl.load(layers + layer * layer_step + here, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + (lane * R + place) * D + columns, total * scale, mask=mask)
    tl.store(norms + lane * R + place, tl.sum(ego * ego, axis=0))


@triton.jit
def _collect(
    straight, bottom, grad, x, order, ranked, scale, decay, N, D, R, sorted_lane,
    EGO: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """What one node of the batch gets from the loss: the sum of its gradients, in order, and its share of L2."""
    place = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    order += lane * sorted_lane
    ranked += lane * sorted_lane
    node = tl.load(ranked + place)
    before = tl.load(ranked + place - 1, mask=place > 0, other=-1)
    if node != before:
        columns = tl.arange(0, BLOCK_D)
        mask = columns < D
        total = tl.zeros((BLOCK_D,), dtype=tl.float32)
        here = place
        same = node
        while same == node:
            source = lane * R + tl.load(order + here)
            total += tl.load(grad + source * D + columns, mask=mask, other=0.0)
            here += 1
            same = tl.load(ranked + here, mask=here < R, other=-1)
        total = total * scale
        at = (lane * N + node) * D + columns
        tl.store(straight + at, total, mask=mask)
        kept = decay * (here - place).to(tl.float32) * tl.load(x + at, mask=mask, other=0.0)
        tl.store(bottom + at, total * EGO + kept, mask=mask)


@triton.jit
def _bpr(losses, grad, final, norms, decay, B, n, R, D, HARDEST: tl.constexpr, BLOCK_D: tl.constexpr):
    """One pair's BPR against its n negatives, or the hardest of them, and its share of L2: the loss, and the gradient
    of its rows.
    """
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
            found = tl.sum(user * other, axis=0)
            hardest = tl.where(found > highest, k, hardest)
            highest = tl.maximum(found, highest)
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


@dataclass(frozen=True)
class Layout:
    """How the rows of a matrix are cut into segments, (n_segments,) int32 each, and which rows were cut.

    ``slot`` is where a part of a cut row is put aside, -1 for a row that is one segment; the parts of ``long_row[i]``
    are ``long_first[i]`` up to ``long_first[i + 1]``.
    """

    row: Tensor
    start: Tensor
    end: Tensor
    slot: Tensor
    long_row: Tensor
    long_first: Tensor
    parts: int


def layout(offsets: Tensor, device: torch.device, segment: int = SEGMENT) -> Layout:
    """Cut the rows; rows without entries get an empty segment, so that every row of the result is written."""
    indptr = offsets.cpu().numpy().astype(np.int64)
    lengths = np.diff(indptr)
    counts = np.maximum(-(-lengths // segment), 1)
    row = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = indptr[:-1][row] + within * segment
    end = np.minimum(start + segment, indptr[1:][row])
    cut = counts > 1
    slot = np.where(cut[row], np.cumsum(cut[row]) - 1, -1)
    order = np.argsort(start - end, kind="stable")  # the longest first: the short ones fill the gaps at the end
    long_row = np.flatnonzero(cut)
    long_first = np.concatenate([[0], np.cumsum(counts[cut])])

    def there(array: NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(array.astype(np.int32)).to(device)

    return Layout(
        row=there(row[order]),
        start=there(start[order]),
        end=there(end[order]),
        slot=there(slot[order]),
        long_row=there(long_row),
        long_first=there(long_first),
        parts=int(long_first[-1]),
    )


class Draw(NamedTuple):
    """One layer's drop-edge: ``keys`` (lanes, 2) int32, the words of ``EdgeDrop.keys``; ``limit``; its kind."""

    keys: Tensor
    limit: int
    kind: str = "entries"

    @property
    def rescale(self) -> float:
        return 1.0 / (1.0 - self.limit / 2.0**32)


class GpuMatrix:
    """A stored matrix with its layout: the products that a training step needs, forward and adjoint.

    All work on *lanes*, trainings side by side over one graph: ``x`` is (lanes, N, dim). A lane's sums do not know of
    the others, so they are the same to the bit whether it is alone or not.
    """

    def __init__(self, matrix: StoredMatrix) -> None:
        self.matrix, self.device = matrix, matrix.device
        self.layout = layout(matrix.offsets, matrix.device)
        self.n = matrix.exact.shape[0]
        self._nothing = torch.zeros(2, dtype=torch.int32, device=self.device)

    def product(
        self, x: Tensor, out: Tensor, *, alpha: Tensor | None = None, draw: Draw | None = None,
        only: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """``out = M̂ (α ⊙ x)``, (lanes, N, dim); of it, the rows that ``only`` (lanes, N) flags, if given."""
        return self._launch(x, out, alpha=alpha, draw=draw, adjoint=False, flags=only, only=only is not None)

    def adjoint(
        self, grad: Tensor, out: Tensor, *, alpha: Tensor | None = None, inner: Tensor | None = None,
        dot: Tensor | None = None, base: Tensor | None = None, flags: Tensor | None = None, sparse: bool = False,
        draw: Draw | None = None,
    ) -> Tensor:  # fmt: skip
        """``out = α ⊙ (M̂ᵀ grad) + base`` and ``dot = rowsum(inner ⊙ M̂ᵀ grad)``, (lanes, N, dim) and (lanes, N).

        ``inner`` (lanes, N, dim) is what the gate was applied to. ``base`` counts where ``flags`` (lanes, N) is set;
        with ``sparse`` so does ``grad``, and the rest of it is never read.
        """
        return self._launch(
            grad, out, alpha=alpha, draw=draw, adjoint=True, inner=inner, dot=dot, base=base, flags=flags,
            sparse=sparse,
        )  # fmt: skip

    def _launch(
        self, x: Tensor, out: Tensor, *, alpha: Tensor | None, draw: Draw | None, adjoint: bool,
        inner: Tensor | None = None, dot: Tensor | None = None, base: Tensor | None = None,
        flags: Tensor | None = None, sparse: bool = False, only: bool = False,
    ) -> Tensor:  # fmt: skip
        matrix, cut, none = self.matrix, self.layout, self._nothing
        lanes, n, D = x.shape
        shape = block_shape(D, x.element_size())
        hashes = none if draw is None else matrix.hashes(draw.kind, adjoint=adjoint)
        keys, limit, rescale = (none, 0, 1.0) if draw is None else (draw.keys, draw.limit, draw.rescale)
        partial = torch.empty(lanes, max(cut.parts, 1), shape["BLOCK_D"], dtype=torch.float32, device=self.device)
        tail: dict[str, Any] = {
            "ONLY": only,
            "ADJOINT_GATE": adjoint and alpha is not None,
            "BASE": base is not None,
            "BLOCK_D": shape["BLOCK_D"],
            "num_warps": 1,
        }
        extras = [none if part is None else part for part in (inner, dot, base)]
        gate, flagged = (none if part is None else part for part in (alpha, flags))
        steps = [0 if part is None else part.stride(0) for part in (alpha, None if draw is None else keys, dot)]
        _segments[(len(cut.row), lanes)](
            out, partial, x, matrix.indices, matrix.values, hashes, gate, keys, flagged, *extras,
            cut.row, cut.start, cut.end, cut.slot, limit, rescale, n, D, partial.shape[1], *steps,
            DROP=draw is not None, GATE=alpha is not None and not adjoint, SPARSE=sparse, GOLDEN=GOLDEN,
            BLOCK_E=shape["BLOCK_E"], **tail,
        )  # fmt: skip
        if len(cut.long_row):
            _long_rows[(len(cut.long_row), lanes)](
                out, partial, gate, flagged, *extras, cut.long_row, cut.long_first, rescale, n, D, partial.shape[1],
                steps[0], steps[2], **tail,
            )  # fmt: skip
        return out


class GpuMap(StoredMap):
    """The map of a stored matrix on a CUDA device, by the kernels of this module."""

    def __init__(self, matrix: StoredMatrix) -> None:
        super().__init__(matrix)
        self.gpu_matrix = GpuMatrix(matrix)

    def forward(self, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        """``M x`` or ``(M x)[rows]``."""
        out, draw = torch.empty_like(x), self._draw(drop)
        if rows is None:
            return self.gpu_matrix.product(x[None], out[None], draw=draw)[0]
        self.gpu_matrix.product(x[None], out[None], draw=draw, only=self._flags(rows))
        return out.index_select(0, rows)

    def adjoint(self, grad: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        """``Mᵀ grad`` or ``M[rows]ᵀ grad``, with the draws of the forward product; repeats are added in order."""
        draw, shape = self._draw(drop), (self.gpu_matrix.n, grad.shape[1])
        out = torch.empty(1, *shape, dtype=grad.dtype, device=grad.device)
        if rows is None:
            return self.gpu_matrix.adjoint(grad[None], out, draw=draw)[0]
        ranked, order = rows[None].sort(stable=True)
        nothing = torch.zeros(1, *shape, device=grad.device)
        summed, _ = collect(grad[None], nothing, order, ranked, scale=1.0, decay=0.0, mean=False)
        return self.gpu_matrix.adjoint(summed, out, flags=self._flags(rows), sparse=True, draw=draw)[0]

    def _flags(self, rows: Tensor) -> Tensor:
        return torch.zeros(1, self.gpu_matrix.n, dtype=torch.int32, device=rows.device).index_fill_(1, rows, 1)

    def _draw(self, drop: EdgeDrop | None) -> Draw | None:
        if drop is None:
            return None
        if drop.words is not None:
            return Draw(drop.words[None], drop.limit, drop.kind)
        words = torch.from_numpy(np.array([drop.keys], dtype=np.uint32).view(np.int32))
        return Draw(words.to(self.device), drop.limit, drop.kind)


def readout(x: Tensor, layers: Tensor, nodes: Tensor, *, mean: bool) -> tuple[Tensor, Tensor]:
    """The final rows of a batch's nodes, (lanes, R, dim), and ``‖x‖²`` of their rows of layer 0, (lanes, R).

    ``x`` (lanes, N, dim) is layer 0, ``layers`` (L, lanes, N, dim) are the others, ``nodes`` (lanes, R), repeats
    allowed. With ``mean`` all of them count, else the last alone.
    """
    lanes, n, D = x.shape
    depth, size = len(layers), nodes.shape[1]
    out = torch.empty(lanes, size, D, dtype=torch.float32, device=x.device)
    norms = torch.empty(lanes, size, dtype=torch.float32, device=x.device)
    first, scale = (0, 1.0 / (depth + 1)) if mean else (depth - 1, 1.0)
    _readout[(size, lanes)](
        out, norms, x, layers, nodes, scale, first, depth, n, D, size, layers.stride(0), nodes.stride(0),
        EGO=float(mean), BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1,
    )  # fmt: skip
    return out, norms


def collect(
    grad: Tensor, x: Tensor, order: Tensor, ranked: Tensor, *, scale: float, decay: float, mean: bool
) -> tuple[Tensor, Tensor]:
    """The adjoint of ``readout``: what reaches each layer, and what reaches layer 0 with ``decay · times · x`` of L2.

    ``grad`` (lanes, R, dim); ``ranked, order = nodes.sort(stable=True)``. Both results are (lanes, N, dim), and only
    the rows of the batch's nodes are written.
    """
    lanes, n, D = x.shape
    straight, bottom = torch.empty_like(x), torch.empty_like(x)
    _collect[(ranked.shape[1], lanes)](
        straight, bottom, grad, x, order, ranked, scale, decay, n, D, ranked.shape[1], ranked.stride(0),
        EGO=float(mean), BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1,
    )  # fmt: skip
    return straight, bottom


def bpr_step(final: Tensor, norms: Tensor, size: int, decay: float, *, hardest: bool) -> tuple[Tensor, Tensor]:
    """BPR of a batch of ``size`` pairs: losses (lanes, size), whose mean is the loss, and the gradient of ``final``.

    ``final`` (lanes, R, dim) holds the users, the positives and n negatives of each pair, in this order. All negatives
    count, or the ``hardest`` alone, the first of equal ones: those are one item that was drawn twice. The losses have
    ``½ · decay · ‖e‖²`` of each row in them; its gradient is ``collect``'s business.
    """
    lanes, rows, D = final.shape
    losses = torch.empty(lanes, size, dtype=torch.float32, device=final.device)
    grad = torch.empty_like(final)
    _bpr[(size, lanes)](
        losses, grad, final, norms, decay, size, rows // size - 2, rows, D,
        HARDEST=hardest, BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1,
    )  # fmt: skip
    return losses, grad


def block_shape(D: int, element_size: int = 4) -> dict[str, int]:
    """How many entries and columns one warp works on at a time: 4 KiB of gathered rows in flight (measured)."""
    width = max(triton.next_power_of_2(D), 16)
    return {"BLOCK_D": width, "BLOCK_E": min(max(4096 // (width * element_size), 4), 32)}
