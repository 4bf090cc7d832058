# Triton kernels are not Python functions: their arguments are pointers and have no types that mypy could know.
# mypy: disable-error-code="untyped-decorator,no-untyped-def"
"""Triton kernels for the propagation stack: product, gate, drop-edge and read-out of a training step on a CUDA device.

A row is cut into segments of at most ``SEGMENT`` entries, the longest first, so that no row decides the time; the parts
of a cut row are added afterwards, in order. Nothing is added atomically: the same input gives the same bits.
Sums are float32, whatever the storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from dgcf.graph.dropedge import GOLDEN
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
        total += tl.load(base + here, mask=mask & (tl.load(flags + row) != 0), other=0.0)
    tl.store(out + here, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _segments(
    out, partial, x, indices, values, hashes, alpha, keys, flags, inner, dot, base,
    seg_row, seg_start, seg_end, seg_slot, limit, rescale, D,
    DROP: tl.constexpr, GATE: tl.constexpr, SPARSE: tl.constexpr, ADJOINT_GATE: tl.constexpr, BASE: tl.constexpr,
    GOLDEN: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One segment a program; a row that is one segment is finished at once, a part of a longer one is put aside."""
    place = tl.program_id(0)
    row = tl.load(seg_row + place)
    slot = tl.load(seg_slot + place)
    total = _sum_entries(
        x, indices, values, hashes, alpha, keys, flags, limit, tl.load(seg_start + place), tl.load(seg_end + place), D,
        DROP, GATE, SPARSE, GOLDEN, BLOCK_E, BLOCK_D,
    )  # fmt: skip
    if slot < 0:
        _finish(out, row, total, rescale, alpha, inner, dot, base, flags, D, ADJOINT_GATE, BASE, BLOCK_D)
    else:
        tl.store(partial + slot * BLOCK_D + tl.arange(0, BLOCK_D), total)


