"""The oscillation report: whether and how fast propagation settles on a graph, with and without cross-hop edges."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import connected_components

from dgcf.graph.bipartite import adjacency, interaction_matrix
from dgcf.graph.crosshop.build import CrossHop, Progress, cross_hop, silent
from dgcf.graph.normalize import laplacian
from dgcf.graph.spec import Epsilon
from dgcf.graph.theory.walk import Ends, Walk, gap_bounds, gaps

Floats = NDArray[np.float64]
# The paper's claims: self-loops do not prevent oscillation, cross-hop edges do.
# A + I has the self-loop of graph convolutions; relative to the normalised L, the loop of L + I weighs far more.
PAPER_CLAIMS = {"L": "two limits", "L+I": "two limits", "A+I": "two limits", "L+Lc": "one limit", "L+Lc+I": "one limit"}
ROUNDING = 1e-12


@dataclass(frozen=True)
class WalkReport:
    """The walk on one matrix, from the uniform distribution, on one connected component."""

    gaps: Floats
    """``‖x(t) − x(t+1)‖₁`` measured, t = 0, 1, …"""
    bounds: Floats
    """The paper's bound on each gap."""
    gap_limit: float
    """The measured gap between an even and the next odd step when the walk settled or stopped."""
    gap_limit_exact: float
    """The same gap from the closed form of the two limits."""
    ends: Ends
    limit_error: float
    """``max |x − π|`` at the end of the walk, against the closed form; degree / 2|E| where M is not bipartite."""
    condition: float
    """``‖R π_i − π_u‖₁`` (Theorem 1): zero if the two limits agree; defined for two-sided walks."""
    two_sided: bool
    steps: int
    settled: bool

    @property
    def decay_per_step(self) -> float:
        """Asymptotic factor by which a step shrinks the distance to the limit."""
        return self.ends.decay

    @property
    def flip_per_step(self) -> float:
        """Factor by which a step shrinks the component that changes sign every step: the oscillation."""
        return 1.0 if self.two_sided else abs(min(self.ends.lowest, 0.0))

    @property
    def within_bound(self) -> bool:
        """Whether no measured gap exceeds its bound beyond rounding."""
        return bool((self.gaps <= self.bounds * (1 + ROUNDING) + ROUNDING).all())


@dataclass(frozen=True)
class Component:
    """A connected component of the bipartite graph."""

    users: int
    items: int
    direct_edges: int
    cross_edges: int

    @property
    def gap_limit(self) -> float:
        """The lasting gap of L from the uniform start: ``2 |users − items| / (users + items)``."""
        return 2.0 * abs(self.users - self.items) / (self.users + self.items)

    @property
    def one_limit_with_cross(self) -> bool:
        """Whether the filter kept a cross-hop edge (a loop suffices), so that walks have a single limit."""
        return self.cross_edges > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the component as JSON-ready values."""
        return {**asdict(self), "gap_limit": self.gap_limit, "one_limit_with_cross": self.one_limit_with_cross}


@dataclass(frozen=True)
class OscillationReport:
    """Walks on all matrices over the largest component, and all components, largest first."""

    epsilon: float
    walks: dict[str, WalkReport]
    components: list[Component]
    isolated: int
    symmetric_gaps: Floats
    """``‖Lᵗx − Lᵗ⁺¹x‖₁`` for the symmetric L that models use, whose column sums are not 1."""
    symmetric_bounds: Floats
    """The paper's bound on each of these."""

    @property
    def connected(self) -> bool:
        """Whether there is one component and no isolated node."""
        return len(self.components) == 1 and self.isolated == 0

    def to_dict(self, name: str) -> dict[str, Any]:
        """Return the report as JSON-ready values; ``name`` is the dataset's."""
        walks = self.walks

        def of_walks(field: str) -> dict[str, Any]:
            return {name: getattr(walk, field) for name, walk in walks.items()}

        numbers = ("gap_limit", "gap_limit_exact", "decay_per_step", "flip_per_step", "within_bound")
        return {
            "name": name,
            "epsilon": self.epsilon,
            **{field: of_walks(field) for field in numbers},
            "pi_error": of_walks("limit_error"),
            "two_limits": of_walks("two_sided"),
            "steps": of_walks("steps"),
            "settled": of_walks("settled"),
            "paper_claims": PAPER_CLAIMS,
            "gaps": {name: walk.gaps.tolist() for name, walk in walks.items()},
            "bound": {name: walk.bounds.tolist() for name, walk in walks.items()},
            "spectrum": {name: {"lowest": w.ends.lowest, "second": w.ends.highest} for name, w in walks.items()},
            "condition": {name: walk.condition for name, walk in walks.items() if walk.two_sided},
            "symmetric": {"gaps": self.symmetric_gaps.tolist(), "bound": self.symmetric_bounds.tolist()},
            "connected": self.connected,
            "isolated_nodes": self.isolated,
            "components": [part.to_dict() for part in self.components],
        }


