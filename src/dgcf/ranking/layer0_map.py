"""Layer 0 of new users: a linear map from the layer-0 rows of a user's items, fitted to the trained users.

    E_u⁽⁰⁾ ≈ Σ_p ē_u⁽ᵖ⁾ A_p,   ē_u⁽ᵖ⁾ = d_u⁻¹ Σ_{j ∈ N_u} d_j⁻ᵖ E_j⁽⁰⁾,   p = 0, ½, 1.

It is a ridge regression over the users with a training pair, with the row x_u of all ē_u⁽ᵖ⁾ / r_p, r_p the root mean
square length of ``d_j⁻ᵖ E_j⁽⁰⁾`` over all items:

    A = argmin_A Σ_u ‖E_u⁽⁰⁾ − x_u A‖² + λ ‖A − S‖² = (XᵀX + λ I)⁻¹ (XᵀE + λ S),   λ = ``RIDGE`` · mean ‖x_u‖².

S is the least-squares multiple of ē_u⁽⁰⁾ alone, which few users leave unchanged. Each of the user's items adds its own
term to the row, so explanations stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Floats, Rows

RIDGE = 0.03
_POWERS = np.array([0.0, 0.5, 1.0])
_USERS_AT_ONCE = 2**14


@dataclass(frozen=True, eq=False)
class Layer0Map:
    """``blocks``: A_0, A_½ and A_1 for rows that are not scaled, (3, dim, dim)."""

    blocks: Floats

    def row(self, items: Rows, degree: NDArray[Any]) -> Floats:
        """Return the row (dim,) of a new user with these layer-0 rows (n, dim) of items, which have these degrees."""
        means = _weights(degree).T @ items.astype(np.float64) / len(items)
        return np.asarray(means.ravel() @ self.blocks.reshape(-1, self.blocks.shape[2]))

    def parts(self, items: Rows, degree: NDArray[Any], target: Floats) -> Floats:
        """Return what each item adds to ``⟨row, target⟩``, (n,)."""
        values = items.astype(np.float64) @ (self.blocks @ target).T
        return np.asarray((_weights(degree) * values).sum(1) / len(items))


def layer0_map(users: Rows, items: Rows, train: Pairs) -> Layer0Map:
    """Return the map from the layer-0 rows of all users and items, and the training pairs.

    It takes twice the memory of ``items`` while it is fitted, and the map itself 3 dim² numbers.
    """
    exact = items.astype(np.float64)
    dim, n_powers = items.shape[1], len(_POWERS)
    # A snapshot may have more items than rows of layer 0; those have no training pairs.
    weights = _weights(np.maximum(train.item_degrees[: len(items)], 1))
    lengths = np.sqrt((weights**2).T @ np.einsum("ij,ij->i", exact, exact) / len(items))
    if not lengths.all():
        return Layer0Map(np.zeros((n_powers, dim, dim)))
    weights /= lengths
    gram, moment = np.zeros((n_powers * dim, n_powers * dim)), np.zeros((n_powers * dim, dim))
    known = np.flatnonzero(train.user_degrees)
    for first in range(0, len(known), _USERS_AT_ONCE):
        block = known[first : first + _USERS_AT_ONCE]
        X = _means(train.take(block), weights, exact)
        gram += X.T @ X
        moment += X.T @ users[block].astype(np.float64)
    ridge = RIDGE * float(np.trace(gram)) / len(known)
    start = np.zeros_like(moment)
    np.fill_diagonal(start, float(np.trace(moment[:dim])) / max(float(np.trace(gram[:dim, :dim])), 1e-300))
    fitted = np.linalg.solve(gram + ridge * np.eye(len(gram)), moment + ridge * start)
    return Layer0Map(fitted.reshape(n_powers, dim, dim) / lengths[:, None, None])


def _means(sets: Pairs, weights: Floats, items: Floats) -> Floats:
    """Return the mean of the weighted rows of each set of items, (n, 3 dim), for the three columns of weights."""
    size = np.repeat(sets.user_degrees, sets.user_degrees)
    parts = [
        csr_array((column[sets.indices] / size, sets.indices, sets.indptr), shape=(len(sets.user_degrees), len(items)))
        for column in weights.T
    ]
    return np.concatenate([part @ items for part in parts], axis=1)


def _weights(degree: NDArray[Any]) -> Floats:
    """Return ``d⁻ᵖ`` for each degree and each power, (n, 3)."""
    return np.asarray(degree.astype(np.float64)[:, None] ** -_POWERS)
