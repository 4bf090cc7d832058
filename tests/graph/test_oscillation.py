"""Limits, gaps, bounds and rates of walks against dense linear algebra, and the claims on real data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import dgcf.graph.theory.oscillation as oscillation_module
import dgcf.graph.theory.walk as walk_module
from dgcf.errors import DataError
from dgcf.graph.theory.oscillation import PAPER_CLAIMS, WalkReport, oscillation, walk_report
from dgcf.graph.theory.walk import Walk, gap_bounds
from tests.graph.conftest import interactions, real


@st.composite
def walks(draw: st.DrawFn) -> Walk:
    """A connected weighted graph of two sides; with or without edges inside them."""
    users, items = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    R = (rng.random((users, items)) < 0.4) * rng.random((users, items))
    R[:, 0] += 0.5
    R[0, :] += 0.5
    inside = (rng.random((users + items,) * 2) < 0.3) * rng.random((users + items,) * 2)
    M = (inside + inside.T) if draw(st.booleans()) else np.zeros((users + items,) * 2)
    M[:users, users:] += R
    M[users:, :users] += R.T
    return Walk(csr_array(M), users)


def dense_power(walk: Walk, exponent: int) -> np.ndarray:
    return np.linalg.matrix_power(walk.transition.toarray(), exponent)


@given(walks())
def test_step_preserves_mass_and_limits_are_stationary(walk: Walk) -> None:
    start = walk.uniform()
    P = walk.transition.toarray()
    np.testing.assert_allclose(P.sum(axis=0), 1.0, rtol=1e-12)
    even, odd = walk.limits(start)
    np.testing.assert_allclose(P @ even, odd, atol=1e-14)
    np.testing.assert_allclose(P @ odd, even, atol=1e-14)
    if not walk.two_sided:
        degree = walk.M.toarray().sum(axis=1)
        np.testing.assert_allclose(even, degree / degree.sum(), rtol=1e-12)


@given(walks())
def test_walk_converges_to_the_limits_of_a_large_power(walk: Walk) -> None:
    assume(walk.ends().decay < 0.99)
    start = walk.uniform()
    even, odd, _, settled = walk.run(start)
    assert settled
    huge = dense_power(walk, 4096) @ start
    np.testing.assert_allclose(even, huge, atol=1e-10)
    np.testing.assert_allclose(odd, walk.transition @ huge, atol=1e-10)


@given(walks())
def test_gap_vanishes_exactly_under_the_theorems_condition(walk: Walk) -> None:
    start = walk.uniform()
    even, odd = walk.limits(start)
    gap = np.abs(even - odd).sum()
    if walk.two_sided:
        assert abs(gap - 2 * walk.condition(start)) < 1e-12
        sides = np.array([walk.n_users, len(start) - walk.n_users])
        assert abs(gap - 2 * abs(sides[0] - sides[1]) / sides.sum()) < 1e-12
    else:
        assert gap == 0


@given(walks())
def test_the_ends_of_the_spectrum_are_those_of_the_dense_matrix(walk: Walk) -> None:
    spectrum = np.sort(np.linalg.eigvals(walk.transition.toarray()).real)
    lasting = [1.0, -1.0] if walk.two_sided else [1.0]
    for value in lasting:
        nearest = int(np.argmin(np.abs(spectrum - value)))
        assert abs(spectrum[nearest] - value) < 1e-9
        spectrum[nearest] = 0.0  # deflated, as the report does
    assert abs(walk.ends().decay - np.abs(spectrum).max()) < 1e-8


@given(walks(), st.booleans())
def test_no_gap_exceeds_the_bound_and_the_bound_is_the_norm_of_the_power(walk: Walk, symmetric: bool) -> None:
    matrix = walk.M / walk.M.max() if symmetric else walk.transition
    start = walk.uniform()
    bounds = gap_bounds(csr_array(matrix), start, 12)
    dense = matrix.toarray()
    first = np.abs(start - dense @ start).sum()
    x = start
    for t in range(12):
        power = np.linalg.matrix_power(dense, t)
        np.testing.assert_allclose(bounds[t], np.linalg.norm(power, 1) * first, rtol=1e-10, atol=1e-14)
        following = dense @ x
        assert np.abs(x - following).sum() <= bounds[t] * (1 + 1e-12) + 1e-14
        x = following


def test_bound_at_even_steps_is_that_of_v_and_t() -> None:
    R = np.array([[0.5, 0.2, 0.0], [0.1, 0.0, 0.7]])
    matrix = np.block([[np.zeros((2, 2)), R], [R.T, np.zeros((3, 3))]])
    start = np.full(5, 0.2)
    bounds = gap_bounds(csr_array(matrix), start, 7)
    first = np.abs(np.concatenate([R @ start[2:] - start[:2], R.T @ start[:2] - start[2:]])).sum()
    for k in range(4):
        V, T = (np.linalg.matrix_power(side, k) for side in (R @ R.T, R.T @ R))
        assert bounds[2 * k] == pytest.approx(max(V.sum(axis=0).max(), T.sum(axis=0).max()) * first, rel=1e-13)


def test_a_self_loop_on_a_regular_graph_shrinks_the_gap_by_d_minus_one_over_d_plus_one() -> None:
    d, n = 4, 9
    circulant = np.zeros((n, n))
    for shift in range(d):
        circulant[np.arange(n), (np.arange(n) + shift) % n] = 1
    A = np.block([[np.zeros((n, n)), circulant], [circulant.T, np.zeros((n, n))]])
    report = walk_report(Walk(csr_array(A + np.eye(2 * n)), n), steps=5)
    assert report.flip_per_step == pytest.approx((d - 1) / (d + 1), rel=1e-12)


def test_lanczos_and_the_dense_solver_agree(clustered: csr_array) -> None:
    report = oscillation(clustered, steps=5)
    largest = report.components[0]
    assert largest.users + largest.items > 200, "the graph is too small for Lanczos to be used"
    walk = report.walks["L"]
    assert walk.ends.highest == pytest.approx(-walk.ends.lowest, abs=1e-6), "a bipartite spectrum is symmetric"
    assert walk.ends.highest < 1 - 1e-3


@given(interactions(max_users=7, max_items=7))
def test_report_describes_the_largest_component(R: csr_array) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk_module, "WALK_BUDGET", 1_000_000)
        report = oscillation(R, epsilon=0.0, steps=10)
    assert set(report.walks) == set(PAPER_CLAIMS)
    for walk in report.walks.values():
        assert walk.within_bound
        assert walk.gap_limit == pytest.approx(walk.gap_limit_exact, abs=1e-6)
    assert report.walks["L"].gap_limit_exact == pytest.approx(report.components[0].gap_limit, abs=1e-12)
    assert (report.symmetric_gaps <= report.symmetric_bounds * (1 + 1e-12) + 1e-14).all()
    nodes = sum(part.users + part.items for part in report.components) + report.isolated
    assert nodes == sum(R.shape)
    assert sum(part.direct_edges for part in report.components) == 2 * R.nnz


def test_components_are_listed_largest_first() -> None:
    R = np.zeros((5, 7))
    R[0, 0] = 1
    R[1:3, 1:6] = 1
    report = oscillation(csr_array(R), epsilon=0.9, steps=4)
    assert [(part.users, part.items) for part in report.components] == [(2, 5), (1, 1)]
    assert report.isolated == 2 + 1
    assert not report.connected
    # At 0.9 only the lone pair, whose Lc is 1, keeps a cross-hop edge; the large part goes on oscillating.
    assert [part.one_limit_with_cross for part in report.components] == [False, True]
    assert report.walks["L+Lc"].two_sided
    assert report.walks["L+Lc"].gap_limit == pytest.approx(2 * 3 / 7)


def test_no_interaction_is_refused() -> None:
    with pytest.raises(DataError, match="no interaction"):
        oscillation(csr_array((3, 4)))


def distances_to_the_limits(walk: Walk, steps: int) -> np.ndarray:
    """Return ``‖x(t) − π‖₁``, where π is the limit of even or of odd steps, as t is."""
    x, P, limits = walk.uniform(), walk.transition, walk.limits(walk.uniform())
    distances = np.empty(steps)
    for t in range(steps):
        distances[t] = np.abs(x - limits[t % 2]).sum()
        x = P @ x
    return distances


@pytest.mark.data("deoscirec/ml-100k")
def test_papers_claims_on_ml_100k(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Walk] = []

    def recorded(walk: Walk, steps: int) -> WalkReport:
        seen.append(walk)
        return walk_report(walk, steps)

    monkeypatch.setattr(oscillation_module, "walk_report", recorded)
    report = oscillation(real("deoscirec/ml-100k"), steps=600)
    limits = {name: walk.gap_limit for name, walk in report.walks.items()}
    assert limits["L"] == pytest.approx(2 * (1077 - 928) / 2005, abs=1e-9)
    assert limits["L"] > 1e-3
    for name in ("L+I", "A+I", "L+Lc", "L+Lc+I"):
        assert limits[name] < 1e-8
        assert report.walks[name].limit_error < 1e-12
    for walk, matrix in zip(report.walks.values(), seen, strict=True):
        assert walk.settled
        assert walk.within_bound
        distances = distances_to_the_limits(matrix, 600)
        # What is left to the limit shrinks at the rate of the spectrum: seen far out, but above rounding.
        late = int(np.flatnonzero(distances > 1e-10)[-1])
        measured = (distances[late] / distances[late - 20]) ** (1 / 20)
        assert measured == pytest.approx(walk.decay_per_step, abs=5e-3)
