"""The operator P between items against dense NumPy: its polynomials and its leading eigenvectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.polynomial.chebyshev import chebval
from scipy.sparse import csr_array

from dgcf.data.pairs import Pairs
from dgcf.graph import interaction_matrix, item_graph
from dgcf.graph.item_graph import ItemGraph
from tests.graph.conftest import Dense, dense_laplacian, interactions

GAP = 1e-2
"""Eigenvalues that differ by less have no separate vectors in float32."""


def graph_of(R: csr_array) -> ItemGraph:
    return ItemGraph.of(Pairs.from_indices(*R.nonzero(), *R.shape))


def dense_operator(R: csr_array) -> Dense:
    """``P = R̃ᵀR̃``, from the user–item block of the dense Laplacian."""
    block = dense_laplacian(interaction_matrix(R))[: R.shape[0], R.shape[0] :]
    return np.asarray(block.T @ block)


def spectrum(R: csr_array) -> tuple[Dense, Dense]:
    """Eigenvalues of P, descending, and their vectors as columns."""
    values, vectors = np.linalg.eigh(dense_operator(R))
    return values[::-1], vectors[:, ::-1]


def planted(groups: int, users: int = 30, items: int = 20) -> csr_array:
    """Groups of users who choose items of their group: as many eigenvalues stand out. Two items are unused."""
    rng = np.random.default_rng(3)
    same = np.kron(np.eye(groups), np.ones((users, items)))
    R = rng.random(same.shape) < np.where(same > 0, 0.5, 0.005)
    R[:, [0, 45]] = False
    return csr_array(R.astype(np.float64))


@pytest.fixture(params=[item_graph.EXACT_SIDE, 0], ids=["exact", "randomised"])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Both ways to compute the vectors."""
    monkeypatch.setattr(item_graph, "EXACT_SIDE", request.param)
    return int(request.param)


def projection(vectors: torch.Tensor) -> Dense:
    wide = vectors.double().numpy()
    return np.asarray(wide @ wide.T)


# -- polynomials ----------------------------------------------------------------------------------------------------


@given(interactions(), st.lists(st.floats(-2, 2), min_size=1, max_size=9), st.sampled_from([1, 3, 32, 70]))
def test_polynomial_equals_that_of_the_dense_eigenvalues(R: csr_array, coefficients: list[float], width: int) -> None:
    values, vectors = spectrum(R)
    x = np.random.default_rng(width).normal(size=(R.shape[1], width))
    expected = vectors @ (chebval(1 - 2 * values, coefficients)[:, None] * (vectors.T @ x))
    found = graph_of(R).polynomial(coefficients, torch.from_numpy(x).float())
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=5e-5)


@given(interactions(max_items=40))
def test_half_minus_half_the_first_polynomial_is_the_operator(R: csr_array) -> None:
    """``½ T_0 − ½ T_1 = s`` in ``T_k(1 − 2s)``."""
    found = graph_of(R).polynomial([0.5, -0.5], torch.eye(R.shape[1]))
    np.testing.assert_allclose(found.numpy(), dense_operator(R), rtol=0, atol=1e-6)


def test_high_orders_are_stable_in_float32(clustered: csr_array) -> None:
    values, vectors = spectrum(clustered)
    coefficients = 1 / (1.0 + np.arange(65))
    found = graph_of(clustered).polynomial(coefficients.tolist(), torch.eye(300))
    np.testing.assert_allclose(found.numpy(), vectors * chebval(1 - 2 * values, coefficients) @ vectors.T, atol=2e-5)


def test_polynomial_has_the_same_bits_with_any_number_of_threads(clustered: csr_array) -> None:
    graph, x = graph_of(clustered), torch.randn(300, 70, generator=torch.Generator().manual_seed(1))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(graph.polynomial([0.1, 0.7, -0.3], x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@given(interactions(), st.sampled_from([-1.0, -0.5, 0.0, 0.4, 2.0]))
def test_degree_powers_of_items_without_users_are_zero(R: csr_array, exponent: float) -> None:
    users = R.toarray().sum(0)
    expected = np.where(users > 0, np.maximum(users, 1) ** exponent, 0)
    np.testing.assert_allclose(graph_of(R).degree_power(exponent).numpy(), expected, rtol=1e-6)


# -- leading vectors ------------------------------------------------------------------------------------------------


@given(interactions(), st.booleans(), st.integers(1, 11))
@example(csr_array(np.ones((1, 5))), False, 4)
@example(csr_array(np.ones((5, 1))), True, 4)
def test_leading_vectors_span_the_dense_eigenspace(R: csr_array, randomised: bool, rank: int) -> None:
    """Where the eigenvalues at the cut are distinct; the vectors of the eigenvalue 0 are zeros."""
    values, vectors = spectrum(R)
    positive = min(rank, int((values > 1e-4).sum()))
    assume(values[positive - 1] - np.append(values, 0.0)[positive] > GAP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_graph, "EXACT_SIDE", 0 if randomised else item_graph.EXACT_SIDE)
        found = graph_of(R).leading_vectors(rank)
    assert found.shape == (R.shape[1], rank)
    assert not found[:, positive:].any()
    expected = vectors[:, :positive] @ vectors[:, :positive].T
    np.testing.assert_allclose(projection(found), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("across", [False, True], ids=["more users", "more items"])
def test_leading_vectors_are_orthonormal_and_sorted_by_eigenvalue(
    side: int, across: bool, clustered: csr_array
) -> None:
    """300 is below the rank that the randomised decomposition would need to be exact: 12 of 300."""
    R = csr_array(clustered.T) if across else clustered
    values, _ = spectrum(R)
    found = graph_of(R).leading_vectors(12).double().numpy()
    np.testing.assert_allclose(found.T @ found, np.eye(12), rtol=0, atol=1e-5)
    gains = np.einsum("ik,ij,jk->k", found, dense_operator(R), found)
    np.testing.assert_allclose(gains, values[:12], rtol=1e-5 if side else 2e-3)


def test_planted_groups_are_the_leading_vectors(side: int) -> None:
    R = planted(40)
    values, vectors = spectrum(R)
    assert values[39] - values[40] > 0.2
    found = graph_of(R).leading_vectors(40)
    np.testing.assert_allclose(projection(found), vectors[:, :40] @ vectors[:, :40].T, rtol=0, atol=1e-5)
    assert found[[0, 45]].abs().max() < 1e-6


@pytest.mark.usefixtures("side")
def test_leading_vectors_have_the_same_bits_in_each_call_and_leave_the_random_state(clustered: csr_array) -> None:
    graph, found = graph_of(clustered), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(graph.leading_vectors(20))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*found)


@pytest.mark.usefixtures("side")
def test_a_graph_without_pairs_has_no_leading_vectors() -> None:
    graph = ItemGraph.of(Pairs.empty(3, 4))
    assert torch.equal(graph.leading_vectors(2), torch.zeros(4, 2))
    assert torch.equal(graph.polynomial([0.5, -0.5], torch.eye(4)), torch.zeros(4, 4))
