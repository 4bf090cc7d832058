"""The propagation stack on a CUDA device: how a matrix is laid out there, and what launches its kernels.

A row is cut into segments of at most ``SEGMENT`` entries, the longest first, so that no row decides the time; the parts
of a cut row are added afterwards, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from dgcf.graph.edge_dropout import GOLDEN, EdgeDrop
from dgcf.graph.kernels.cuda.triton_kernels import (
    bpr_kernel,
    collect_kernel,
    long_rows_kernel,
    readout_kernel,
    segments_kernel,
)
from dgcf.graph.operators.base import StoredMap
from dgcf.graph.operators.stored import StoredMatrix

SEGMENT = 128
"""Entries that one program sums at most."""


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
        segments_kernel[(len(cut.row), lanes)](
            out, partial, x, matrix.indices, matrix.values, hashes, gate, keys, flagged, *extras,
            cut.row, cut.start, cut.end, cut.slot, limit, rescale, n, D, partial.shape[1], *steps,
            DROP=draw is not None, GATE=alpha is not None and not adjoint, SPARSE=sparse, GOLDEN=GOLDEN,
            BLOCK_E=shape["BLOCK_E"], **tail,
        )  # fmt: skip
        if len(cut.long_row):
            long_rows_kernel[(len(cut.long_row), lanes)](
                out, partial, gate, flagged, *extras, cut.long_row, cut.long_first, rescale, n, D, partial.shape[1],
                steps[0], steps[2], **tail,
            )  # fmt: skip
        return out


class GpuMap(StoredMap):
    """The map of a stored matrix on a CUDA device, by the kernels of this module."""

    def __init__(self, matrix: StoredMatrix) -> None:
        super().__init__(matrix)
        self.gpu_matrix: GpuMatrix = GpuMatrix(matrix)

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
    readout_kernel[(size, lanes)](
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
    collect_kernel[(ranked.shape[1], lanes)](
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
    bpr_kernel[(size, lanes)](
        losses, grad, final, norms, decay, size, rows // size - 2, rows, D,
        HARDEST=hardest, BLOCK_D=block_shape(D)["BLOCK_D"], num_warps=1,
    )  # fmt: skip
    return losses, grad


def block_shape(D: int, element_size: int = 4) -> dict[str, int]:
    """How many entries and columns one warp works on at a time: 4 KiB of gathered rows in flight (measured)."""
    width = max(triton.next_power_of_2(D), 16)
    return {"BLOCK_D": width, "BLOCK_E": min(max(4096 // (width * element_size), 4), 32)}
