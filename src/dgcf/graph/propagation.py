"""The propagation operator ``M = L + Lc + I`` that graph models apply to node embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgcf.errors import ConfigError
from dgcf.graph.bipartite import adjacency, interaction_matrix, weighted_matrix
from dgcf.graph.crosshop.build import CrossHop, cross_hop
from dgcf.graph.edge_dropout import EdgeDrop
from dgcf.graph.neighbour_sampling import NeighbourDraw, SampledMean
from dgcf.graph.normalize import laplacian
from dgcf.graph.operators.base import LinearMap, StoredMap, stored_map
from dgcf.graph.operators.matrix_free import MatrixFree
from dgcf.graph.operators.spectral import LowFrequencies, whole_filter
from dgcf.graph.operators.stored import StoredMatrix
from dgcf.graph.spec import PropagationSpec

if TYPE_CHECKING:
    from dgcf.graph.kernels.cuda.sparse import GpuMatrix

PRECISIONS = (torch.float32, torch.float64, torch.bfloat16)


class _Propagate(torch.autograd.Function):
    """Product with an explicit adjoint: that of ``embedding_bag`` is many times slower."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: LinearMap, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        ctx.operator, ctx.rows, ctx.drop = operator, rows, drop
        return operator.forward(x, rows, drop)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.operator.adjoint(grad.contiguous(), ctx.rows, ctx.drop), None, None, None


class Propagation:
    """The operator M of a ``PropagationSpec``, ``L + Lc + I`` by default, on node embeddings: users first, then items.

    Immutable. A model calls ``propagation.apply(gate * embeddings)``.
    """

    def __init__(
        self, operator: LinearMap, spec: PropagationSpec, shape: tuple[int, int], cross: CrossHop | None
    ) -> None:
        self.operator, self.spec, self.cross = operator, spec, cross
        self.dtype, self.device = operator.dtype, operator.device  # embeddings must be on the same device
        self.n_users, self.n_items = shape
        self.n_nodes = self.n_users + self.n_items

    @property
    def epsilon(self) -> float | None:
        """The ε of the filter, computed or given; None if nothing is filtered."""
        return self.cross.epsilon if self.cross is not None else None

    @property
    def warning(self) -> str | None:
        """A warning if the filter keeps almost nothing or almost everything, else None."""
        return self.cross.warning() if self.cross is not None else None

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Propagation:
        """Return the operator on another device or in another precision: float32, float64 or bfloat16."""
        dtype = self.dtype if dtype is None else dtype
        if dtype not in PRECISIONS:
            raise ConfigError(f"a propagation cannot be stored as {dtype}; choose float32, float64 or bfloat16.")
        operator = self.operator.to(self.device if device is None else torch.device(device), dtype)
        return Propagation(operator, self.spec, (self.n_users, self.n_items), self.cross)

    def apply(self, x: Tensor, rows: Tensor | None = None, drop: EdgeDrop | None = None) -> Tensor:
        """Return ``M x``, (N, dim), or only its ``rows``, (len(rows), dim); differentiable with respect to x.

        A bfloat16 operator also takes float32 embeddings: it rounds them, sums in float32 and returns float32.
        """
        if drop is not None and drop.p == 0.0:
            drop = None
        return self._through(self.operator, x, rows, drop)

    def sampled_mean(self, x: Tensor, draw: NeighbourDraw, rows: Tensor | None = None) -> Tensor:
        """Return the mean of x over sampled neighbours, (N, dim), or only its ``rows``; differentiable in x.

        A node's neighbours are the stored entries of its row of M, all equally likely.
        """
        return self._through(SampledMean(self.stored, draw), x, rows, None)

    def _through(self, operator: LinearMap, x: Tensor, rows: Tensor | None, drop: EdgeDrop | None) -> Tensor:
        self._check(x, rows)
        result: Tensor = _Propagate.apply(x.to(self.dtype).contiguous(), operator, rows, drop)  # type: ignore[no-untyped-call]
        return result.to(x.dtype)

    @property
    def is_stored(self) -> bool:
        """Whether M is one stored matrix, which ``stored`` gives."""
        return isinstance(self.operator, StoredMap)

    @property
    def gpu_matrix(self) -> GpuMatrix | None:
        """The stored matrix in the layout of the Triton kernels; None where they cannot run."""
        return self.operator.gpu_matrix if isinstance(self.operator, StoredMap) else None

    @property
    def stored(self) -> StoredMatrix:
        """M as a stored matrix; raises ``ConfigError`` if it has none."""
        if not isinstance(self.operator, StoredMap):
            raise ConfigError(
                "this propagation has no matrix; build it with cross='filtered' (and epsilon=0), or all frequencies."
            )
        return self.operator.matrix

    def _check(self, x: Tensor, rows: Tensor | None) -> None:
        if x.ndim != 2 or x.shape[0] != self.n_nodes:
            raise ConfigError(
                f"embeddings of shape {tuple(x.shape)} cannot be propagated; expected ({self.n_nodes}, dim): "
                f"{self.n_users} users, then {self.n_items} items."
            )
        if x.dtype != self.dtype and not (self.dtype == torch.bfloat16 and x.dtype == torch.float32):
            raise ConfigError(f"embeddings are {x.dtype}, the propagation {self.dtype}; convert one with .to(dtype=…).")
        if rows is None:
            return
        if rows.ndim != 1 or rows.dtype != torch.int64:
            raise ConfigError(
                f"rows are a {rows.ndim}-dimensional {rows.dtype} tensor, expected one-dimensional int64."
            )
        if rows.device.type == "cpu" and len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.n_nodes:
            raise ConfigError(f"rows run from {rows.min()} to {rows.max()}, expected 0 to {self.n_nodes - 1}.")


def build_propagation(interactions: Any, spec: PropagationSpec | None = None) -> Propagation:
    """Return the float32 operator of ``spec`` (the paper's by default) on interactions, as ``interaction_matrix``."""
    spec = PropagationSpec() if spec is None else spec
    R = interaction_matrix(interactions)
    A = adjacency(R)
    cross: CrossHop | None = None
    operator: LinearMap
    if spec.cross == "matrix-free":
        operator = MatrixFree.build(A, spec, torch.float32, torch.device("cpu"))
    else:
        if spec.cross == "filtered":
            cross = cross_hop(R, spec.epsilon, diagonal=spec.cross_diagonal, below_one=spec.cross_below_one)
        merged = _merged(adjacency(weighted_matrix(interactions)) if spec.edge_weights else A, cross, spec)
        if isinstance(spec.spectral, int):
            operator = LowFrequencies.build(merged, spec.spectral, torch.float32, torch.device("cpu"))
        else:
            stored = merged if spec.spectral is None else whole_filter(merged)
            operator = stored_map(StoredMatrix(stored, torch.float32, torch.device("cpu")))
    return Propagation(operator, spec, R.shape, cross)


def _merged(A: csr_array, cross: CrossHop | None, spec: PropagationSpec) -> csr_array:
    """Return the sum of the parts as one matrix. L and Lc never overlap; I adds to the diagonal of Lc."""
    loops = eye_array(A.shape[0], format="csr", dtype=np.float64)
    parts = [laplacian(csr_array(A + loops) if spec.renormalised else A)] if spec.direct else []
    parts += [] if cross is None else [cross.matrix]
    parts += [loops] if spec.self_loop else []
    merged = csr_array(sum(parts[1:], start=parts[0]))
    merged.sort_indices()
    return merged
