"""The state of a training divided by rows: each process holds some nodes with their embeddings, gates and graph rows.

A layer gathers the rows of all processes and multiplies them by its own rows of the propagation matrix M. As M is
symmetric, the gradient goes back the same way: ``(M g)`` at the own rows is the own rows of M times the gathered g.
With edge dropout the matrix of the way back has the mirrored draws. No row is summed in another order than in one
process, so the scores are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dgcf.errors import ConfigError
from dgcf.graph import EdgeDrop, Propagation
from dgcf.graph.kernels.cpu.sparse import CSR, product
from dgcf.graph.operators.stored import StoredMatrix
from dgcf.models.base import DropSchedule, GraphModel
from dgcf.ranking.rankings import Embeddings
from dgcf.train.shards.base import GATES, LAYER0, belongs_to, stack_of
from dgcf.train.shards.world import Group


class Rows:
    """The nodes of each process.

    Nodes are dealt out in the order of their numbers of stored entries, forth and back, so that the processes hold
    almost equal numbers of nodes and of entries. A *place* is the position of a node among the gathered rows, in which
    each process has ``height`` places, the last of them perhaps empty.
    """

    def __init__(self, world: Group, propagation: Propagation | None) -> None:
        if propagation is None or not propagation.is_stored:
            raise ConfigError(
                "training divided by rows needs a stored propagation matrix; choose cross=filtered or none, or divide "
                "by columns."
            )
        self.world = world
        parts = dealt(np.diff(propagation.stored.exact.indptr), world.size)
        self.height = max(len(nodes) for nodes in parts)
        place = np.empty(propagation.n_nodes, dtype=np.int64)
        for rank, nodes in enumerate(parts):
            place[nodes] = rank * self.height + np.arange(len(nodes))
        self.place = torch.from_numpy(place).to(propagation.device)
        self.own = torch.from_numpy(parts[world.rank]).to(propagation.device)
        self.matrix = OwnRows(propagation.stored, self.own, self.place)

    def take(self, model: GraphModel, propagation: Propagation | None) -> Propagation | None:
        stack = stack_of(model)
        model.layer0 = nn.Parameter(model.layer0.detach()[self.own].clone())
        if stack.gate_logits is not None:
            model.gates.logits = nn.Parameter(stack.gate_logits.detach()[:, self.own].clone())  # type: ignore[union-attr]
        return None

    def give_back(self, model: GraphModel) -> None:
        model.layer0 = nn.Parameter(self.gathered(model.layer0.detach())[self.place])
        logits = stack_of(model).gate_logits
        if logits is not None:
            model.gates.logits = nn.Parameter(self._whole(GATES, logits.detach()))  # type: ignore[union-attr]

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._whole(name, tensor.detach()) for name, tensor in tensors.items()}

    def part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._part(name, tensor) for name, tensor in tensors.items()}

    def _whole(self, name: str, tensor: Tensor) -> Tensor:
        if belongs_to(name, LAYER0):
            return self.gathered(tensor)[self.place]
        if belongs_to(name, GATES):
            return self.gathered(tensor.T)[self.place].T.contiguous()
        return tensor

    def _part(self, name: str, tensor: Tensor) -> Tensor:
        if belongs_to(name, LAYER0):
            return tensor[self.own.to(tensor.device)]
        return tensor[:, self.own.to(tensor.device)] if belongs_to(name, GATES) else tensor

    @torch.no_grad()
    def embed(self, model: GraphModel, propagation: Propagation | None) -> Embeddings[Tensor]:
        nodes = self.gathered(self.forward(model, None))[self.place]
        return Embeddings(nodes[: model.n_users], nodes[model.n_users :], model.user_rule)

    def gathered(self, own: Tensor) -> Tensor:
        """Return the rows of all processes, (size · height, …), at their places."""
        padded = torch.nn.functional.pad(own, (0, 0, 0, self.height - len(own)))
        return self.world.below(padded)

    def held_bytes(self, model: GraphModel) -> int:
        """Return the bytes of the parameters, of Adam's two moments and of the graph in this process."""
        parameters = sum(parameter.nbytes for parameter in model.parameters())
        return 3 * parameters + self.place.nbytes + self.own.nbytes + self.matrix.nbytes

    def forward(self, model: GraphModel, drop: DropSchedule | None) -> Tensor:
        """Return the final embeddings of the own nodes, as ``propagate`` does for all."""
        stack = stack_of(model)
        x: Tensor = model.layer0
        total = x
        for layer in range(stack.layers):
            if stack.gate_logits is not None:
                x = torch.sigmoid(stack.gate_logits[layer % len(stack.gate_logits)]).unsqueeze(1) * x
            x = _Layer.apply(x, self, None if drop is None else drop.at(layer))  # type: ignore[no-untyped-call]
            total = total + x if layer < stack.layers - 1 else total
        return (total + x) / (stack.layers + 1) if stack.mean else x

    def batch_rows(self, own: Tensor, nodes: Tensor) -> Tensor:
        """Return the rows of some nodes from the processes that hold them, (len(nodes), width); differentiable.

        ``own``: the final rows of this process. The gradient of the result must be the same in every process.
        """
        result: Tensor = _BatchRows.apply(own, self, nodes)  # type: ignore[no-untyped-call]
        return result

    def held(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return which of some nodes this process holds, as positions in ``nodes``, and their rows here."""
        places = self.place[nodes] - self.world.rank * self.height
        positions = ((places >= 0) & (places < self.height)).nonzero().squeeze(1)
        return positions, places[positions]


class OwnRows:
    """The rows of M that a process holds, (n_own, places), with the draws of edge dropout that they have in M."""

    def __init__(self, matrix: StoredMatrix, own: Tensor, place: Tensor) -> None:
        self.device = matrix.device
        rows = own.numpy(force=True)
        starts = matrix.exact.indptr[rows].astype(np.int64)
        lengths = np.diff(matrix.exact.indptr)[rows].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        self._entries = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        entries = torch.from_numpy(self._entries).to(self.device)
        kind = matrix.indices.dtype
        self.csr = CSR(
            torch.from_numpy(offsets).to(self.device, kind),
            place[matrix.indices[entries].long()].to(kind),
            matrix.values[entries],
            int(place.max()) + 1,
        )
        self._whole: StoredMatrix | None = matrix
        self._hashes: tuple[Tensor, ...] = ()

    def release(self, *, draws: bool) -> None:
        """Let go of the whole matrix; ``draws``: keep what edge dropout needs."""
        if self._whole is not None and draws:
            entries = torch.from_numpy(self._entries).to(self.device)
            self._hashes = tuple(self._whole.hashes(adjoint=adjoint)[entries] for adjoint in (False, True))
        self._whole, self._entries = None, np.empty(0, np.int64)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows and of their hashes."""
        return sum(part.nbytes for part in (*self.csr[:3], *self._hashes))

    def product(self, x: Tensor, drop: EdgeDrop | None, *, adjoint: bool) -> Tensor:
        """Return the own rows of ``M x`` for the gathered x; ``adjoint``: with the draws of Mᵀ."""
        if drop is None or drop.p == 0:
            return product(self.csr, x)
        values = drop.mask(self.csr.values, self._hashes[adjoint])
        return product(self.csr._replace(values=values), x).mul_(drop.rescale)


class _Layer(torch.autograd.Function):
    """``x ↦ (M x)`` at the own rows, x being divided by rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Rows, drop: EdgeDrop | None) -> Tensor:
        ctx.rows, ctx.drop = rows, drop
        return rows.matrix.product(rows.gathered(x), drop, adjoint=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rows: Rows = ctx.rows
        return rows.matrix.product(rows.gathered(grad.contiguous()), ctx.drop, adjoint=True), None, None


class _BatchRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, rows: Rows, nodes: Tensor) -> Tensor:
        ctx.positions, ctx.local = rows.held(nodes)
        ctx.shape = own.shape
        chosen = own.new_zeros(len(nodes), own.shape[1])
        chosen[ctx.positions] = own[ctx.local]
        rows.world.add_up(chosen)  # every row is held by one process: the others add zeros
        return chosen

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        own = grad.new_zeros(ctx.shape)
        own.index_add_(0, ctx.local, grad[ctx.positions])
        return own, None, None


def dealt(entries: NDArray[Any], size: int) -> list[NDArray[np.int64]]:
    """Return the nodes of each of ``size`` processes, in ascending order, with almost equal sums of ``entries``."""
    order = np.argsort(-entries, kind="stable")
    turns = np.arange(len(order)) // size
    turn = np.arange(len(order)) % size
    rank = np.where(turns % 2 == 0, turn, size - 1 - turn)
    return [np.sort(order[rank == number]) for number in range(size)]
