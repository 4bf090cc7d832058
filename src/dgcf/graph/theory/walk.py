"""Random walks on a propagation matrix: limits, the gap between even and odd steps, and the paper's bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, eigsh

Floats = NDArray[np.float64]
# A walk has settled if two steps move less mass than this in total (float64, mass 1).
STILL = 1e-14
# Stored entries that a walk may read before it stops unsettled: seconds on any graph.
WALK_BUDGET = 1_000_000_000
# Below this size all eigenvalues cost less than Lanczos' set-up.
SMALL = 200
# Vectors that Lanczos holds.
BASIS = 40


class Ends(NamedTuple):
    """The ends of the walk's spectrum without the eigenvalues that never decay (1, and −1 on a bipartite graph)."""

    lowest: float
    highest: float

    @property
    def decay(self) -> float:
        """Asymptotic factor by which a step shrinks the distance to the limit."""
        return max(abs(self.lowest), abs(self.highest))


@dataclass(frozen=True)
class Walk:
    """``x(t+1) = P x(t)``, where ``P = M diag(1/w)`` is M with its columns normalised and ``w = Mᵀ 1``.

    M is non-negative, symmetric, (n, n), connected, without empty columns; its first ``n_users`` nodes are one side.
    The walk is *two-sided* if M has no entry within a side: then every step swaps the masses of the sides.
    """

    M: csr_array
    n_users: int

    @property
    def weights(self) -> Floats:
        """``w``: weighted degrees, (n,)."""
        return np.asarray(self.M.sum(axis=0)).ravel()

    @property
    def transition(self) -> csr_array:
        """P, the column-stochastic matrix of one step."""
        return csr_array(self.M @ diags_array(1.0 / self.weights))

    @property
    def two_sided(self) -> bool:
        """Whether M is bipartite: no edge between users, none between items, no loop."""
        is_user = np.arange(self.M.shape[0]) < self.n_users
        of_row = np.repeat(is_user, np.diff(self.M.indptr))
        return not bool((of_row == is_user[self.M.indices])[self.M.data != 0].any())

    def uniform(self) -> Floats:
        """Return the uniform distribution, from which walks start."""
        n_nodes = self.M.shape[0]
        return np.full(n_nodes, 1.0 / n_nodes)

    def limits(self, start: Floats) -> tuple[Floats, Floats]:
        """Return the exact stationary distributions of even and of odd steps.

        One-sided: both are ``w / Σw``, that is degree / 2|E|. Two-sided: each side's mass is distributed over it by w;
        in even steps it is the mass that the side started with, in odd steps that of the other side.
        """
        w = self.weights
        if not self.two_sided:
            return w / w.sum() * start.sum(), w / w.sum() * start.sum()
        users = np.arange(len(w)) < self.n_users
        share = np.where(users, w / w[users].sum(), w / w[~users].sum())
        own, other = start[users].sum(), start[~users].sum()
        return share * np.where(users, own, other), share * np.where(users, other, own)

    def condition(self, start: Floats) -> float:
        """Return ``‖R π_i − π_u‖₁`` for the even limit π and the walk's R: zero if and only if nothing oscillates."""
        even, _ = self.limits(start)
        P = self.transition
        return float(np.abs(P[: self.n_users, self.n_users :] @ even[self.n_users :] - even[: self.n_users]).sum())

    def run(self, start: Floats) -> tuple[Floats, Floats, int, bool]:
        """Walk until settled; return x at an even and the next odd step, the steps taken and whether it settled."""
        P, x = self.transition, start
        most = max(200, WALK_BUDGET // max(self.M.nnz, 1))
        for step in range(0, most, 2):
            odd = P @ x
            even = P @ odd
            if np.abs(even - x).sum() < STILL:
                return x, odd, step, True
            x = even
        return x, P @ x, most, False

    def ends(self) -> Ends:
        """Return the ends of the spectrum, by Lanczos on ``w^-½ M w^-½``: symmetric, with the eigenvalues of P."""
        w = self.weights
        scale = diags_array(1.0 / np.sqrt(w))
        S = csr_array(scale @ self.M @ scale)
        lasting = np.sqrt(w / w.sum())
        fixed = [(1.0, lasting)]
        if self.two_sided:
            fixed.append((-1.0, np.where(np.arange(len(w)) < self.n_users, lasting, -lasting)))
        if len(w) <= SMALL:
            spectrum = eigvalsh(S.toarray() - sum(value * np.outer(v, v) for value, v in fixed))
            return Ends(float(spectrum[0]), float(spectrum[-1]))

        # Eigenvalues that never decay are moved to the other end of the spectrum.
        lowest = _end(S, "SA", [v for value, v in fixed if value < 0], 2.0)
        return Ends(lowest, _end(S, "LA", [v for value, v in fixed if value > 0], -2.0))


def _end(S: csr_array, which: str, moved: list[Floats], by: float) -> float:
    """Return the lowest (SA) or highest (LA) eigenvalue of ``S + by Σ v vᵀ``, v being eigenvectors of S."""

    def product(x: Floats) -> Floats:
        x = x.ravel()
        return np.asarray(S @ x + sum(by * v * (v @ x) for v in moved))

    operator = LinearOperator(S.shape, matvec=product, dtype=np.float64)
    start = np.cos(np.arange(S.shape[0]))  # fixed, so that the result is reproducible
    (value,) = eigsh(operator, k=1, which=which, v0=start, ncv=BASIS, tol=1e-7, return_eigenvectors=False)
    return float(value)


def gaps(matrix: csr_array, x: Floats, steps: int) -> Floats:
    """Return ``‖x(t) − x(t+1)‖₁`` for x(t) = matrixᵗ x, t = 0 … steps − 1."""
    lengths = np.empty(steps)
    for t in range(steps):
        following = matrix @ x
        lengths[t] = np.abs(x - following).sum()
        x = following
    return lengths


def gap_bounds(matrix: csr_array, start: Floats, steps: int) -> Floats:
    """Return the paper's bound on ``‖x(t) − x(t+1)‖₁`` for x(t) = matrixᵗ start, t = 0 … steps − 1.

    ``max column sum of matrixᵗ · ‖start − matrix start‖₁``. At t = 2k on a bipartite matrix the column sums are those
    of ``V^k = (R Rᵀ)^k`` and ``T^k = (Rᵀ R)^k``, as in the paper. They are the entries of ``1ᵀ matrixᵗ``, so no power
    is formed. With normalised columns all of them are 1, and the bound is the first gap.
    """
    first = float(np.abs(start - matrix @ start).sum())
    column_sums = np.ones(matrix.shape[1])
    bounds = np.empty(steps)
    transposed = matrix.T.tocsr()
    for t in range(steps):
        bounds[t] = column_sums.max() * first
        column_sums = transposed @ column_sums
    return bounds
