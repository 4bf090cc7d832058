"""The filtered Lc against dense NumPy, in blocks of any size, with ε given and auto, and on real graphs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dgcf.errors import ConfigError
from dgcf.graph import cross_hop, interaction_matrix
from dgcf.graph.crosshop.build import CrossHop, _mirrored, stream_cross_hop
from dgcf.graph.crosshop.threshold import Entries, FixedThreshold
from tests.graph.conftest import Dense, dense_cross, interactions, real

EPSILONS = st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0))


def brute_force_auto(Lc: Dense, target: int) -> tuple[int, int]:
    """The least distance to the target that any ε reaches, and the smaller number of edges that has it."""
    counts = {int((Lc > epsilon).sum()) for epsilon in [0.0, *np.unique(Lc)]}
    best = min(counts, key=lambda count: (abs(count - target), count))
    return abs(best - target), best


@given(interactions(), EPSILONS, st.integers(1, 60))
def test_blocks_of_any_size_give_the_dense_matrix(R: csr_array, epsilon: float, block_work: int) -> None:
    expected = dense_cross(R)
    found = cross_hop(R, epsilon, block_work=block_work).matrix
    assert np.array_equal(found.toarray(), np.where(expected > epsilon, expected, 0.0))
    assert found.nnz == int((expected > epsilon).sum()), "an entry is stored twice, or a zero is stored"
    assert found.has_sorted_indices


@given(interactions(), st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_values_equal_to_epsilon_are_dropped(R: csr_array, pick: int, block_work: int) -> None:
    expected = dense_cross(R)
    values = np.unique(expected[expected > 0])
    epsilon = float(values[pick % len(values)])
    found = cross_hop(R, epsilon, block_work=block_work).matrix.toarray()
    assert np.array_equal(found, np.where(expected > epsilon, expected, 0.0))


@given(interactions())
def test_matrix_is_symmetric_to_the_last_bit(R: csr_array) -> None:
    matrix = cross_hop(R, 0.0).matrix.toarray()
    assert np.array_equal(matrix, matrix.T)


@given(interactions())
def test_the_unfiltered_spectrum_lies_in_zero_to_one(R: csr_array) -> None:
    spectrum = np.linalg.eigvalsh(cross_hop(R, 0.0).matrix.toarray())
    assert spectrum[0] > -1e-12
    assert abs(spectrum[-1] - 1) < 1e-12


@given(interactions(max_users=14, max_items=14), st.integers(1, 60))
def test_auto_epsilon_equals_exhaustive_search(R: csr_array, block_work: int) -> None:
    expected = dense_cross(R)
    found = cross_hop(R, "auto", block_work=block_work)
    distance, edges = brute_force_auto(expected, 2 * R.nnz)
    assert (abs(found.edges - 2 * R.nnz), found.edges) == (distance, edges)
    assert found.edges == int((expected > found.epsilon).sum()), "the stated ε does not give these edges"
    assert np.array_equal(found.matrix.toarray(), np.where(expected > found.epsilon, expected, 0.0))


@given(interactions(), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.2, "auto"]))
@example(csr_array(np.eye(3)), True, True, "auto")
def test_diagonal_and_ones_can_be_dropped(R: csr_array, diagonal: bool, below_one: bool, epsilon: float) -> None:
    expected = dense_cross(R)
    if not diagonal:
        np.fill_diagonal(expected, 0.0)
    if below_one:
        expected[expected >= 1.0] = 0.0
    found = cross_hop(R, epsilon, diagonal=diagonal, below_one=below_one)
    assert np.array_equal(found.matrix.toarray(), np.where(expected > found.epsilon, expected, 0.0))


@given(interactions())
@example(csr_array(np.eye(3)))
def test_stream_offers_the_whole_triangle_by_default(R: csr_array) -> None:
    everything = FixedThreshold(0.0)
    stream_cross_hop(R, everything)
    expected = np.triu(dense_cross(R))
    assert sorted(everything.entries().values) == sorted(expected[expected > 0])


@given(interactions(), st.sampled_from([0.0, 0.3, "auto"]), st.integers(1, 60))
@example(csr_array(np.ones((2, 5))), 0.0, 1)
def test_progress_rises_to_the_number_of_nodes(R: csr_array, epsilon: float | str, block_work: int) -> None:
    steps: list[tuple[float, float | None]] = []
    cross_hop(R, epsilon, block_work=block_work, progress=lambda *step: steps.append(step))
    done = [part for part, _ in steps]
    assert done == sorted(set(done))
    assert done[0] >= 1
    assert steps[-1] == (sum(R.shape), sum(R.shape))
    assert {whole for _, whole in steps} == {sum(R.shape)}


@pytest.mark.parametrize("epsilon", [0.0, "auto"])
def test_smaller_blocks_are_more_blocks(clustered: csr_array, epsilon: float | str) -> None:
    clustered = interaction_matrix(clustered)
    blocks: dict[int | None, list[float]] = {1000: [], None: []}
    for block_work, done in blocks.items():
        cross_hop(clustered, epsilon, block_work=block_work, progress=lambda part, _, done=done: done.append(part))
    assert len(blocks[1000]) > len(blocks[None])


@given(interactions(), EPSILONS, st.integers(1, 60))
def test_epsilon_that_keeps_too_many_pairs_is_refused(R: csr_array, epsilon: float, most: int) -> None:
    expected = dense_cross(R) > epsilon
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dgcf.graph.crosshop.build.MOST_EDGES", 2 * most)
        if np.triu(expected).sum() > most:
            with pytest.raises(ConfigError, match=r"keeps more than .*; raise it, or set epsilon"):
                cross_hop(R, epsilon)
        else:
            assert cross_hop(R, epsilon).edges == expected.sum()


@pytest.mark.parametrize(
    ("most", "epsilon", "sentence"),
    [
        (143, 0.0, "epsilon 0 keeps more than 144 cross-hop edges, because one node has 12 neighbours"),
        (143, 0.083, "epsilon 0.083 keeps more than 144 cross-hop edges, because one node has 12 neighbours"),
        (144, 0.0, "epsilon 0 keeps more than 72 pairs of nodes"),
        (143, 1 / 12, None),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_pairs_of_one_node_are_counted_before_they_are_formed(
    most: int, epsilon: float, sentence: str | None, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node has 12 neighbours, whose pairs have the value 1/12; another has 3; the last of each side has none."""
    pairs = np.zeros((3, 16))
    pairs[0, 12:15] = pairs[1, :12] = 1.0
    monkeypatch.setattr("dgcf.graph.crosshop.build.MOST_EDGES", most)
    R = csr_array(pairs.T if turned else pairs)
    if sentence is None:
        assert cross_hop(R, epsilon).edges == 1 + 1 + 9  # each node with itself, and the three
    else:
        with pytest.raises(ConfigError, match=sentence):
            cross_hop(R, epsilon)


