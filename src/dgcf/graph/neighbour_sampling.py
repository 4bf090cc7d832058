"""The mean over sampled neighbours, drawn anew for each step, layer and node, as in GraphSAGE."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgcf.graph.edge_dropout import EdgeDrop, draw_keys, draw_words, position_hashes
from dgcf.graph.kernels.cpu.sparse import CSR, product, transpose
from dgcf.graph.operators.stored import StoredMatrix


@dataclass(frozen=True)
class NeighbourDraw:
    """A draw of ``fanout`` neighbours per node, with replacement; depends on (seed, step, layer, node, slot) alone."""

    fanout: int
    seed: int
    step: int
    layer: int

    def places(self, nodes: Tensor, degrees: Tensor) -> Tensor:
        """Return the positions of the sampled neighbours, (n_nodes, fanout), each from 0 to the node's degree − 1.

        ``⌊z · degree / 2³²⌋`` for 32 random bits z, the same on every device.
        """
        keys = draw_keys(self.seed, "neighbours", self.step, self.layer)
        words = draw_words(position_hashes(nodes, self.fanout), keys).long() & 0xFFFFFFFF
        return (words * degrees[:, None]) >> 32


class SampledMean:
    """The map from x to the mean of the sampled neighbours' rows; zero for a node without neighbours."""

    def __init__(self, matrix: StoredMatrix, draw: NeighbourDraw) -> None:
        self.matrix, self.draw = matrix, draw
        self.dtype, self.device = matrix.dtype, matrix.device

    def to(self, device: torch.device, dtype: torch.dtype) -> SampledMean:
        return SampledMean(self.matrix.to(device, dtype), self.draw)

    def forward(self, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        return product(self._sampled(rows), x)

    def adjoint(self, grad: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        return product(transpose(self._sampled(rows)), grad)

    def _sampled(self, rows: Tensor | None) -> CSR:
        offsets, n_nodes, fanout = self.matrix.offsets, self.matrix.exact.shape[0], self.draw.fanout
        nodes = torch.arange(n_nodes, device=self.device) if rows is None else rows
        starts = offsets[nodes].long()
        degrees = offsets[nodes + 1].long() - starts
        places = (starts[:, None] + self.draw.places(nodes, degrees)).clamp_(max=len(self.matrix.indices) - 1)
        weights = (degrees > 0).to(self.dtype)[:, None].expand(-1, fanout) / fanout
        ends = torch.arange(0, len(nodes) * fanout + 1, fanout, device=self.device, dtype=offsets.dtype)
        return CSR(ends, self.matrix.indices[places.flatten()], weights.flatten(), n_nodes)