def oscillation(
    interactions: object, epsilon: Epsilon = "auto", *, steps: int = 40, progress: Progress = silent
) -> OscillationReport:
    """Report on walks on L, L + I, A + I, L + Lc and L + Lc + I over the largest component, in float64.

    ``steps`` gaps are recorded for each; the walk then continues until it settles.
    """
    R = interaction_matrix(interactions)
    n_users = R.shape[0]
    A = adjacency(R)
    parts = 1 + len(PAPER_CLAIMS)
    cross = cross_hop(R, epsilon, progress=lambda done, total: progress(done / (total or 1), parts))
    labels = connected_components(A, directed=False)[1]
    components, order, isolated = _components(A, cross, labels, n_users)
    nodes = np.flatnonzero(labels == order[0])
    users_inside = int(np.searchsorted(nodes, n_users))
    L, Lc, A = (csr_array(matrix[nodes][:, nodes]) for matrix in (laplacian(A), cross.matrix, A))
    eye = eye_array(len(nodes), format="csr")
    matrices = {"L": L, "L+I": L + eye, "A+I": A + eye, "L+Lc": L + Lc, "L+Lc+I": L + Lc + eye}
    walks = {}
    for done, (name, matrix) in enumerate(matrices.items(), start=2):
        walks[name] = walk_report(Walk(csr_array(matrix), users_inside), steps)
        progress(done, parts)
    start = np.full(len(nodes), 1.0 / len(nodes))
    return OscillationReport(
        cross.epsilon, walks, components, isolated, gaps(L, start, steps), gap_bounds(L, start, steps)
    )


def walk_report(walk: Walk, steps: int) -> WalkReport:
    """Return the measurements of one walk beside the values of the closed forms."""
    start = walk.uniform()
    even, odd, taken, settled = walk.run(start)
    even_limit, odd_limit = walk.limits(start)
    error = max(float(np.abs(even - even_limit).max()), float(np.abs(odd - odd_limit).max()))
    return WalkReport(
        gaps=gaps(walk.transition, start, steps),
        bounds=gap_bounds(walk.transition, start, steps),
        gap_limit=float(np.abs(even - odd).sum()),
        gap_limit_exact=float(np.abs(even_limit - odd_limit).sum()),
        ends=walk.ends(),
        limit_error=error,
        condition=walk.condition(start) if walk.two_sided else 0.0,
        two_sided=walk.two_sided,
        steps=taken,
        settled=settled,
    )


def _components(
    A: csr_array, cross: CrossHop, labels: NDArray[np.int32], n_users: int
) -> tuple[list[Component], NDArray[np.int64], int]:
    """Return the components with an edge, largest first, their labels, and the number of isolated nodes."""
    sizes = np.bincount(labels)
    users = np.bincount(labels[:n_users], minlength=len(sizes))
    direct = np.bincount(labels, weights=np.diff(A.indptr), minlength=len(sizes)).astype(np.int64)
    crossing = np.bincount(labels, weights=np.diff(cross.matrix.indptr), minlength=len(sizes)).astype(np.int64)
    order = np.argsort(-sizes, kind="stable")
    order = order[direct[order] > 0]
    components = [
        Component(int(users[label]), int(sizes[label] - users[label]), int(direct[label]), int(crossing[label]))
        for label in order
    ]
    return components, order, int(np.count_nonzero(sizes == 1))
