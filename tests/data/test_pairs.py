"""Compressed rows are a set of pairs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs

N_USERS, N_ITEMS = 7, 9
pair_lists = st.lists(st.tuples(st.integers(0, N_USERS - 1), st.integers(0, N_ITEMS - 1)), max_size=60)


def build(pairs: list[tuple[int, int]]) -> Pairs:
    array = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return Pairs.from_indices(array[:, 0], array[:, 1], N_USERS, N_ITEMS)


def as_set(pairs: Pairs) -> set[tuple[int, int]]:
    return {(user, item) for user in range(pairs.n_users) for item in pairs[user].tolist()}


@given(pair_lists)
def test_holds_each_pair_once_and_sorted(pairs: list[tuple[int, int]]) -> None:
    built = build(pairs)
    assert as_set(built) == set(pairs)
    assert len(built) == len(set(pairs))
    assert all(np.all(np.diff(built[user]) > 0) for user in range(N_USERS))
    assert built.user_degrees.tolist() == [len({i for u, i in pairs if u == user}) for user in range(N_USERS)]
    assert built.item_degrees.tolist() == [len({u for u, i in pairs if i == item}) for item in range(N_ITEMS)]
    dense = np.zeros((N_USERS, N_ITEMS))
    for user, item in pairs:
        dense[user, item] = 1
    np.testing.assert_array_equal(built.to_scipy().toarray(), dense)


@given(pair_lists, pair_lists, pair_lists)
def test_union_is_that_of_sets(
    one: list[tuple[int, int]], two: list[tuple[int, int]], three: list[tuple[int, int]]
) -> None:
    assert as_set(build(one).union(build(two), build(three))) == {*one, *two, *three}
    assert build(one).union(build(two)) == build(two + one)
    assert build(one).union() == build(one)


def test_empty() -> None:
    assert len(Pairs.empty(3, 4)) == 0
    assert Pairs.empty(3, 4) == Pairs.from_indices(np.zeros(0, np.int32), np.zeros(0, np.int32), 3, 4)
    assert Pairs.empty(3, 4) != Pairs.empty(3, 5)


def test_rows_of_some_users_in_the_order_asked_for() -> None:
    pairs = Pairs.from_indices(np.array([0, 0, 2, 2, 2]), np.array([3, 1, 0, 4, 2]), 4, 5)
    taken = pairs.take(np.array([2, 1, 0, 2]))
    assert [taken[row].tolist() for row in range(4)] == [[0, 2, 4], [], [1, 3], [0, 2, 4]]
    assert len(pairs.take(np.zeros(0, dtype=np.int64))) == 0
