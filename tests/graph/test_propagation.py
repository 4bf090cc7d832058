"""The operator of every spec against dense NumPy: product, adjoint, rows, gradients and reference values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dgcf.errors import ConfigError, DataError
from dgcf.graph import EdgeDrop, Propagation, PropagationSpec, build_propagation
from dgcf.graph.spec import DIRECT
from tests.graph.conftest import Dense, dense_cross, dense_laplacian, dense_renormalised, interactions, real

F64 = torch.float64


@st.composite
def specs(draw: st.DrawFn) -> PropagationSpec:
    """Every description that has a meaning."""
    cross = draw(st.sampled_from(["filtered", "matrix-free", "none"]))
    direct = draw(st.booleans()) or cross == "none"
    return PropagationSpec(
        direct=direct,
        cross=cross,
        epsilon=draw(st.sampled_from([0.0, 0.15, 0.4, "auto"])),
        self_loop=draw(st.booleans()),
        cross_diagonal=draw(st.booleans()),
        cross_below_one=draw(st.booleans()),
        renormalised=direct and cross != "matrix-free" and draw(st.booleans()),
        spectral=None if cross == "matrix-free" else draw(st.sampled_from([None, None, "all"])),
    )


DROPS = st.builds(
    EdgeDrop,
    p=st.sampled_from([0.1, 0.5, 0.9]),
    seed=st.integers(0, 5),
    step=st.integers(0, 50),
    layer=st.integers(0, 3),
)


def dense_operator(R: csr_array, spec: PropagationSpec, epsilon: float | None) -> Dense:
    """M of the spec, written out."""
    M = np.zeros((sum(R.shape), sum(R.shape)))
    if spec.direct:
        M += dense_renormalised(R) if spec.renormalised else dense_laplacian(R)
    if spec.cross != "none":
        Lc = dense_cross(R)
        if not spec.cross_diagonal:
            np.fill_diagonal(Lc, 0.0)
        if spec.cross_below_one:
            Lc[Lc >= 1.0] = 0.0
        M += np.where(Lc > (epsilon or 0.0), Lc, 0.0)
    M = M + np.eye(len(M)) if spec.self_loop else M
    if spec.spectral is None:
        return M
    frequency, U = np.linalg.eigh(np.eye(len(M)) - M)
    return np.asarray(U @ U.T + U @ np.diag(frequency) @ U.T)


def exact(R: csr_array, spec: PropagationSpec) -> Propagation:
    return build_propagation(R, spec).to(dtype=F64)


def noise(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def as_matrix(propagation: Propagation, drop: EdgeDrop | None = None) -> torch.Tensor:
    """The operator's matrix: its products with the unit vectors."""
    return propagation.apply(torch.eye(propagation.n_nodes, dtype=F64), drop=drop)


@given(interactions(), specs())
def test_every_spec_equals_the_dense_matrix(R: csr_array, spec: PropagationSpec) -> None:
    propagation = exact(R, spec)
    expected = dense_operator(R, spec, propagation.epsilon)
    np.testing.assert_allclose(
        as_matrix(propagation).numpy(), expected, rtol=0, atol=1e-14 if not spec.spectral else 1e-13
    )


@given(interactions(), specs())
def test_the_stored_matrix_is_symmetric_to_the_bit(R: csr_array, spec: PropagationSpec) -> None:
    if spec.cross != "matrix-free":
        matrix = build_propagation(R, spec).stored.exact.toarray()
        assert np.array_equal(matrix, matrix.T)


@given(interactions(), st.booleans(), st.booleans())
def test_matrix_free_equals_filtered_at_zero(R: csr_array, diagonal: bool, below_one: bool) -> None:
    parts = {"cross_diagonal": diagonal, "cross_below_one": below_one}
    x = noise(1, sum(R.shape), 3)
    stored = exact(R, PropagationSpec(epsilon=0.0, **parts)).apply(x)
    free = exact(R, PropagationSpec(cross="matrix-free", **parts)).apply(x)
    torch.testing.assert_close(free, stored, rtol=0, atol=1e-13)


@given(interactions(), specs(), st.one_of(st.none(), DROPS), st.integers(0, 99))
def test_the_adjoint_identity_holds_under_drop_edge(
    R: csr_array, spec: PropagationSpec, drop: EdgeDrop | None, seed: int
) -> None:
    propagation = exact(R, spec)
    x = noise(seed, propagation.n_nodes, 3).requires_grad_()
    y = noise(seed + 1, propagation.n_nodes, 3)
    product = propagation.apply(x, drop=drop)
    (adjoint,) = torch.autograd.grad(product, x, y)
    torch.testing.assert_close((product * y).sum(), (x * adjoint).sum(), rtol=1e-12, atol=1e-12)
    matrix = as_matrix(propagation, drop)
    torch.testing.assert_close(adjoint, matrix.T @ y, rtol=0, atol=1e-12)
    torch.testing.assert_close(product, matrix @ x, rtol=0, atol=1e-12)