@triton.jit
def _long_rows(
    out, partial, alpha, flags, inner, dot, base, long_row, long_first, rescale, D,
    ADJOINT_GATE: tl.constexpr, BASE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Add the parts of one long row, in order."""
    place = tl.program_id(0)
    total = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for slot in range(tl.load(long_first + place), tl.load(long_first + place + 1)):
        total += tl.load(partial + slot * BLOCK_D + tl.arange(0, BLOCK_D))
    _finish(
        out, tl.load(long_row + place), total, rescale, alpha, inner, dot, base, flags, D, ADJOINT_GATE, BASE, BLOCK_D
    )


@triton.jit
def _chosen_rows(
    out, x, offsets, indices, values, hashes, alpha, keys, rows, limit, rescale, D,
    DROP: tl.constexpr, GATE: tl.constexpr, GOLDEN: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One row of a batch a program: ``out[p] = (M x)[rows[p]]``."""
    place = tl.program_id(0)
    row = tl.load(rows + place)
    total = _sum_entries(
        x, indices, values, hashes, alpha, keys, x, limit, tl.load(offsets + row), tl.load(offsets + row + 1), D,
        DROP, GATE, False, GOLDEN, BLOCK_E, BLOCK_D,
    )  # fmt: skip
    columns = tl.arange(0, BLOCK_D)
    tl.store(out + place.to(tl.int64) * D + columns, total * rescale, mask=columns < D)


@triton.jit
def _collect(out, grad, order, ranked, n, D, BLOCK_D: tl.constexpr):
    """Sum the gradients of rows that a batch names several times: ``out[r] = Σ_{rows[p] = r} grad[p]``, in order."""
    place = tl.program_id(0)
    row = tl.load(ranked + place)
    before = tl.load(ranked + place - 1, mask=place > 0, other=-1)
    if row != before:
        columns = tl.arange(0, BLOCK_D)
        mask = columns < D
        total = tl.zeros((BLOCK_D,), dtype=tl.float32)
        here = place
        same = row
        while same == row:
            source = tl.load(order + here)
            total += tl.load(grad + source * D + columns, mask=mask, other=0.0)
            here += 1
            same = tl.load(ranked + here, mask=here < n, other=-1)
        tl.store(out + row * D + columns, total, mask=mask)


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


class GpuMatrix:
    """A stored matrix with its layout: the products that one training step needs, forward and adjoint."""

    def __init__(self, matrix: StoredMatrix) -> None:
        self.matrix, self.device = matrix, matrix.device
        self.layout = layout(matrix.offsets, matrix.device)
        self.n = matrix.exact.shape[0]
        self._nothing = torch.zeros(2, dtype=torch.int32, device=self.device)

    def product(
        self, x: Tensor, out: Tensor, *, alpha: Tensor | None = None, keys: Tensor | None = None, limit: int = 0,
        kind: str = "entries",
    ) -> Tensor:  # fmt: skip
        """``out = M̂ (α ⊙ x)``, (N, dim); ``keys`` are the two words of this step's and layer's draw, on the device."""
        return self._launch(x, out, alpha=alpha, keys=keys, limit=limit, kind=kind, adjoint=False)

    def adjoint(
        self, grad: Tensor, out: Tensor, *, alpha: Tensor | None = None, inner: Tensor | None = None,
        dot: Tensor | None = None, base: Tensor | None = None, flags: Tensor | None = None, sparse: bool = False,
        keys: Tensor | None = None, limit: int = 0, kind: str = "entries",
    ) -> Tensor:  # fmt: skip
        """``out = α ⊙ (M̂ᵀ grad) + base`` and ``dot = rowsum(inner ⊙ M̂ᵀ grad)``.

        ``inner`` (N, dim) is what the gate was applied to. ``base`` counts where ``flags`` (N,) is set; with ``sparse``
        so does ``grad``, and the rest of it is never read.
        """
        return self._launch(
            grad, out, alpha=alpha, keys=keys, limit=limit, kind=kind, adjoint=True, inner=inner, dot=dot, base=base,
            flags=flags, sparse=sparse,
        )  # fmt: skip

    def _launch(
        self, x: Tensor, out: Tensor, *, alpha: Tensor | None, keys: Tensor | None, limit: int, kind: str,
        adjoint: bool, inner: Tensor | None = None, dot: Tensor | None = None, base: Tensor | None = None,
        flags: Tensor | None = None, sparse: bool = False,
    ) -> Tensor:  # fmt: skip
        matrix, cut, none = self.matrix, self.layout, self._nothing
        D = x.shape[1]
        shape = block_shape(D, x.element_size())
        hashes = matrix.hashes(kind, adjoint=adjoint) if keys is not None else none
        rescale = 1.0 / (1.0 - limit / 2.0**32) if keys is not None else 1.0
        partial = torch.empty(max(cut.parts, 1), shape["BLOCK_D"], dtype=torch.float32, device=self.device)
        tail: dict[str, Any] = {
            "ADJOINT_GATE": adjoint and alpha is not None,
            "BASE": base is not None,
            "BLOCK_D": shape["BLOCK_D"],
        }
        extras = [none if part is None else part for part in (inner, dot, base)]
        gate, flagged = (none if part is None else part for part in (alpha, flags))
        _segments[(len(cut.row),)](
            out, partial, x, matrix.indices, matrix.values, hashes, gate, none if keys is None else keys, flagged,
            *extras, cut.row, cut.start, cut.end, cut.slot, limit, rescale, D,
            DROP=keys is not None, GATE=alpha is not None and not adjoint, SPARSE=sparse, GOLDEN=GOLDEN,
            BLOCK_E=shape["BLOCK_E"], num_warps=1, **tail,
        )  # fmt: skip
        if len(cut.long_row):
            _long_rows[(len(cut.long_row),)](
                out, partial, gate, flagged, *extras, cut.long_row, cut.long_first, rescale, D,
                num_warps=1, **tail,
            )  # fmt: skip
        return out

    def rows(
        self, x: Tensor, rows: Tensor, *, alpha: Tensor | None = None, keys: Tensor | None = None, limit: int = 0,
        kind: str = "entries",
    ) -> Tensor:  # fmt: skip
        """``(M̂ (α ⊙ x))[rows]``, (len(rows), dim) in float32; rows may repeat."""
        matrix, none = self.matrix, self._nothing
        D = x.shape[1]
        shape = block_shape(D, x.element_size())
        out = torch.empty(len(rows), D, dtype=torch.float32, device=self.device)
        _chosen_rows[(len(rows),)](
            out, x, matrix.offsets, matrix.indices, matrix.values,
            matrix.hashes(kind) if keys is not None else none, none if alpha is None else alpha,
            none if keys is None else keys, rows, limit, 1.0 / (1.0 - limit / 2.0**32), D,
            DROP=keys is not None, GATE=alpha is not None, GOLDEN=GOLDEN, BLOCK_E=shape["BLOCK_E"],
            BLOCK_D=shape["BLOCK_D"], num_warps=1,
        )  # fmt: skip
        return out


def collect(grad: Tensor, order: Tensor, ranked: Tensor, out: Tensor) -> Tensor:
    """``out[r] = Σ_{rows[p] = r} grad[p]`` for the rows that occur; ``ranked, order = rows.sort(stable=True)``."""
    D = grad.shape[1]
    _collect[(len(ranked),)](out, grad, order, ranked, len(ranked), D, BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1)
    return out


def block_shape(D: int, element_size: int = 4) -> dict[str, int]:
    """How many entries and columns one warp works on at a time: 4 KiB of gathered rows in flight (measured)."""
    width = max(triton.next_power_of_2(D), 16)
    return {"BLOCK_D": width, "BLOCK_E": min(max(4096 // (width * element_size), 4), 32)}