@pytest.mark.parametrize("block_work", [1, 1000, None])
@pytest.mark.parametrize("epsilon", [0.0, 0.002, 0.005, 0.02, 0.1, "auto"])
def test_splitting_off_hubs_does_not_change_the_matrix(
    clustered: csr_array, epsilon: float, block_work: int | None
) -> None:
    R = interaction_matrix(clustered)
    expected = dense_cross(R)
    found = cross_hop(R, epsilon, block_work=block_work)
    assert np.array_equal(found.matrix.toarray(), np.where(expected > found.epsilon, expected, 0.0))


def test_auto_holds_fewer_than_twice_the_target(clustered: csr_array) -> None:
    R = interaction_matrix(clustered)
    found = cross_hop(R, "auto", block_work=500)
    everything = int((dense_cross(R) > 0).sum())
    assert everything > 8 * found.direct_edges, "the graph is too sparse for this test to mean anything"
    assert found.peak_held < 2 * found.direct_edges
    assert found.ratio < 1.01


def test_auto_epsilon_with_more_ties_than_it_can_hold() -> None:
    """On a complete graph all values of a side are equal: they stay or go together."""
    R = csr_array(np.ones((30, 40)))
    found = cross_hop(R, "auto", block_work=7)
    assert found.edges == brute_force_auto(dense_cross(R), 2400)[1]


@given(interactions())
def test_ratio_follows_the_papers_definition(R: csr_array) -> None:
    found = cross_hop(R, 0.3)
    few, many = sorted((found.edges, found.direct_edges))
    assert found.ratio == (many / few if few else math.inf)
    assert found.ratio >= 1


@pytest.mark.parametrize("epsilon", [-0.001, 1.001, math.nan, math.inf, "Auto", "0.1", True])
def test_an_epsilon_outside_zero_to_one_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match=r"epsilon is .*, expected a number from 0 to 1"):
        cross_hop(csr_array(np.ones((2, 2))), epsilon)


@pytest.mark.parametrize(("shape", "edges"), [((1, 1), 2), ((1, 5), 26), ((5, 1), 26)])
def test_graphs_of_one_user_or_one_item(shape: tuple[int, int], edges: int) -> None:
    R = csr_array(np.ones(shape))
    assert cross_hop(R, 0.0).edges == edges
    assert np.array_equal(cross_hop(R, 0.0).matrix.toarray(), dense_cross(R))