@given(interactions(), specs(), st.one_of(st.none(), DROPS), st.data())
def test_restricted_rows_equal_those_of_the_full_product_and_so_do_gradients(
    R: csr_array, spec: PropagationSpec, drop: EdgeDrop | None, data: st.DataObject
) -> None:
    propagation = exact(R, spec)
    n_nodes = propagation.n_nodes
    rows = torch.tensor(data.draw(st.lists(st.integers(0, n_nodes - 1), max_size=12)), dtype=torch.int64)
    x = noise(1, n_nodes, 3).requires_grad_()
    y = noise(2, len(rows), 3)
    restricted, full = propagation.apply(x, rows=rows, drop=drop), propagation.apply(x, drop=drop)[rows]
    torch.testing.assert_close(restricted, full, rtol=0, atol=1e-13)
    (from_rows,), (from_full,) = (torch.autograd.grad(result, x, y) for result in (restricted, full))
    torch.testing.assert_close(from_rows, from_full, rtol=0, atol=1e-12)


@given(interactions(), st.sampled_from([0.0, "auto"]), DROPS)
def test_every_kept_entry_is_rescaled(R: csr_array, epsilon: float, drop: EdgeDrop) -> None:
    propagation = exact(R, PropagationSpec(epsilon=epsilon))
    thinned, whole = as_matrix(propagation, drop).numpy(), propagation.stored.exact.toarray()
    is_kept = np.isclose(thinned, whole / (1 - drop.p), rtol=1e-15, atol=0)
    assert (is_kept | (thinned == 0)).all()


def test_entries_and_mirrored_entries_are_drawn_independently(golden_matrix: csr_array) -> None:
    propagation = exact(golden_matrix, PropagationSpec())
    asymmetric = 0
    for step in range(20):
        thinned = as_matrix(propagation, EdgeDrop(0.5, 0, step)).numpy() != 0
        asymmetric += int((thinned != thinned.T).sum()) // 2
    pairs = 20 * np.count_nonzero(np.triu(propagation.stored.exact.toarray(), 1))
    assert abs(asymmetric / pairs - 0.5) < 5 * 0.5 / np.sqrt(pairs)


@pytest.mark.parametrize("cross", ["filtered", "matrix-free"])
def test_the_mean_over_many_draws_is_the_whole_matrix(golden_matrix: csr_array, cross: Any) -> None:
    propagation = exact(golden_matrix, PropagationSpec(cross=cross))
    draws = torch.stack([as_matrix(propagation, EdgeDrop(0.2, 0, step)) for step in range(3000)])
    error = draws.std(dim=0) / np.sqrt(3000) + 1e-12
    assert ((draws.mean(dim=0) - as_matrix(propagation)).abs() < 5 * error).all()


@pytest.mark.parametrize("cross", ["filtered", "matrix-free"])
@pytest.mark.parametrize("rows", [None, [3, 0, 3, 9]])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_gradcheck(golden_matrix: csr_array, cross: Any, rows: list[int] | None, p: float) -> None:
    propagation = exact(golden_matrix, PropagationSpec(cross=cross, epsilon=0.1))
    chosen = None if rows is None else torch.tensor(rows)
    drop = EdgeDrop(p, 1, 2, 3)
    x = noise(0, propagation.n_nodes, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: propagation.apply(x, rows=chosen, drop=drop), (x,))


