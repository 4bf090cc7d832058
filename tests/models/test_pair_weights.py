"""Models that use the weights of pairs, against their definitions in dense NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError
from dgcf.graph import Propagation, PropagationSpec, build_propagation
from dgcf.graph.bipartite import interaction_matrix
from dgcf.graph.crosshop.build import cross_hop
from dgcf.models import GraphModel, ItemWeights, entry, itemknn
from dgcf.models.dgcf import DGCFConfig
from dgcf.models.ials import IALS, IALSConfig
from dgcf.models.lightgcn import LightGCNConfig
from dgcf.random import uniform
from tests.models.test_baselines import all_scores, dense, random_pairs, solved

Dense = NDArray[np.float64]


def weighted_pairs(seed: int, n_users: int = 30, n_items: int = 12, *, zeros: bool = True) -> Pairs:
    """Random pairs with weights from 0 to 5; about one in ten is 0."""
    pairs = random_pairs(seed, n_users, n_items)
    drawn = uniform(seed, "test/weights", len(pairs))
    weight = np.where(drawn < 0.1, 0.0 if zeros else 0.1, 5 * drawn).astype(np.float32)
    weight[0] = 2.0
    return replace(pairs, weight=weight)


def matrix(pairs: Pairs) -> Dense:
    """W, the weights of the pairs."""
    W = np.zeros((pairs.n_users, pairs.n_items))
    assert pairs.weight is not None
    W[pairs.user_idx, pairs.indices] = pairs.weight
    return W


# -- item-kNN -------------------------------------------------------------------------------------------------------


def nearest_by_weights(W: Dense, k: int, shrinkage: float) -> Dense:
    """c[j, i] by plain loops where j is one of i's k nearest."""
    n_items = W.shape[1]
    C = np.zeros((n_items, n_items))
    for item in range(n_items):
        near = {}
        for other in range(n_items):
            shared = W[:, item] @ W[:, other]
            if other != item and shared:
                near[other] = shared / (np.linalg.norm(W[:, item]) * np.linalg.norm(W[:, other]) + shrinkage)
        for other in sorted(near, key=lambda other: (-near[other], other))[:k]:
            C[other, item] = near[other]
    return C


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 14), st.sampled_from([0.0, 1.5, 50.0]), st.sampled_from([3, 10**9]))
def test_item_knn_compares_items_by_weights(seed: int, k: int, shrinkage: float, work: int) -> None:
    pairs = weighted_pairs(seed, n_users=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(itemknn, "_BLOCK_WORK", work)
        model = solved("item-knn", pairs, neighbours=k, shrinkage=shrinkage, weighted=True)
    C = nearest_by_weights(matrix(pairs), k, shrinkage)
    ranking = model.ranking(pairs)
    assert isinstance(ranking, ItemWeights)
    found = np.stack([ranking.weights.sum_rows(np.array([item])) for item in range(12)])
    np.testing.assert_allclose(found, C, rtol=1e-6)
    np.testing.assert_allclose(all_scores(model, pairs), dense(pairs) @ C, rtol=1e-6, atol=1e-7)


def test_item_knn_with_equal_weights_is_item_knn() -> None:
    pairs = random_pairs(3)
    ones = replace(pairs, weight=np.ones(len(pairs), np.float32))
    plain, weighted = solved("item-knn", pairs), solved("item-knn", ones, weighted=True)
    for name, values in plain.state_dict().items():
        torch.testing.assert_close(weighted.state_dict()[name], values)


# -- iALS -----------------------------------------------------------------------------------------------------------


def confidences(pairs: Pairs, alpha: float) -> Dense:
    return np.where(dense(pairs) > 0, 1.0 + alpha * matrix(pairs), 1.0)


def solve_rows(fixed: Dense, X: Dense, C: Dense, regularization: float) -> Dense:
    """The rows x that minimise ``Σ c (X − ⟨x, fixed⟩)² + λ ‖x‖²``, one dense solve each."""
    ridge = regularization * np.eye(fixed.shape[1])
    return np.stack(
        [
            np.linalg.solve(fixed.T @ (weight[:, None] * fixed) + ridge, fixed.T @ (weight * row))
            for row, weight in zip(X, C, strict=True)
        ]
    )


def test_ials_minimises_the_weighted_objective() -> None:
    """Users solve their normal equations; after many iterations items solve theirs, so that it is a minimum of both."""
    pairs = weighted_pairs(9, 40, 20)
    given_settings = {"factors": 6, "regularization": 2.0, "alpha": 3.0, "iterations": 300}
    model = solved("ials", pairs, weighted=True, **given_settings)
    assert isinstance(model, IALS)
    users, items = model.users.double().numpy(), model.items.double().numpy()
    X, C = dense(pairs), confidences(pairs, 3.0)
    np.testing.assert_allclose(users, solve_rows(items, X, C, 2.0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(items, solve_rows(users, X.T, C.T, 2.0), rtol=1e-2, atol=2e-3)
    # Not the minimum of the objective without weights.
    assert np.abs(users - solve_rows(items, X, np.where(X > 0, 3.0, 1.0), 2.0)).max() > 0.05


def test_ials_with_equal_weights_is_ials() -> None:
    """Weights of 1 with α − 1 are the confidence α of a pair."""
    pairs = random_pairs(4, 40, 20)
    ones = replace(pairs, weight=np.ones(len(pairs), np.float32))
    plain = solved("ials", pairs, factors=5, alpha=4.0)
    weighted = solved("ials", ones, factors=5, alpha=3.0, weighted=True)
    for name, values in plain.state_dict().items():
        torch.testing.assert_close(weighted.state_dict()[name], values, rtol=1e-4, atol=1e-6)
    assert IALS(2, 3, IALSConfig()).user_rule is not None
    assert IALS(2, 3, IALSConfig(weighted=True)).user_rule is None


# -- edges ----------------------------------------------------------------------------------------------------------


def normalised(pairs: Pairs) -> Dense:
    """``w_ui / √(w_u w_i)`` in both halves of the adjacency matrix; nothing where a sum is 0."""
    W = matrix(pairs)
    n_users, n = pairs.n_users, pairs.n_users + pairs.n_items
    A = np.zeros((n, n))
    A[:n_users, n_users:], A[n_users:, :n_users] = W, W.T
    degree = A.sum(1)
    scale = np.where(degree > 0, np.where(degree > 0, degree, 1.0) ** -0.5, 0.0)
    return np.asarray(scale[:, None] * A * scale)


def dense_operator(propagation: Propagation) -> Dense:
    eye = torch.eye(propagation.n_nodes, dtype=torch.float64)
    return propagation.to(dtype=torch.float64).apply(eye).numpy()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_edges_have_the_normalised_weights(seed: int) -> None:
    pairs = weighted_pairs(seed)
    direct = build_propagation(pairs, PropagationSpec(cross="none", self_loop=False, edge_weights=True))
    L = normalised(pairs)
    np.testing.assert_allclose(dense_operator(direct), L, rtol=1e-12, atol=1e-15)
    whole = build_propagation(pairs, PropagationSpec(epsilon=0.3, edge_weights=True))
    Lc = cross_hop(interaction_matrix(pairs), 0.3).matrix.toarray()  # counts common neighbours, not weights
    found = dense_operator(whole)
    np.testing.assert_allclose(found, L + Lc + np.eye(len(L)), rtol=1e-12, atol=1e-15)
    assert np.array_equal(found, found.T)


def test_pair_of_weight_zero_is_no_edge() -> None:
    pairs = replace(random_pairs(1), weight=None)
    weight = np.ones(len(pairs), np.float32)
    weight[3] = 0
    spec = PropagationSpec(cross="none", self_loop=False)
    weighted = build_propagation(replace(pairs, weight=weight), replace(spec, edge_weights=True))
    without = build_propagation(pairs.where(weight > 0), spec)
    assert np.array_equal(dense_operator(weighted), dense_operator(without))


@pytest.mark.parametrize("name", ["lightgcn", "dgcf"])
def test_one_layer_with_edge_weights_equals_its_equation(name: str) -> None:
    pairs = weighted_pairs(7)
    graph: dict[str, Any] = {} if name == "lightgcn" else {"gates": "none", "cross": "none", "self_loop": False}
    config = replace(entry(name).config, dim=4, layers=1, edge_weights=True, **graph)
    model = entry(name).build(30, 12, config, 3)
    assert isinstance(model, GraphModel)
    spec = config.spec()
    assert spec is not None
    nodes = model.double()(build_propagation(pairs, spec).to(dtype=torch.float64)).detach().numpy()
    start = model.layer0.detach().numpy()
    np.testing.assert_allclose(nodes, (start + normalised(pairs) @ start) / 2, rtol=1e-12, atol=1e-14)
    assert model.user_rule is None
    plain = entry(name).build(30, 12, replace(config, edge_weights=False), 3)
    assert isinstance(plain, GraphModel)
    assert plain.user_rule is not None


@pytest.mark.parametrize("config", [LightGCNConfig, DGCFConfig], ids=["lightgcn", "dgcf"])
def test_weights_change_nothing_without_the_setting(config: type[LightGCNConfig] | type[DGCFConfig]) -> None:
    pairs = weighted_pairs(5)
    spec = config().spec()
    with_weights, without = (build_propagation(given, spec) for given in (pairs, replace(pairs, weight=None)))
    assert np.array_equal(dense_operator(with_weights), dense_operator(without))
    for name in ("item-knn", "ials"):
        states = [solved(name, given).state_dict() for given in (pairs, replace(pairs, weight=None))]
        assert all(torch.equal(values, states[1][key]) for key, values in states[0].items())


# -- refusals -------------------------------------------------------------------------------------------------------


def test_missing_weights_are_refused_by_the_name_of_the_setting() -> None:
    pairs = random_pairs(2)
    spec = PropagationSpec(edge_weights=True)
    for name in ("item-knn", "ials"):
        with pytest.raises(DataError, match=r"weighted needs a weight of each pair, .*--weight-col"):
            solved(name, pairs, weighted=True)
    with pytest.raises(DataError, match=r"edge_weights needs a weight of each pair, .*leave edge_weights out"):
        build_propagation(pairs, spec)
    with pytest.raises(DataError, match=r"edge_weights needs the weights of a dataset's pairs; give Pairs"):
        build_propagation(pairs.to_scipy(), spec)
    nothing = replace(pairs, weight=np.zeros(len(pairs), np.float32))
    with pytest.raises(DataError, match=r"edge_weights needs weights above 0, and all weights of this data are 0"):
        build_propagation(nothing, spec)
    with pytest.raises(ConfigError, match=r"edge_weights needs a stored L; .*cross='filtered' or 'none'"):
        DGCFConfig(edge_weights=True, cross="matrix-free")
