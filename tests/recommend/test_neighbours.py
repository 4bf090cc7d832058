"""Single rows of M against the trained operator's whole matrix, and against the paper's formulas written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset
from dgcf.graph import PropagationSpec, build_propagation
from dgcf.graph.spec import DIRECT
from dgcf.recommend.capture import _rule
from dgcf.recommend.foldin import Neighbours
from dgcf.recommend.snapshot import Side
from tests.recommend.conftest import graphs, random_dataset

SPECS = [
    PropagationSpec(epsilon=0.0),
    PropagationSpec(epsilon=0.25),
    PropagationSpec(epsilon="auto"),
    PropagationSpec(self_loop=False, cross_below_one=True, epsilon=0.1),
    DIRECT,
    PropagationSpec(epsilon=0.1, cross_diagonal=False),
    PropagationSpec(direct=False, epsilon=0.1),
]


@given(graphs(), st.sampled_from(SPECS))
def test_row_of_known_node_equals_operator(dataset: Dataset, spec: PropagationSpec) -> None:
    train = dataset.train
    operator = build_propagation(train, spec)
    rule = _rule(operator)
    assert rule is not None
    neighbours, M = Neighbours(train, rule), operator.stored.exact.toarray()
    sides: tuple[tuple[Side, int, int], ...] = (("user", 0, train.n_users), ("item", train.n_users, train.n_items))
    for side, first, count in sides:
        other = train.n_users if side == "user" else 0
        for node in range(count):
            row = neighbours.row(side, neighbours.of(side, node), node)
            dense = np.zeros(len(M))
            dense[other + row.across] = row.across_weight
            dense[first + row.alike] = row.alike_weight
            dense[first + node] += row.own
            np.testing.assert_allclose(dense, M[first + node], rtol=1e-15, atol=0)


def test_new_node_does_not_change_degrees() -> None:
    """Its own degree counts its neighbours; theirs are those of training, without the new one."""
    dataset = random_dataset(6, 7, seed=3, density=0.9)
    operator = build_propagation(dataset.train, PropagationSpec(epsilon=0.0))
    rule = _rule(operator)
    assert rule is not None
    R = np.asarray(dataset.train.to_scipy().todense(), dtype=float)
    mine = np.array([0, 2, 5])
    mine = mine[R.sum(0)[mine] > 0]
    row = Neighbours(dataset.train, rule).row("user", mine)
    np.testing.assert_allclose(row.across_weight, 1 / np.sqrt(len(mine) * R.sum(0)[mine]))
    dc_mine, dc = R.sum(0)[mine].sum(), R @ R.sum(0)
    shared = R[:, mine].sum(1)
    assert row.alike.tolist() == np.flatnonzero(shared).tolist()
    np.testing.assert_allclose(row.alike_weight, (shared / np.sqrt(dc_mine * np.maximum(dc, 1)))[row.alike])
    assert row.own == pytest.approx(1 + len(mine) / dc_mine)


def test_item_without_training_pairs_is_ignored() -> None:
    dataset: Any = random_dataset(4, 6, seed=1, density=0.3)
    empty = np.flatnonzero(dataset.train.item_degrees == 0)
    full = np.flatnonzero(dataset.train.item_degrees > 0)
    assert len(empty)
    rule = _rule(build_propagation(dataset.train))
    assert rule is not None
    neighbours = Neighbours(dataset.train, rule)
    with_it, without = neighbours.row("user", np.sort(np.append(full[:2], empty[0]))), neighbours.row("user", full[:2])
    np.testing.assert_array_equal(with_it.across, without.across)
    np.testing.assert_array_equal(with_it.across_weight, without.across_weight)
