"""GF-CF, BSPM and ChebyCF against their published equations in dense NumPy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.graph.item_graph import ItemGraph
from dgcf.models import ItemWeights, entry, graph_filter
from dgcf.models.graph_filter import GraphFilter
from dgcf.random import uniform
from dgcf.ranking.torch_backend import largest_columns
from tests.graph.conftest import dense_laplacian, interactions

Dense = NDArray[np.float64]
FILTERS = ["gf-cf", "bspm", "chebycf"]
ALL = 1000
"""More neighbours than any graph here has items."""


def pairs_of(R: csr_array) -> Pairs:
    return Pairs.from_indices(*R.nonzero(), *R.shape)


def random_graph(seed: int, n_users: int = 40, n_items: int = 25) -> csr_array:
    """Popular and unpopular items; the first user and the item 3 are without pairs."""
    drawn = uniform(seed, "test/filter", n_users * n_items).reshape(n_users, n_items)
    R = drawn < np.linspace(0.05, 0.6, n_items)
    R[0], R[:, 3] = False, False
    return csr_array(R.astype(np.float64))


def solved(name: str, R: csr_array, **settings: Any) -> GraphFilter:
    model = entry(name).build(*R.shape, type(entry(name).config)(**settings))
    assert isinstance(model, GraphFilter)
    model.solve(pairs_of(R), 0)
    return model


def kept(model: GraphFilter) -> Dense:
    """The entries that the model keeps, as a matrix with zeros elsewhere."""
    W = torch.zeros(model.n_items, model.n_items)
    return W.scatter_(1, model.columns.long(), model.weights).double().numpy()


# -- the published equations ----------------------------------------------------------------------------------------


def parts(R: csr_array, rank: int, power: float) -> tuple[Dense, Dense]:
    """P and ``D_i^-β V Vᵀ D_i^β`` with 0 for an item without users."""
    block = dense_laplacian(R)[: R.shape[0], R.shape[0] :]
    P = block.T @ block
    V = np.linalg.eigh(P)[1][:, ::-1][:, :rank]
    return P, degree_matrix(R, -power) @ V @ V.T @ degree_matrix(R, power)


def degree_matrix(R: csr_array, power: float) -> Dense:
    return np.diag([float(d) ** power if d else 0.0 for d in R.toarray().sum(axis=0)])


def gf_cf(R: csr_array, rank: int, *, low_pass: float) -> Dense:
    P, ideal = parts(R, rank, 0.5)
    return P + low_pass * ideal


def bspm(R: csr_array, rank: int, *, low_pass: float, sharpening: float) -> Dense:
    """Four slopes of ``dW/dt = −W P`` over one step of length T, as Runge and Kutta combine them."""
    P, ideal = parts(R, rank, 0.5)
    W = P + low_pass * ideal
    first = -W @ P
    second = -(W + sharpening / 2 * first) @ P
    third = -(W + sharpening / 2 * second) @ P
    fourth = -(W + sharpening * third) @ P
    return W + sharpening / 6 * (first + 2 * second + 2 * third + fourth)


def chebycf(R: csr_array, rank: int, *, low_pass: float, order: int, flatness: float, degree_power: float) -> Dense:
    """The interpolation at K + 1 points cos((k + ½) π / (K + 1)), with coefficients and polynomials by cosines."""
    P, ideal = parts(R, rank, degree_power)
    angle = [(k + 0.5) * math.pi / (order + 1) for k in range(order + 1)]

    def plateau(x: float) -> float:
        return 0.5 + 0.5 * math.copysign(abs(x) ** flatness, x)  # x = 2s − 1

    values, vectors = np.linalg.eigh(P)
    place = np.arccos(np.clip(2 * values - 1, -1, 1))
    gain = np.zeros(len(values))
    for m in range(order + 1):
        weight = sum(plateau(math.cos(a)) * math.cos(m * a) for a in angle) * (2 if m else 1) / (order + 1)
        gain += weight * np.cos(m * place)
    polynomial = vectors @ np.diag(gain) @ vectors.T
    return degree_matrix(R, -degree_power) @ polynomial @ degree_matrix(R, degree_power) + low_pass * ideal


ORACLES = {"gf-cf": gf_cf, "bspm": bspm, "chebycf": chebycf}
SETTINGS: dict[str, Any] = {
    "gf-cf": {},
    "bspm": {"sharpening": st.sampled_from([0.0, 0.7, 2.5])},
    "chebycf": {
        "order": st.sampled_from([1, 3, 8, 12]),
        "flatness": st.sampled_from([0.5, 1.0, 1.5, 3.0]),
        "degree_power": st.sampled_from([-0.3, 0.0, 0.4, 1.0]),
    },
}


def separable_ranks(R: csr_array) -> list[int]:
    """Ranks whose vectors are defined: the eigenvalues before and after differ."""
    block = dense_laplacian(R)[: R.shape[0], R.shape[0] :]
    values = np.linalg.svd(block, compute_uv=False) ** 2
    return [k for k in range(1, len(values) + 1) if values[k - 1] - np.append(values, 0.0)[k] > 1e-2]


@pytest.mark.parametrize("name", FILTERS)
@given(R=interactions(max_users=12, max_items=12), data=st.data())
def test_weights_equal_the_published_equation(name: str, R: csr_array, data: st.DataObject) -> None:
    assume(separable_ranks(R))
    rank = data.draw(st.sampled_from(separable_ranks(R)))
    settings = {key: data.draw(space, key) for key, space in SETTINGS[name].items()}
    settings["low_pass"] = data.draw(st.sampled_from([0.0, 0.2, 1.5]))
    found = kept(solved(name, R, rank=rank, neighbours=ALL, **settings))
    expected = ORACLES[name](R, rank, **settings)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("name", FILTERS)
def test_weights_at_the_defaults_equal_the_published_equation(name: str) -> None:
    """All but the rank, which a small graph would not separate."""
    R, settings = random_graph(1), {}
    rank = separable_ranks(R)[-3]
    for key in ("low_pass", *SETTINGS[name]):
        settings[key] = getattr(entry(name).config, key)
    found = kept(solved(name, R, rank=rank, neighbours=ALL))
    np.testing.assert_allclose(found, ORACLES[name](R, rank, **settings), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("n", [9, ALL])
def test_scores_are_the_users_items_times_the_weights(name: str, n: int) -> None:
    """Negative weights included."""
    R = random_graph(2)
    model = solved(name, R, neighbours=n)
    ranking = model.ranking(pairs_of(R))
    assert isinstance(ranking, ItemWeights)
    np.testing.assert_allclose(ranking.scores(torch.arange(40)), R.toarray() @ kept(model), rtol=1e-12, atol=1e-12)
    assert (kept(model) < 0).any()


def test_bspm_without_sharpening_is_gf_cf() -> None:
    R = random_graph(3)
    settings = {"rank": 5, "low_pass": 0.3, "neighbours": ALL}
    blurred = kept(solved("bspm", R, sharpening=0, **settings))
    np.testing.assert_allclose(blurred, kept(solved("gf-cf", R, **settings)), rtol=0, atol=1e-7)


# -- how they are built ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("entries", [1, 60, 250])
def test_weights_do_not_depend_on_the_size_of_a_block(name: str, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    R = random_graph(4)
    whole = kept(solved(name, R, neighbours=ALL))
    monkeypatch.setattr(graph_filter, "_BLOCK_ENTRIES", {"cpu": entries})
    np.testing.assert_allclose(kept(solved(name, R, neighbours=ALL)), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", FILTERS)
@given(R=interactions(max_users=12, max_items=12), entries=st.integers(1, 150), data=st.data())
def test_blocks_of_any_size_give_the_entries_of_the_dense_equation(
    name: str, R: csr_array, entries: int, data: st.DataObject
) -> None:
    """Every entry that is kept is that of the equation, and none that is left out is larger by more than rounding."""
    assume(separable_ranks(R))
    rank = data.draw(st.sampled_from(separable_ranks(R)))
    n = data.draw(st.integers(1, R.shape[1]))
    settings = {key: getattr(entry(name).config, key) for key in ("low_pass", *SETTINGS[name])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_filter, "_BLOCK_ENTRIES", {"cpu": entries})
        model = solved(name, R, rank=rank, neighbours=n)
    expected = ORACLES[name](R, rank, **settings)
    columns = model.columns.numpy()
    np.testing.assert_allclose(
        model.weights.numpy(), np.take_along_axis(expected, columns, axis=1), rtol=1e-4, atol=2e-4
    )
    smallest = np.take_along_axis(np.abs(expected), columns, axis=1).min(axis=1)
    left_out = np.abs(expected).copy()
    np.put_along_axis(left_out, columns, 0.0, axis=1)
    assert (left_out.max(axis=1) <= smallest + 4e-4).all()


@pytest.mark.parametrize("name", FILTERS)
def test_as_many_neighbours_as_items_leave_nothing_out(name: str) -> None:
    R = random_graph(4)
    np.testing.assert_array_equal(kept(solved(name, R, neighbours=25)), kept(solved(name, R, neighbours=ALL)))
    assert np.count_nonzero(kept(solved(name, R, neighbours=23))) < np.count_nonzero(kept(solved(name, R)))


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_largest_columns_are_those_of_a_stable_sort(n_rows: int, n_columns: int, n: int, seed: int) -> None:
    """Numbers with many ties."""
    values = np.random.default_rng(seed).integers(0, 3, (n_rows, n_columns)).astype(np.float32)
    n = min(n, n_columns)
    found = largest_columns(torch.from_numpy(values), n)
    np.testing.assert_array_equal(found, np.sort(np.argsort(-values, axis=1, kind="stable")[:, :n], axis=1))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("n", [1, 7, 24])
def test_the_entries_of_largest_magnitude_of_each_row_are_kept(name: str, n: int) -> None:
    """Of equal ones those of the smaller index; the columns ascend."""
    R = random_graph(5, n_users=12)
    W, model = kept(solved(name, R, neighbours=ALL)), solved(name, R, neighbours=n)
    expected = np.sort(np.argsort(-np.abs(W), axis=1, kind="stable")[:, :n], axis=1)
    np.testing.assert_array_equal(model.columns.numpy(), expected)
    np.testing.assert_array_equal(model.weights.double().numpy(), np.take_along_axis(W, expected, axis=1))


def test_equal_entries_are_kept_by_the_smaller_index() -> None:
    """Everybody has everything: all entries of P are 1/8, without rounding."""
    model = solved("gf-cf", csr_array(np.ones((2, 8))), low_pass=0, neighbours=3)
    assert model.columns.tolist() == [[0, 1, 2]] * 8
    assert (model.weights == 1 / 8).all()


@pytest.mark.parametrize("name", FILTERS)
def test_an_item_without_users_has_an_empty_row_and_column(name: str) -> None:
    W = kept(solved(name, random_graph(6), neighbours=ALL))
    assert not W[3].any()
    assert not W[:, 3].any()
    assert W[4].any()


@pytest.mark.parametrize("name", FILTERS)
def test_a_graph_without_pairs_has_no_weights(name: str) -> None:
    model = solved(name, csr_array((3, 5)))
    assert not kept(model).any()
    assert not model.ranking(Pairs.empty(3, 5)).scores(torch.arange(3)).any()


@pytest.mark.parametrize("name", FILTERS)
def test_a_saved_and_loaded_state_gives_the_same_scores(name: str, tmp_path: Path) -> None:
    R = random_graph(7)
    model = solved(name, R, neighbours=6)
    save_file(model.state_dict(), tmp_path / "state.safetensors")
    again = entry(name).build(*R.shape, model.config)
    again.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert isinstance(again, GraphFilter)
    users = torch.arange(40)
    np.testing.assert_array_equal(again.ranking(pairs_of(R)).scores(users), model.ranking(pairs_of(R)).scores(users))


@pytest.mark.parametrize("name", FILTERS)
def test_solving_leaves_the_random_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.graph.item_graph.EXACT_SIDE", 0)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = solved(name, random_graph(8))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(solved(name, random_graph(8)).weights, first.weights)


@pytest.mark.gpu
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", FILTERS)
def test_a_gpu_gives_the_weights_of_the_cpu(name: str, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.graph.item_graph.EXACT_SIDE", 2048 if exact else 0)
    R = random_graph(9, 300, 200)
    on_cpu = solved(name, R, rank=8, neighbours=ALL)
    on_gpu = type(on_cpu)(300, 200, on_cpu.config)
    on_gpu.solve(pairs_of(R), 0, "cuda")
    np.testing.assert_allclose(kept(on_gpu), kept(on_cpu), rtol=0, atol=1e-4 if exact else 5e-3)


# -- settings -------------------------------------------------------------------------------------------------------


def test_a_rank_above_that_of_the_graph_is_reduced_and_noted() -> None:
    R = random_graph(10)
    model = solved("gf-cf", R, rank=400, neighbours=ALL)
    assert model.rank == 25
    assert model.notes == ["rank is 400, but the graph has 25 singular vectors; all are used."]
    np.testing.assert_array_equal(kept(model), kept(solved("gf-cf", R, rank=25, neighbours=ALL)))
    assert solved("gf-cf", R, rank=25).notes == []
    assert solved("gf-cf", R).notes == []


def test_automatic_rank_grows_with_the_root_of_the_smaller_side() -> None:
    ranks = {name: entry(name).build(29_858, 40_981).rank for name in FILTERS}  # type: ignore[union-attr]
    assert ranks == {"gf-cf": 259, "bspm": 449, "chebycf": 518}
    assert entry("bspm").build(100, 40_981).rank == 26  # type: ignore[union-attr]
    assert entry("bspm").build(1, 1).rank == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"neighbours": 0}, "neighbours is 0, expected from 1 to 100000"),
        ({"rank": 0}, "rank is 0, expected from 1 to 8192"),
        ({"low_pass": float("nan")}, r"low_pass is nan, expected from 0 to 1e\+06"),
        ({"low_pass": -0.1}, r"low_pass is -0.1, expected from 0 to 1e\+06"),
    ],
)
def test_invalid_settings_are_refused(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}; change it with --set {next(iter(settings))}=…$"):
        type(entry(name).config)(**settings)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("bspm", {"sharpening": float("nan")}, "sharpening is nan, expected from 0 to 100"),
        ("chebycf", {"order": 0}, "order is 0, expected from 1 to 64"),
        ("chebycf", {"flatness": 0.0}, "flatness is 0.0, expected above 0 to 100"),
        ("chebycf", {"degree_power": float("inf")}, "degree_power is inf, expected from -2 to 2"),
    ],
)
def test_invalid_settings_of_one_filter_are_refused(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        type(entry(name).config)(**settings)


def test_weights_that_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ItemGraph, "leading_vectors", lambda graph, rank: torch.full((25, rank), float("inf")))
    with pytest.raises(ConfigError, match=r"the weights of BSPM are not finite; lower its settings with --set"):
        solved("bspm", random_graph(11))


def test_too_many_items_are_refused_before_allocating() -> None:
    with pytest.raises(ConfigError, match=r"model bspm needs about .* GB .* lower rank or neighbours with --set"):
        entry("bspm").config.require_memory("bspm", 10**8, 10**8, 10**9)
