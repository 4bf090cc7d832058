"""Sampled neighbours: uniform, the same for any choice of rows, with the right mean and adjoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dgcf.errors import ConfigError
from dgcf.graph import NeighbourDraw, Propagation, PropagationSpec, build_propagation
from dgcf.graph.spec import DIRECT
from tests.graph.conftest import dense_adjacency, interactions

F64 = torch.float64


def direct(R: csr_array) -> Propagation:
    return build_propagation(R, DIRECT).to(dtype=F64)


DRAWS = st.builds(
    NeighbourDraw,
    fanout=st.integers(1, 6),
    seed=st.integers(0, 5),
    step=st.integers(0, 50),
    layer=st.integers(0, 3),
)


def test_neighbours_are_sampled_uniformly_in_every_slot() -> None:
    """A node of degree 3 and one of 1, over many steps."""
    nodes, degrees = torch.tensor([5, 6]), torch.tensor([3, 1])
    drawn = torch.stack([NeighbourDraw(4, 1, step, 0).places(nodes, degrees) for step in range(3000)])
    assert not drawn[:, 1].any()
    for slot in range(4):
        counts = np.bincount(drawn[:, 0, slot].numpy(), minlength=4)
        assert counts[3] == 0
        assert np.abs(counts[:3] / 3000 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 3000)
    together = (drawn[:, 0, 0] == drawn[:, 0, 1]).double().mean().item()  # slots know nothing of each other
    assert together == pytest.approx(1 / 3, abs=5 * np.sqrt(2 / 9 / 3000))


def test_seed_step_layer_and_node_all_change_the_draw() -> None:
    nodes, degrees = torch.arange(50), torch.full((50,), 1000)
    draw = NeighbourDraw(4, 1, 2, 3)
    places = draw.places(nodes, degrees)
    for other in (replace(draw, seed=2), replace(draw, step=3), replace(draw, layer=4)):
        assert (other.places(nodes, degrees) == places).double().mean() < 0.05
    assert (places[1:] == places[:-1]).double().mean() < 0.05


@given(interactions(), DRAWS, st.data())
def test_rows_and_adjoint_equal_those_of_the_matrix(R: csr_array, draw: NeighbourDraw, data: st.DataObject) -> None:
    propagation = direct(R)
    n_nodes = propagation.n_nodes
    matrix = propagation.sampled_mean(torch.eye(n_nodes, dtype=F64), draw)
    A = torch.from_numpy(dense_adjacency(R))
    assert not matrix[A == 0].any(), "a node received from a node that is no neighbour"
    met = A.sum(dim=1) > 0
    torch.testing.assert_close(matrix.sum(dim=1), met.double())
    times = matrix * draw.fanout  # how often each neighbour was drawn
    torch.testing.assert_close(times, times.round())
    rows = torch.tensor(data.draw(st.lists(st.integers(0, n_nodes - 1), min_size=1, max_size=9)))
    x = torch.randn(n_nodes, 3, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = torch.randn(len(rows), 3, dtype=F64, generator=torch.Generator().manual_seed(2))
    found = propagation.sampled_mean(x, draw, rows)
    torch.testing.assert_close(found, matrix[rows] @ x)
    (gradient,) = torch.autograd.grad(found, x, y)
    torch.testing.assert_close(gradient, matrix[rows].T @ y)


def test_mean_over_many_draws_converges_to_all_neighbours(golden_matrix: csr_array) -> None:
    propagation, A = direct(golden_matrix), dense_adjacency(golden_matrix)
    eye = torch.eye(propagation.n_nodes, dtype=F64)
    draws = torch.stack([propagation.sampled_mean(eye, NeighbourDraw(3, 0, step, 1)) for step in range(2000)])
    whole = torch.from_numpy(A / np.maximum(A.sum(axis=1, keepdims=True), 1))
    assert ((draws.mean(dim=0) - whole).abs() <= 5 * draws.std(dim=0) / np.sqrt(2000) + 1e-12).all()


def test_matrix_free_operator_refuses_neighbour_sampling(golden_matrix: csr_array) -> None:
    free = build_propagation(golden_matrix, PropagationSpec(cross="matrix-free"))
    with pytest.raises(ConfigError, match="has no matrix"):
        free.sampled_mean(torch.zeros(16, 2), NeighbourDraw(3, 0, 0, 0))