def test_second_derivative_is_refused(golden_matrix: csr_array) -> None:
    propagation = exact(golden_matrix, PropagationSpec())
    x = noise(0, 16, 2).requires_grad_()
    (gradient,) = torch.autograd.grad(propagation.apply(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


VARIANTS = {
    "dgcf": (PropagationSpec(epsilon=0.25), True),
    "dgcf-chp": (PropagationSpec(epsilon=0.25), False),
    "dgcf-la": (PropagationSpec(cross="none"), True),
    "dgcf official-code": (PropagationSpec(self_loop=False, cross_below_one=True, epsilon=0.25), True),
    "dgcf unfiltered": (PropagationSpec(cross="matrix-free"), True),
    "lightgcn": (DIRECT, False),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_layers_give_the_reference_values(golden: dict[str, Any], golden_matrix: csr_array, variant: str) -> None:
    spec, gated = VARIANTS[variant]
    propagation = exact(golden_matrix, spec)
    layers = [torch.tensor(golden["layer0"], dtype=F64)]
    for logits in golden["gate_logits"]:
        gate = torch.sigmoid(torch.tensor(logits, dtype=F64))[:, None] if gated else 1.0
        layers.append(propagation.apply(gate * layers[-1]))
    expected = {name: torch.tensor(golden["variants"][variant][name], dtype=F64) for name in ("mean", "last")}
    torch.testing.assert_close(layers[-1], expected["last"], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(torch.stack(layers).mean(dim=0), expected["mean"], rtol=1e-12, atol=1e-14)


def test_the_reference_counts(golden: dict[str, Any], golden_matrix: csr_array) -> None:
    filtered = build_propagation(golden_matrix, PropagationSpec(epsilon=golden["epsilon"]))
    assert filtered.cross.edges == golden["cross_filtered_nonzero"]
    assert filtered.cross.direct_edges == golden["laplacian_nonzero"]
    assert (
        build_propagation(golden_matrix, PropagationSpec(epsilon=0.0)).cross.edges == golden["cross_unfiltered_nonzero"]
    )
    assert (filtered.n_users, filtered.n_items, filtered.n_nodes) == (7, 9, 16)
    assert filtered.epsilon == 0.25


def test_cross_hop_and_epsilon_are_none_without_a_filter(golden_matrix: csr_array) -> None:
    free = build_propagation(golden_matrix, PropagationSpec(cross="matrix-free"))
    assert (free.cross, free.epsilon, free.warning) == (None, None, None)
    lightgcn = build_propagation(golden_matrix, DIRECT)
    assert (lightgcn.cross, lightgcn.epsilon) == (None, None)
    with pytest.raises(ConfigError, match="has no matrix"):
        _ = free.stored


def test_conversion_rounds_from_the_exact_values(golden_matrix: csr_array) -> None:
    single = build_propagation(golden_matrix)
    assert single.dtype == torch.float32
    double = single.to(dtype=torch.bfloat16).to(dtype=F64)
    assert torch.equal(as_matrix(double), torch.from_numpy(double.stored.exact.toarray()))
    assert single.operator.matrix.indices.dtype == torch.int32  # type: ignore[attr-defined]


@given(interactions(), st.sampled_from(["filtered", "matrix-free"]), st.one_of(st.none(), DROPS))
def test_float32_and_bfloat16_are_close_to_float64(R: csr_array, cross: Any, drop: EdgeDrop | None) -> None:
    single = build_propagation(R, PropagationSpec(cross=cross))
    x = noise(3, sum(R.shape), 4)
    scale = single.to(dtype=F64).apply(x.abs(), drop=drop)
    expected = single.to(dtype=F64).apply(x, drop=drop)
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 3e-2)):
        found = single.to(dtype=dtype).apply(x.float(), drop=drop)
        assert found.dtype == torch.float32
        assert ((found - expected).abs() <= tolerance * scale.clamp(min=1e-6)).all()


def test_the_same_call_gives_the_same_bits(clustered: csr_array) -> None:
    drop = EdgeDrop(0.3, 1, 2)
    results = []
    for _ in range(2):
        x = torch.ones(700, 16, requires_grad=True)
        build_propagation(clustered).apply(x, drop=drop).pow(2).sum().backward()
        results.append(x.grad)
    assert torch.equal(results[0], results[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "rows", "sentence"),
    [
        (torch.zeros(15, 2), None, r"shape \(15, 2\) cannot be propagated; expected \(16, dim\)"),
        (torch.zeros(16), None, r"shape \(16,\) cannot be propagated"),
        (torch.zeros(16, 2, dtype=F64), None, "embeddings are torch.float64, the propagation torch.float32"),
        (torch.zeros(16, 2), torch.tensor([16]), "rows run from 16 to 16, expected 0 to 15"),
        (torch.zeros(16, 2), torch.tensor([-1]), "rows run from -1"),
        (torch.zeros(16, 2), torch.tensor([1], dtype=torch.int32), "expected one-dimensional int64"),
        (torch.zeros(16, 2), torch.tensor([[1]]), "expected one-dimensional int64"),
    ],
)
def test_invalid_embeddings_and_rows_are_refused(
    golden_matrix: csr_array, x: torch.Tensor, rows: torch.Tensor | None, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build_propagation(golden_matrix).apply(x, rows=rows)


def test_empty_graph_and_unsupported_precision_are_refused(golden_matrix: csr_array) -> None:
    with pytest.raises(DataError, match="no interaction"):
        build_propagation(csr_array((3, 3)))
    with pytest.raises(ConfigError, match=r"cannot be stored as torch.float16"):
        build_propagation(golden_matrix).to(dtype=torch.float16)


@pytest.mark.data("deoscirec/ml-1m")
def test_paper_operator_on_ml_1m() -> None:
    propagation = build_propagation(real("deoscirec/ml-1m"), PropagationSpec(epsilon=0.001))
    assert (propagation.cross.direct_edges, propagation.cross.edges) == (296598, 445255)
    # The self term falls on the diagonal of Lc where the filter left it.
    diagonal = 445255 - 438788
    assert propagation.stored.exact.nnz == 296598 + 445255 + (propagation.n_nodes - diagonal)
