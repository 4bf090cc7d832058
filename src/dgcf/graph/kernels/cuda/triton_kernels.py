# The arguments of Triton kernels are pointers, whose types mypy cannot know.
# mypy: disable-error-code="untyped-decorator,no-untyped-def"
"""Triton kernels of the propagation stack: product, gate, edge dropout and readout.

Nothing is added atomically, so the same input gives the same bits. Sums are float32 for any storage.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _kept(hashes, entries, within, keys, limit, GOLDEN: tl.constexpr):
    """Return which entries edge dropout keeps, by the formula of ``dgcf.graph.edge_dropout``."""
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
    """Return ``Σ_e v_e α_e x[index_e]`` over the entries from ``start`` to ``end``, (BLOCK_D,) in float32."""
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
    """Write one row; in the adjoint also the gate's gradient, and add the readout's gradient of this layer."""
    columns = tl.arange(0, BLOCK_D)
    mask = columns < D
    at = row.to(tl.int64) * D + columns
    total = total * rescale
    if ADJOINT_GATE:
        tl.store(dot + row, tl.sum(total * tl.load(inner + at, mask=mask, other=0.0).to(tl.float32), axis=0))
        total = total * tl.load(alpha + row)
    if BASE:
        total += tl.load(base + at, mask=columns < D * tl.load(flags + row), other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def segments_kernel(
    out, partial, x, indices, values, hashes, alpha, keys, flags, inner, dot, base,
    seg_row, seg_start, seg_end, seg_slot, limit, rescale, N, D, parts, alpha_lane, keys_lane, dot_lane,
    DROP: tl.constexpr, GATE: tl.constexpr, SPARSE: tl.constexpr, ONLY: tl.constexpr, ADJOINT_GATE: tl.constexpr,
    BASE: tl.constexpr, GOLDEN: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Sum one segment; write a row of one segment, store the sum of a part of a longer row."""
    place = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    row = tl.load(seg_row + place)
    flags += lane * N
    if ONLY:  # noqa: SIM102 (the outer condition is decided at compile time)
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
def long_rows_kernel(
    out, partial, alpha, flags, inner, dot, base, long_row, long_first, rescale, N, D, parts, alpha_lane, dot_lane,
    ONLY: tl.constexpr, ADJOINT_GATE: tl.constexpr, BASE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Add the parts of one long row, in order."""
    place = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    row = tl.load(long_row + place)
    flags += lane * N
    if ONLY:  # noqa: SIM102 (the outer condition is decided at compile time)
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
def readout_kernel(
    out, norms, x, layers, nodes, scale, first, last, N, D, R, layer_step, nodes_lane, EGO: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the final row of one node, layers ``first`` to ``last`` summed and scaled, and its ``‖x‖²``."""
    place = tl.program_id(0)
    lane = tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)
    mask = columns < D
    at = (lane * N + tl.load(nodes + lane * nodes_lane + place)) * D + columns
    ego = tl.load(x + at, mask=mask, other=0.0)
    total = ego * EGO
    for layer in range(first, last):
        total += tl.load(layers + layer * layer_step + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + (lane * R + place) * D + columns, total * scale, mask=mask)
    tl.store(norms + lane * R + place, tl.sum(ego * ego, axis=0))


@triton.jit
def collect_kernel(
    straight, bottom, grad, x, order, ranked, scale, decay, N, D, R, sorted_lane,
    EGO: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one node of the batch: the sum over its positions, in order, and its L2 term."""
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
        position = place
        same = node
        while same == node:
            source = lane * R + tl.load(order + position)
            total += tl.load(grad + source * D + columns, mask=mask, other=0.0)
            position += 1
            same = tl.load(ranked + position, mask=position < R, other=-1)
        total = total * scale
        at = (lane * N + node) * D + columns
        tl.store(straight + at, total, mask=mask)
        kept = decay * (position - place).to(tl.float32) * tl.load(x + at, mask=mask, other=0.0)
        tl.store(bottom + at, total * EGO + kept, mask=mask)