def test_a_useless_epsilon_is_warned_about(clustered: csr_array) -> None:
    R = interaction_matrix(clustered)
    assert "leaves no cross-hop edge between different nodes" in str(cross_hop(R, 1.0).warning())
    assert "more than 10 times" in str(cross_hop(R, 0.0).warning())
    assert cross_hop(R, "auto").warning() is None
    assert cross_hop(R).epsilon == cross_hop(R, "auto").epsilon


def chosen_by_hand(off_diagonal: int, diagonal: int, direct_edges: int) -> CrossHop:
    """A result with the given counts, whatever graph could have led to it."""
    matrix = np.diag(np.repeat([0.5, 0.0], [diagonal, 40 - diagonal]))
    matrix[np.triu_indices(40, 1)] = np.arange(780) < off_diagonal
    return CrossHop(csr_array(matrix), epsilon=0.1, direct_edges=direct_edges, peak_held=0)


@pytest.mark.parametrize(
    ("off_diagonal", "diagonal", "direct_edges", "warned"),
    [
        (0, 5, 10, "leaves no cross-hop edge"),
        (0, 0, 10, "leaves no cross-hop edge"),
        (0, 30, 2, "leaves no cross-hop edge"),
        (1, 0, 10, None),
        (1, 5, 10, None),
        (96, 4, 10, None),
        (97, 4, 10, "keeps 101 cross-hop edges, more than 10 times the 10 direct ones"),
    ],
)
def test_warnings_start_at_their_limits(
    off_diagonal: int, diagonal: int, direct_edges: int, warned: str | None
) -> None:
    found = chosen_by_hand(off_diagonal, diagonal, direct_edges)
    assert (found.off_diagonal, found.edges) == (off_diagonal, off_diagonal + diagonal)
    warning = found.warning()
    assert warning is None if warned is None else warning is not None and warned in warning


@given(interactions(), st.sampled_from([0.0, 0.2, 1.0, "auto"]), st.integers(1, 60))
def test_peak_held_is_at_least_the_kept_triangle(R: csr_array, epsilon: float | str, block_work: int) -> None:
    found = cross_hop(R, epsilon, block_work=block_work)
    triangle = (found.edges + found.edges - found.off_diagonal) // 2
    assert found.peak_held >= triangle if epsilon == "auto" else found.peak_held == triangle


def test_more_nodes_than_32_bits_can_number_are_refused() -> None:
    """Asked of the last step, since a graph of that size does not fit into a test's memory."""
    nothing = Entries(np.array([], np.int32), np.array([], np.int32), np.array([]))
    with pytest.raises(ConfigError, match="2147483648 nodes are more than 32-bit indices can number"):
        _mirrored(nothing, 2**31)


@pytest.mark.data("deoscirec/ml-1m")
@pytest.mark.parametrize(
    ("epsilon", "edges", "off_diagonal"),
    [(0.1, 0, 0), (0.01, 1752, 6), (0.001, 445255, 438788), (0.0005, 2614123, None)],
)
def test_the_counts_of_the_papers_table_on_ml_1m(epsilon: float, edges: int, off_diagonal: int | None) -> None:
    found = cross_hop(interaction_matrix(real("deoscirec/ml-1m")), epsilon)
    assert (found.edges, found.direct_edges) == (edges, 296598)
    if off_diagonal is not None:
        assert found.off_diagonal == off_diagonal
    assert (found.warning() is not None) == (off_diagonal == 0)


@pytest.mark.parametrize(
    ("name", "epsilon", "cross", "direct"),
    [
        pytest.param(name, epsilon, cross, direct, marks=pytest.mark.data(name))
        for name, epsilon, cross, direct in [
            ("deoscirec/ml-100k", 0.006, 26731, 29730),
            ("deoscirec/amazon-movies-tv", 0.003, 667076, 860780),
            ("deoscirec/gowalla", 0.004, 1117972, 1436836),
        ]
    ],
)
def test_the_published_epsilons_and_auto_on_the_real_graphs(name: str, epsilon: float, cross: int, direct: int) -> None:
    R = interaction_matrix(real(name))
    given_epsilon = cross_hop(R, epsilon)
    assert (given_epsilon.edges, given_epsilon.direct_edges) == (cross, direct)
    found = cross_hop(R, "auto")
    assert found.ratio <= 1.001
    assert found.peak_held < 2 * direct
