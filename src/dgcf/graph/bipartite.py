"""Check the interactions R and build the bipartite adjacency matrix A."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError


def interaction_matrix(interactions: Any) -> csr_array:
    """Return R, binary with sorted indices: ``R[u, i] = 1`` if user u has item i, shape (n_users, n_items).

    ``interactions``: ``Pairs``, which need no checks, or a SciPy sparse matrix. The paper's R is binary, so a repeated
    pair counts once and any positive weight counts as one. A stored zero is no interaction. Negative, NaN and infinite
    values raise ``DataError``.
    """
    is_binary = isinstance(interactions, Pairs)
    R = csr_array(interactions.to_scipy(), dtype=np.float64) if is_binary else _binary(interactions)
    if R.nnz == 0:
        raise DataError(
            f"the {R.shape[0]} × {R.shape[1]} interaction matrix holds no interaction; "
            "give at least one (user, item) pair."
        )
    return R


def weighted_matrix(pairs: Any) -> csr_array:
    """Return W, the weights of ``Pairs``, shape (n_users, n_items); a pair of weight 0 is no edge."""
    if not isinstance(pairs, Pairs):
        raise DataError(
            f"the interactions are a {type(pairs).__name__}, but edge_weights needs the weights of a dataset's pairs; "
            "give Pairs with weights."
        )
    return csr_array(pairs.to_scipy(pairs.require_weights("edge_weights")), dtype=np.float64)


def _binary(R: Any) -> csr_array:
    if not issparse(R) or R.ndim != 2:
        raise DataError(
            f"the interactions are a {type(R).__name__}, expected a two-dimensional SciPy sparse matrix; "
            "build one with scipy.sparse.csr_array((ones, (user_idx, item_idx)), shape=(n_users, n_items))."
        )
    matrix = csr_array(R, dtype=np.float64, copy=True)
    if (invalid := matrix.data[~(np.isfinite(matrix.data) & (matrix.data >= 0))]).size:
        raise DataError(
            f"the interaction matrix holds the value {invalid[0]}, expected finite values from 0 on "
            "(0: no interaction, above 0: an interaction); drop or correct those pairs."
        )
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.data = np.ones(matrix.nnz)
    return matrix


def adjacency(R: csr_array) -> csr_array:
    """Return ``A = [[0, R], [Rᵀ, 0]]``, shape (N, N) with N = n_users + n_items: users first, then items."""
    n_users, n_items = R.shape
    Rt = R.T.tocsr()
    indices = np.concatenate([R.indices + n_users, Rt.indices])
    indptr = np.concatenate([R.indptr, R.nnz + Rt.indptr[1:]])
    return csr_array((np.concatenate([R.data, Rt.data]), indices, indptr), shape=(n_users + n_items,) * 2)
