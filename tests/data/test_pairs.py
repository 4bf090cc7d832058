"""Pairs in compressed rows: set operations and places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs, count_earlier

N_USERS, N_ITEMS = 7, 9
pair_lists = st.lists(st.tuples(st.integers(0, N_USERS - 1), st.integers(0, N_ITEMS - 1)), max_size=60)
places = st.dictionaries(st.tuples(st.integers(0, N_USERS - 1), st.integers(0, N_ITEMS - 1)), st.integers(0, 5))
"""Places by pair, often equal."""


def build(pairs: list[tuple[int, int]]) -> Pairs:
    array = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return Pairs.from_indices(array[:, 0], array[:, 1], N_USERS, N_ITEMS)


def as_set(pairs: Pairs) -> set[tuple[int, int]]:
    return {(user, item) for user in range(pairs.n_users) for item in pairs[user].tolist()}


def build_ordered(given: dict[tuple[int, int], int]) -> Pairs:
    key = np.array([user * N_ITEMS + item for user, item in given], dtype=np.int64)
    return build(list(given)).with_values(key, place=np.array(list(given.values()), dtype=np.int64))


def as_dict(pairs: Pairs) -> dict[tuple[int, int], int]:
    assert pairs.place is not None
    assert pairs.place.dtype == np.int32
    columns = (pairs.user_idx, pairs.indices, pairs.place)
    return {(user, item): place for user, item, place in zip(*(c.tolist() for c in columns), strict=True)}


@given(pair_lists)
def test_pairs_are_distinct_and_sorted(pairs: list[tuple[int, int]]) -> None:
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
def test_union_equals_set_union(
    one: list[tuple[int, int]], two: list[tuple[int, int]], three: list[tuple[int, int]]
) -> None:
    assert as_set(build(one).union(build(two), build(three))) == {*one, *two, *three}
    assert build(one).union(build(two)) == build(two + one)
    assert build(one).union() == build(one)


def test_empty_pairs() -> None:
    assert len(Pairs.empty(3, 4)) == 0
    assert Pairs.empty(3, 4) == Pairs.from_indices(np.zeros(0, np.int32), np.zeros(0, np.int32), 3, 4)
    assert Pairs.empty(3, 4) != Pairs.empty(3, 5)


def test_take_returns_rows_in_the_given_order() -> None:
    pairs = Pairs.from_indices(np.array([0, 0, 2, 2, 2]), np.array([3, 1, 0, 4, 2]), 4, 5)
    taken = pairs.take(np.array([2, 1, 0, 2]))
    assert [taken[row].tolist() for row in range(4)] == [[0, 2, 4], [], [1, 3], [0, 2, 4]]
    assert len(pairs.take(np.zeros(0, dtype=np.int64))) == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([-1.5, 0.0, 0.25, 7.0, 1e9])), max_size=40))
def test_count_earlier_equals_plain_loop(rows: list[tuple[int, float]]) -> None:
    user, time = np.array([u for u, _ in rows], dtype=np.int64), np.array([t for _, t in rows])
    expected = [sum(other == u and before < t for other, before in rows) for u, t in rows]
    assert count_earlier(user, time).tolist() == expected


@given(places)
def test_with_values_assigns_each_place(given: dict[tuple[int, int], int]) -> None:
    assert as_dict(build_ordered(given)) == given
    assert build_ordered(given) == build(list(given)), "which pairs there are is not about their order"
    assert given == {} or build(list(given)).place is None


@given(places)
def test_count_later_equals_plain_loop(given: dict[tuple[int, int], int]) -> None:
    pairs = build_ordered(given)
    expected = [
        sum(other == user and then > place for (other, _), then in given.items())
        for (user, _), place in sorted(given.items())
    ]
    assert pairs.count_later().tolist() == expected


@given(places, st.integers(0, 2**40))
def test_where_keeps_places(given: dict[tuple[int, int], int], drawn: int) -> None:
    chosen = np.array([drawn >> at & 1 for at in range(len(given))], dtype=bool)
    expected = {pair: given[pair] for pair, kept in zip(sorted(given), chosen, strict=True) if kept}
    assert as_dict(build_ordered(given).where(chosen)) == expected
    unordered = build(list(given)).where(chosen)
    assert as_set(unordered) == set(expected)
    assert unordered.place is None


@given(places, places)
def test_with_values_refuses_a_missing_place(
    given: dict[tuple[int, int], int], more: dict[tuple[int, int], int]
) -> None:
    known = {**more, **given}
    key = np.array([user * N_ITEMS + item for user, item in known], dtype=np.int64)
    place = np.array(list(known.values()), dtype=np.int64)
    assert as_dict(build(list(given)).with_values(key, place=place)) == given
    for pair in list(given)[:3]:
        kept = key != pair[0] * N_ITEMS + pair[1]
        if kept.any():
            with pytest.raises(ValueError, match="some pairs have no value"):
                build(list(given)).with_values(key[kept], place=place[kept])


@given(places, places, places)
def test_union_has_the_largest_place_of_each_pair(
    one: dict[tuple[int, int], int], two: dict[tuple[int, int], int], three: dict[tuple[int, int], int]
) -> None:
    every = [one, two, three]
    expected = {pair: max(part[pair] for part in every if pair in part) for part in every for pair in part}
    first, *others = map(build_ordered, every)
    assert as_dict(first.union(*others)) == expected
    assert as_dict(first.union()) == one


@given(places, places)
def test_union_with_unordered_pairs_has_no_places(
    one: dict[tuple[int, int], int], two: dict[tuple[int, int], int]
) -> None:
    ordered, unordered = build_ordered(one), build(list(two))
    for joined in (ordered.union(unordered), unordered.union(ordered)):
        assert as_set(joined) == {*one, *two}
        if two:
            assert joined.place is None
        else:
            assert as_dict(joined) == one, "no pair fits any order"
    nothing = Pairs.empty(N_USERS, N_ITEMS)
    assert as_dict(nothing.union(ordered, nothing)) == one
    assert as_dict(nothing) == {}
