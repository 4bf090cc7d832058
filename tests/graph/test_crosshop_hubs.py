"""Users with very many items: exact results in bounded work."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse import csr_array

from dgcf.errors import ConfigError, DataError
from dgcf.graph import cross_hop, interaction_matrix
from dgcf.graph.crosshop.hubs import pairs_reaching, split_hubs
from dgcf.graph.theory import report as report_module
from dgcf.graph.theory.oscillation import oscillation
from dgcf.graph.theory.report import graph_report
from dgcf.graph.theory.walk import SMALL, Walk
from tests.graph.conftest import dense_cross, interactions


def with_heavy_user(n_items: int, users: int, per_user: int = 30) -> csr_array:
    """One user with all items, and ordinary users with some of them, the first items most often."""
    rng = np.random.default_rng(0)
    items = (n_items * rng.random(users * per_user) ** 3).astype(np.int64)
    rows = np.concatenate([np.zeros(n_items, np.int64), np.repeat(np.arange(1, users + 1), per_user)])
    cols = np.concatenate([np.arange(n_items), items])
    return interaction_matrix(csr_array((np.ones(len(rows)), (rows, cols)), shape=(users + 1, n_items)))


@settings(max_examples=60)
@given(interactions(max_users=14, max_items=14))
def test_histogram_by_classes_equals_the_dense_one(R: csr_array) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_module, "BISECTIONS", 0)
        assert split_hubs(R, 0).count > 0, "no hub is taken, so this tests nothing"
        found = graph_report(R).histogram
    assert found is not None
    values = dense_cross(R)[dense_cross(R) > 0]
    place = np.searchsorted(report_module.FLOORS, values, side="right") - 1
    counts = np.bincount(place, minlength=len(report_module.FLOORS))
    assert np.array_equal(counts[counts.nonzero()[0][0] : counts.nonzero()[0][-1] + 1], found.counts)


def test_pairs_reaching_equals_counting_all_pairs() -> None:
    rng = np.random.default_rng(3)
    one, other = (np.sort(rng.integers(1, 40, size).astype(np.float64)) for size in (30, 50))
    values = (2 / np.sqrt(np.outer(one, other))).ravel()
    levels = np.concatenate([[0.0, 5.0], np.unique(values)])
    assert pairs_reaching(2, one, other, levels).tolist() == [int((values >= level).sum()) for level in levels]


def test_graph_of_a_user_with_100_000_items_takes_seconds() -> None:
    R = with_heavy_user(100_000, users=1000)
    done: list[tuple[float, float | None]] = []
    began = time.perf_counter()
    report = graph_report(R, progress=lambda *step: done.append(step))
    assert time.perf_counter() - began < 30
    assert report.histogram is not None
    assert report.histogram.total > 10**10, "all pairs of the user's items are counted"
    assert report.cross.ratio < 1.1
    assert done == sorted(done), "progress never falls"
    assert done[-1] == (2, 2)


@pytest.mark.slow
def test_oscillation_of_a_user_with_100_000_items_takes_seconds() -> None:
    began = time.perf_counter()
    done: list[float] = []
    report = oscillation(with_heavy_user(100_000, users=1000), progress=lambda part, _: done.append(part))
    assert time.perf_counter() - began < 60
    assert report.walks["L"].ends.highest == pytest.approx(-report.walks["L"].ends.lowest, abs=1e-6)
    assert done == sorted(done)


@pytest.mark.parametrize("name", ["L", "L+I", "A+I", "L+Lc", "L+Lc+I"])
def test_ends_by_lanczos_are_those_of_the_dense_matrix(name: str, clustered: csr_array) -> None:
    from scipy.sparse import eye_array

    from dgcf.graph.bipartite import adjacency
    from dgcf.graph.normalize import laplacian

    R = interaction_matrix(clustered)
    R = R[np.diff(R.indptr) > 0][:, np.bincount(R.indices, minlength=R.shape[1]) > 0]
    A = adjacency(R)
    parts = {"L": laplacian(A), "A": A, "Lc": cross_hop(R).matrix, "I": eye_array(A.shape[0], format="csr")}
    walk = Walk(csr_array(sum(parts[part] for part in name.split("+"))), R.shape[0])
    assert walk.M.shape[0] > SMALL
    spectrum = np.sort(np.linalg.eigvals(walk.transition.toarray()).real)[:-1]  # less the 1
    spectrum = spectrum[1:] if walk.two_sided else spectrum
    assert walk.ends() == pytest.approx((spectrum[0], spectrum[-1]), abs=1e-6)


def test_epsilon_that_keeps_too_many_pairs_of_one_user_is_refused_at_once() -> None:
    R = with_heavy_user(100_000, users=0)
    began = time.perf_counter()
    with pytest.raises(ConfigError, match=r"epsilon 0 keeps more than 10,000,000,000 cross-hop edges.*100,000 neig"):
        cross_hop(R, 0.0)
    assert time.perf_counter() - began < 10
    assert cross_hop(R, 2e-5).edges == 1


def test_epsilon_that_keeps_too_many_pairs_of_many_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.graph.crosshop.build.MOST_EDGES", 100)
    with pytest.raises(ConfigError, match="epsilon 0 keeps more than 50 pairs of nodes; raise it"):
        cross_hop(interaction_matrix(csr_array(np.eye(200))), 0.0)


def test_histogram_of_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.graph.crosshop.hubs.MOST_WORK", 1000)
    with pytest.raises(DataError, match=r"the histogram of Lc would take about .* leave it out \(--no-histogram"):
        graph_report(csr_array(np.ones((30, 30))))
    assert graph_report(csr_array(np.ones((30, 30))), histogram=False).histogram is None
