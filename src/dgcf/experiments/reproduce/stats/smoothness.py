"""The smoothness of embeddings over users that share items, as the LightGCN paper defines it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]
# Multiply-adds of a block of rows. Its product holds at most as many entries, about 50 MB.
BLOCK_WORK = 1 << 22


def smoothness(R: csr_array, users: Floats, items: Floats) -> dict[str, float]:
    """Return ``S_U`` and ``S_I`` (He et al., SIGIR 2020, section 4.4.3): the lower, the smoother.

    ``S_U = Σ_u Σ_v c_{v→u} ‖e_u/‖e_u‖ − e_v/‖e_v‖‖²`` over users u and v that share items, where
    ``c_{v→u} = 1/√(|N_u| |N_v|) · Σ_{i ∈ N_u ∩ N_v} 1/|N_i|``; items likewise. The L2 norm serves there to
    remove the scale of the embeddings, so rows are divided by it and not by its square. R: (n_users, n_items) training
    pairs; users (n_users, d), items (n_items, d).
    """
    return {"users": one_side(R, users), "items": one_side(csr_array(R.T), items)}


def one_side(B: csr_array, rows: Floats) -> float:
    """Return the sum of one side: B (n, m) of ones, rows (n, d). ``B Bᵀ`` is computed in blocks of rows.

    With ``x_u = e_u/‖e_u‖``, ``‖x_u − x_v‖² = ‖x_u‖² + ‖x_v‖² − 2 ⟨x_u, x_v⟩``, so that a block needs only
    ``C 1``, ``C ‖x‖²`` and ``C x``. A row of zeros has no direction and stays zero.
    """
    norm = np.linalg.norm(rows, axis=1)
    x = rows / np.where(norm > 0, norm, 1.0)[:, None]
    length = np.square(x).sum(1)
    degree = np.diff(B.indptr).astype(np.float64)
    inner = np.bincount(B.indices, minlength=B.shape[1]).astype(np.float64)
    scale = 1.0 / np.sqrt(np.maximum(degree, 1.0))
    left = csr_array((np.repeat(scale, np.diff(B.indptr)) / inner[B.indices], B.indices, B.indptr), shape=B.shape)
    right = csr_array((np.repeat(scale, np.diff(B.indptr)), B.indices, B.indptr), shape=B.shape).T.tocsr()
    beside = np.column_stack([np.ones(len(x)), length, x])
    total = 0.0
    for start, stop in _blocks(B, inner):
        coefficients = left[start:stop] @ right
        sums = coefficients @ beside
        own = slice(start, stop)
        total += float((length[own] * sums[:, 0]).sum() + sums[:, 1].sum() - 2.0 * (x[own] * sums[:, 2:]).sum())
    return max(total, 0.0)


def _blocks(B: csr_array, inner: Floats) -> list[tuple[int, int]]:
    """Return ranges of rows whose products take about ``BLOCK_WORK`` multiply-adds each."""
    work = np.concatenate([[0.0], np.cumsum(B @ inner)])
    starts = [0]
    while starts[-1] < B.shape[0]:
        reach = int(np.searchsorted(work, work[starts[-1]] + BLOCK_WORK, side="right")) - 1
        starts.append(min(max(reach, starts[-1] + 1), B.shape[0]))
    return list(pairwise(starts))
