"""Degrees and symmetric normalisation: from the adjacency matrix A to the normalised matrix L."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def degrees(A: csr_array) -> NDArray[np.float64]:
    """Return ``d = A · 1``, the number of neighbours of each node or the sum of its weights, shape (N,)."""
    return np.asarray(A @ np.ones(A.shape[1]))


def cross_degrees(A: csr_array) -> NDArray[np.float64]:
    """Return ``dc = A · (A · 1)``, the row sums of A², shape (N,). Exact: sums of whole numbers below 2^53."""
    return np.asarray(A @ degrees(A))


def inverse_sqrt(degree: NDArray[Any]) -> NDArray[np.float64]:
    """Return ``degree^-½``, or 0 for an isolated node."""
    safe = np.where(degree > 0, degree, 1.0)
    return np.where(degree > 0, 1.0 / np.sqrt(safe), 0.0)


def laplacian(A: csr_array) -> csr_array:
    """Return ``L = D^-½ A D^-½``: entry ``a_ij / √(d_i d_j)`` for each edge; rows of isolated nodes are empty.

    One square root of the product, instead of a product of two, keeps L symmetric to the last bit.
    """
    degree = degrees(A)
    row_degree = np.repeat(degree, np.diff(A.indptr))
    return csr_array((A.data / np.sqrt(row_degree * degree[A.indices]), A.indices, A.indptr), shape=A.shape)
