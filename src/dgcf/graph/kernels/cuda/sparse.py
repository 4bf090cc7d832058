"""Sparse products on a CUDA device: the layout of a matrix there, and the functions that launch its kernels.

A row is cut into segments of at most ``SEGMENT`` entries, the longest first, so that a long row does not dominate the
time. The parts of a cut row are added afterwards, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from dgcf.graph.edge_dropout import GOLDEN, EdgeDrop
from dgcf.graph.kernels.cuda.triton_kernels import collect_kernel, long_rows_kernel, readout_kernel, segments_kernel
from dgcf.graph.operators.base import StoredMap
from dgcf.graph.operators.stored import StoredMatrix

SEGMENT = 128
"""The most entries that one program sums."""


@dataclass(frozen=True)
class Layout:
    """The segments of a matrix's rows, (n_segments,) int32 each, and the rows that were cut.

    ``slot``: where the sum of a part of a cut row is stored, -1 for a row of one segment. The parts of ``long_row[i]``
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
    """Return the segments of the rows; an empty row gets an empty segment, so that its result is written, too."""
    indptr = offsets.cpu().numpy().astype(np.int64)
    lengths = np.diff(indptr)
    counts = np.maximum(-(-lengths // segment), 1)
    row = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = indptr[:-1][row] + within * segment
    end = np.minimum(start + segment, indptr[1:][row])
    cut = counts > 1
    slot = np.where(cut[row], np.cumsum(cut[row]) - 1, -1)
    order = np.argsort(start - end, kind="stable")  # the longest first: short ones fill the gaps at the end
    long_row = np.flatnonzero(cut)
    long_first = np.concatenate([[0], np.cumsum(counts[cut])])

    def on_device(array: NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(array.astype(np.int32)).to(device)

    return Layout(
        row=on_device(row[order]),
        start=on_device(start[order]),
        end=on_device(end[order]),
        slot=on_device(slot[order]),
        long_row=on_device(long_row),
        long_first=on_device(long_first),
        parts=int(long_first[-1]),
    )


class GpuMatrix:
    """A stored matrix with its layout: the products of a training step, forward and adjoint.

    All work on *lanes*, trainings side by side over one graph: ``x`` is (lanes, N, dim). The sums of a lane do not
    depend on the others, so they have the same bits alone and side by side.
    """

    def __init__(self, matrix: StoredMatrix) -> None:
        self.matrix, self.device = matrix, matrix.device
        self.layout = layout(matrix.offsets, matrix.device)
        self.n = matrix.exact.shape[0]
        self._unused = torch.zeros(2, dtype=torch.int32, device=self.device)

    def product(
        self, x: Tensor, out: Tensor, *, alpha: Tensor | None = None, drop: EdgeDrop | None = None,
        only: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Write ``out = M̂ (α ⊙ x)``, (lanes, N, dim), or only its rows that ``only`` (lanes, N) flags."""
        return self._launch(x, out, alpha=alpha, drop=drop, adjoint=False, flags=only, only=only is not None)

    def adjoint(
        self, grad: Tensor, out: Tensor, *, alpha: Tensor | None = None, inner: Tensor | None = None,
        dot: Tensor | None = None, base: Tensor | None = None, flags: Tensor | None = None, sparse: bool = False,
        drop: EdgeDrop | None = None,
    ) -> Tensor:  # fmt: skip
        """Write ``out = α ⊙ (M̂ᵀ grad) + base`` and ``dot = rowsum(inner ⊙ M̂ᵀ grad)``, (lanes, N, dim) and (lanes, N).

        ``inner`` (lanes, N, dim): the input of the gate. ``base`` counts where ``flags`` (lanes, N) is set. With
        ``sparse`` so does ``grad``, and its other rows are never read.
        """
        return self._launch(
            grad, out, alpha=alpha, drop=drop, adjoint=True, inner=inner, dot=dot, base=base, flags=flags,
            sparse=sparse,
        )  # fmt: skip

    def _launch(
        self, x: Tensor, out: Tensor, *, alpha: Tensor | None, drop: EdgeDrop | None, adjoint: bool,
        inner: Tensor | None = None, dot: Tensor | None = None, base: Tensor | None = None,
        flags: Tensor | None = None, sparse: bool = False, only: bool = False,
    ) -> Tensor:  # fmt: skip
        matrix, cut, none = self.matrix, self.layout, self._unused
        lanes, n, D = x.shape
        shape = block_shape(D, x.element_size())
        hashes = none if drop is None else matrix.hashes(adjoint=adjoint)
        keys, limit, rescale = none, 0, 1.0
        if drop is not None:  # rescaled by the probability that 32 bits can draw
            keys, limit, rescale = drop.lane_keys(self.device), drop.limit, 1.0 / (1.0 - drop.limit / 2.0**32)
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
        steps = [0 if part is None else part.stride(0) for part in (alpha, None if drop is None else keys, dot)]
        segments_kernel[(len(cut.row), lanes)](
            out, partial, x, matrix.indices, matrix.values, hashes, gate, keys, flagged, *extras,
            cut.row, cut.start, cut.end, cut.slot, limit, rescale, n, D, partial.shape[1], *steps,
            DROP=drop is not None, GATE=alpha is not None and not adjoint, SPARSE=sparse, GOLDEN=GOLDEN,
            BLOCK_E=shape["BLOCK_E"], **tail,
        )  # fmt: skip
        if len(cut.long_row):
            long_rows_kernel[(len(cut.long_row), lanes)](
                out, partial, gate, flagged, *extras, cut.long_row, cut.long_first, rescale, n, D, partial.shape[1],
                steps[0], steps[2], **tail,
            )  # fmt: skip
        return out


class GpuMap(StoredMap):
    """The map of a stored matrix on a CUDA device."""

    def __init__(self, matrix: StoredMatrix) -> None:
        super().__init__(matrix)
        self.gpu_matrix: GpuMatrix = GpuMatrix(matrix)

    def forward(self, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        out = torch.empty_like(x)
        if rows is None:
            return self.gpu_matrix.product(x[None], out[None], drop=drop)[0]
        self.gpu_matrix.product(x[None], out[None], drop=drop, only=self._flags(rows))
        return out.index_select(0, rows)

    def adjoint(self, grad: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        """Return ``Mᵀ grad`` or ``M[rows]ᵀ grad``, with the draws of ``forward``; repeats are added in order."""
        shape = (self.gpu_matrix.n, grad.shape[1])
        out = torch.empty(1, *shape, dtype=grad.dtype, device=grad.device)
        if rows is None:
            return self.gpu_matrix.adjoint(grad[None], out, drop=drop)[0]
        ranked, order = rows[None].sort(stable=True)
        zeros = torch.zeros(1, *shape, device=grad.device)
        summed, _ = collect(grad[None], zeros, order, ranked, scale=1.0, decay=0.0, mean=False)
        return self.gpu_matrix.adjoint(summed, out, flags=self._flags(rows), sparse=True, drop=drop)[0]

    def _flags(self, rows: Tensor) -> Tensor:
        return torch.zeros(1, self.gpu_matrix.n, dtype=torch.int32, device=rows.device).index_fill_(1, rows, 1)


def readout(x: Tensor, layers: Tensor, nodes: Tensor, *, mean: bool) -> tuple[Tensor, Tensor]:
    """Return the final rows of a batch's nodes, (lanes, R, dim), and ``‖x‖²`` of their layer-0 rows, (lanes, R).

    ``x`` (lanes, N, dim): layer 0; ``layers`` (L, lanes, N, dim): the others; ``nodes`` (lanes, R), repeats allowed.
    The readout is the ``mean`` of all layers, otherwise the last.
    """
    lanes, n, D = x.shape
    depth, size = len(layers), nodes.shape[1]
    out = torch.empty(lanes, size, D, dtype=torch.float32, device=x.device)
    norms = torch.empty(lanes, size, dtype=torch.float32, device=x.device)
    first, scale = (0, 1.0 / (depth + 1)) if mean else (depth - 1, 1.0)
    readout_kernel[(size, lanes)](
        out, norms, x, layers, nodes, scale, first, depth, n, D, size, layers.stride(0), nodes.stride(0),
        EGO=float(mean), BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1,
    )  # fmt: skip
    return out, norms


def collect(
    grad: Tensor, x: Tensor, order: Tensor, ranked: Tensor, *, scale: float, decay: float, mean: bool
) -> tuple[Tensor, Tensor]:
    """Return the adjoint of ``readout``: the gradient of each layer, and that of layer 0 plus ``decay · times · x``.

    ``grad`` (lanes, R, dim); ``ranked, order = nodes.sort(stable=True)``. Both results are (lanes, N, dim); only the
    rows of the batch's nodes are written.
    """
    lanes, n, D = x.shape
    straight, bottom = torch.empty_like(x), torch.empty_like(x)
    collect_kernel[(ranked.shape[1], lanes)](
        straight, bottom, grad, x, order, ranked, scale, decay, n, D, ranked.shape[1], ranked.stride(0),
        EGO=float(mean), BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1,
    )  # fmt: skip
    return straight, bottom


def block_shape(D: int, element_size: int = 4) -> dict[str, int]:
    """Return how many entries and columns a warp processes at a time: 4 KiB of gathered rows in flight (measured)."""
    width = max(triton.next_power_of_2(D), 16)
    return {"BLOCK_D": width, "BLOCK_E": min(max(4096 // (width * element_size), 4), 32)}
