"""Batches: exact negatives, whole epochs, and draws that depend on nothing but seed and position."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError
from dgcf.random import bits, uniform
from dgcf.train.config import Sampling
from dgcf.train.sampler import LAST, SAMPLERS, NonItems, Sampler, first_of
from tests.ordering import in_order, later


def pairs_of(rows: list[list[int]], n_items: int) -> Pairs:
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return Pairs.from_indices(users, np.array([i for row in rows for i in row], dtype=np.int64), len(rows), n_items)


def random_pairs(seed: int, n_users: int = 30, n_items: int = 40, density: float = 0.2) -> Pairs:
    drawn = uniform(seed, "test/pairs", n_users * n_items).reshape(n_users, n_items) < density
    drawn[0, 0], drawn[0, 1] = True, False
    users, items = np.nonzero(drawn)
    return Pairs.from_indices(users, items, n_users, n_items)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 8)), min_size=1, max_size=6))
def test_non_items_by_rank_are_the_complement_in_order(rows: list[set[int]]) -> None:
    pairs = pairs_of([sorted(row) for row in rows], 9)
    non_items = NonItems(pairs)
    for user, row in enumerate(rows):
        missing = [item for item in range(9) if item not in row]
        assert non_items.count[user] == len(missing)
        ranks = np.arange(len(missing))
        assert non_items.at(np.full(len(missing), user), ranks).tolist() == missing


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_negatives_are_non_items_and_positives_are_items(sampling: str) -> None:
    pairs = random_pairs(0, density=0.7)
    sampler = Sampler(pairs, 64, sampling=sampling, per_pair=5, seed=1)
    own = pairs.to_scipy().toarray() > 0
    for epoch in range(1, 4):
        for number in range(sampler.batches_per_epoch):
            batch = sampler.batch(epoch, number)
            assert own[batch.users, batch.positives].all()
            assert not own[batch.users[:, None], batch.negatives].any()


def test_negatives_are_uniform_over_non_items() -> None:
    pairs = pairs_of([[0, 3, 4, 9]], 10)
    drawn = NonItems(pairs).draw(np.zeros(60_000, dtype=np.int64), 1, seed=0, position=0)
    counts = np.bincount(drawn.ravel(), minlength=10)
    assert counts[[0, 3, 4, 9]].sum() == 0
    expected = 60_000 / 6
    chi_square = ((counts[[1, 2, 5, 6, 7, 8]] - expected) ** 2 / expected).sum()
    assert chi_square < 20.5  # the 0.999 quantile at 5 degrees of freedom


def test_an_epoch_has_every_pair_once_in_a_new_order() -> None:
    pairs = random_pairs(0)
    sampler = Sampler(pairs, 50, seed=3)
    orders = []
    for epoch in (1, 2):
        batches = [sampler.batch(epoch, number) for number in range(sampler.batches_per_epoch)]
        keys = torch.cat([batch.users * pairs.n_items + batch.positives for batch in batches]).numpy()
        assert sorted(keys) == pairs.keys().tolist()
        orders.append(keys)
    assert not np.array_equal(*orders)
    assert sampler.batches_per_epoch == -(-len(pairs) // 50)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 45), st.sampled_from(SAMPLERS))
def test_epoch_has_the_declared_batches(n_pairs: int, batch_size: int, sampling: Sampling) -> None:
    """The last batch of ``interaction`` takes what is left and is never empty; those of ``user`` are all full."""
    pairs = pairs_of(
        [[item % 7 for item in range(first, min(first + 3, n_pairs))] for first in range(0, n_pairs, 3)], 7
    )
    sampler = Sampler(pairs, batch_size, sampling=sampling)
    sizes = [len(sampler.batch(1, number)) for number in range(sampler.batches_per_epoch)]
    assert sampler.batch_sizes == sizes
    assert sampler.pairs_per_epoch == sum(sizes)
    full, left = divmod(n_pairs, batch_size)
    last = [batch_size] if sampling == "user" else [left] if left else []
    assert sizes == [batch_size] * full + last


def test_user_batches_repeat_users_only_if_larger_than_their_number() -> None:
    pairs = random_pairs(0, n_users=30, density=0.5)
    sampler = Sampler(pairs, 30, sampling="user")
    assert sorted(sampler.batch(1, 0).users.tolist()) == sampler.users.tolist() == list(range(30))
    assert len(Sampler(pairs, 31, sampling="user").batch(1, 0)) == 31


@pytest.mark.parametrize("sampling", SAMPLERS)
@pytest.mark.parametrize("error", [-0.5, 0.5])
def test_rounding_never_draws_another_users_item(sampling: Sampling, error: float) -> None:
    """The error is far larger than rounding makes it, so that draws at the ends of a user's pairs do occur."""
    pairs = in_order(random_pairs(1, n_users=6, n_items=12, density=0.5))
    sampler = Sampler(pairs, 500, sampling=sampling, recency=0.5)
    assert sampler.ends is not None
    sampler.ends += error
    own = pairs.to_scipy().toarray() > 0
    for epoch in range(1, 40):
        batch = sampler.batch(epoch, 0)
        assert own[batch.users, batch.positives].all()


def test_the_authors_sampler_draws_users_without_repeats_while_there_are_enough() -> None:
    pairs = random_pairs(0, n_users=30)
    assert len(pairs) > 30
    few = Sampler(pairs, 20, sampling="user")
    assert few.batches_per_epoch == len(pairs) // 20 + 1
    assert len(few.batch(1, 0).users.unique()) == 20
    many = Sampler(pairs, 100, sampling="user")
    assert len(many.batch(1, 0)) == 100
    counts = np.bincount(np.concatenate([few.batch(e, 0).users for e in range(1, 600)]), minlength=30)
    assert counts.min() > 300  # expected 399 each, whatever the user's number of items


def test_positives_of_the_authors_sampler_are_uniform_over_the_users_items() -> None:
    sampler = Sampler(pairs_of([[1, 5, 7], [0]], 9), 30_000, sampling="user")
    batch = sampler.batch(1, 0)
    counts = np.bincount(batch.positives[batch.users == 0], minlength=9)
    assert counts[[0, 2, 3, 4, 6, 8]].sum() == 0
    assert np.abs(counts[[1, 5, 7]] / counts.sum() - 1 / 3).max() < 0.015


def test_shared_negatives_are_distinct_and_hits_are_complete() -> None:
    pairs = random_pairs(2, n_items=50, density=0.3)
    own = pairs.to_scipy().toarray() > 0
    sampler = Sampler(pairs, 40, shared=16, seed=0)
    seen = np.zeros(50, dtype=int)
    for number in range(sampler.batches_per_epoch):
        batch = sampler.batch(1, number)
        assert len(batch.negatives.unique()) == 16
        seen[batch.negatives] += 1
        assert batch.hits is not None
        assert batch.hits.dtype == torch.bool
        assert np.array_equal(batch.hits, own[batch.users][:, batch.negatives])
    many = [sampler.batch(epoch, 0).negatives.numpy() for epoch in range(1, 1001)]
    counts = np.bincount(np.concatenate(many), minlength=50)
    assert np.abs(counts - 320).max() < 75  # five standard deviations


def test_more_shared_negatives_than_items_means_all_items() -> None:
    batch = Sampler(random_pairs(0), 8, shared=1000).batch(1, 0)
    assert batch.negatives.tolist() == list(range(40))


@pytest.mark.parametrize("popularity", [{}, {"popularity": 0.0}])
def test_shared_negatives_without_weights_are_the_smallest_words(popularity: dict[str, float]) -> None:
    pairs = random_pairs(2)
    sampler = Sampler(pairs, 8, shared=7, seed=3, **popularity)
    for position in range(50):
        words = bits(3, "shared-negatives", pairs.n_items, position)
        assert sampler.shared_negatives(position).tolist() == sorted(np.argsort(words)[:7])


UNEVEN = pairs_of([[0, 1, 2, 3], [0, 1, 2], [0, 1, 2], [0, 1], [0, 5], [0], [0], [0], [0]], 7)
"""Items with 9, 4, 3, 1, 0, 1 and 0 training pairs."""


@pytest.mark.parametrize("popularity", [0.5, 1.0, 2.0])
def test_a_shared_negative_is_drawn_by_its_training_pairs_to_the_power_of_popularity(popularity: float) -> None:
    degrees = UNEVEN.item_degrees
    assert degrees.tolist() == [9, 4, 3, 1, 0, 1, 0]
    sampler, draws = Sampler(UNEVEN, 8, shared=1, popularity=popularity, seed=1), 20_000
    counts = np.bincount([int(sampler.shared_negatives(at)[0]) for at in range(draws)], minlength=7)
    expected = np.where(degrees > 0, degrees**popularity, 0)
    expected *= draws / expected.sum()
    drawn = degrees > 0
    assert counts[~drawn].sum() == 0
    assert (
        (counts - expected)[drawn] ** 2 / expected[drawn]
    ).sum() < 18.5  # the 0.999 quantile at 4 degrees of freedom


def test_further_shared_negatives_are_drawn_by_weight_from_the_rest() -> None:
    sampler, draws = Sampler(UNEVEN, 8, shared=2, popularity=1.0, seed=1), 20_000
    found = [tuple(sampler.shared_negatives(at).tolist()) for at in range(draws)]
    share = UNEVEN.item_degrees / UNEVEN.item_degrees.sum()
    chances = {
        (i, j): share[i] * share[j] / (1 - share[i]) + share[j] * share[i] / (1 - share[j])
        for i, j in combinations([0, 1, 2, 3, 5], 2)
    }
    assert set(found) == set(chances)
    chi_square = sum((found.count(two) - draws * p) ** 2 / (draws * p) for two, p in chances.items())
    assert chi_square < 27.9  # the 0.999 quantile at 9 degrees of freedom


def test_items_without_training_pairs_are_shared_last_and_then_alike() -> None:
    five, six, all_of_them = (Sampler(UNEVEN, 8, shared=shared, popularity=0.3) for shared in (5, 6, 1000))
    extra = [0, 0]
    for position in range(400):
        assert five.shared_negatives(position).tolist() == [0, 1, 2, 3, 5]
        assert all_of_them.shared_negatives(position).tolist() == list(range(7))
        (late,) = set(six.shared_negatives(position).tolist()) - {0, 1, 2, 3, 5}
        extra[[4, 6].index(late)] += 1
    assert min(extra) > 150  # expected 200 each


@pytest.mark.parametrize("word", [-(2**63), -1, 0, 2**63 - 1])
def test_first_of_times_are_positive_and_finite(word: int) -> None:
    """Weights as far apart as they come: who is behind by its weight stays behind, whatever the words."""
    words = torch.tensor([-(2**63) if word > 0 else 2**63 - 1, word, word])
    weights = torch.tensor([LAST, 1e18, LAST], dtype=torch.float64)
    assert first_of(words, weights, 1).tolist() == [1]


@pytest.mark.parametrize("sampling", SAMPLERS)
@pytest.mark.parametrize("recency", [0.5, 2.0])
def test_recency_weights_positives_by_later_pairs(sampling: Sampling, recency: float) -> None:
    pairs = in_order(random_pairs(1, n_users=4, n_items=12, density=0.5), times=4)
    weights = (1.0 + np.array(later(pairs))) ** -recency
    of_user = np.bincount(pairs.user_idx, weights, minlength=4)
    often = pairs.user_degrees / len(pairs) if sampling == "interaction" else np.full(4, 1 / 4)
    chance = weights / of_user[pairs.user_idx] * often[pairs.user_idx]
    sampler = Sampler(pairs, 50, sampling=sampling, recency=recency, seed=2)
    epochs = [[sampler.batch(e, b) for b in range(sampler.batches_per_epoch)] for e in range(1, 2001)]
    drawn = torch.cat([batch.users * 12 + batch.positives for batches in epochs for batch in batches]).numpy()
    found = np.searchsorted(pairs.keys(), drawn)
    assert np.array_equal(pairs.keys()[found], drawn)
    counts, expected = np.bincount(found, minlength=len(pairs)), chance * len(drawn)
    assert np.abs((counts - expected) / np.sqrt(expected)).max() < 4.5
    assert len({tuple(batches[0].positives.tolist()) for batches in epochs[:5]}) == 5


def test_recency_skips_users_with_every_item() -> None:
    pairs = in_order(pairs_of([[0, 1, 2], [1], [0, 2]], 3))
    sampler = Sampler(pairs, 400, recency=1.0)
    assert sampler.n_pairs == 3
    drawn = [sampler.batch(epoch, 0) for epoch in range(1, 400)]
    counts = np.bincount(torch.cat([batch.users for batch in drawn]), minlength=3)
    assert counts[0] == 0
    assert abs(counts[1] / counts.sum() - 1 / 3) < 0.07
    one_each = Sampler(pairs, 400, sampling="user", recency=1.0).batch(1, 0)
    assert one_each.positives[one_each.users == 1].unique().tolist() == [1]
    assert one_each.positives[one_each.users == 2].unique().tolist() == [0, 2]


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_recency_allows_users_without_pairs(sampling: Sampling) -> None:
    pairs = in_order(pairs_of([[0, 1], [], [2], []], 4))
    batch = Sampler(pairs, 60, sampling=sampling, recency=0.5).batch(1, 0)
    assert set(zip(batch.users.tolist(), batch.positives.tolist(), strict=True)) <= {(0, 0), (0, 1), (2, 2)}


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_recency_requires_an_order(sampling: Sampling) -> None:
    with pytest.raises(DataError, match="recency needs the order of each user's pairs, which this data does not have"):
        Sampler(random_pairs(0), 16, sampling=sampling, recency=0.5)


@pytest.mark.parametrize("sampling", SAMPLERS)
@pytest.mark.parametrize(
    "drawn", [{}, {"shared": 8}, {"shared": 8, "popularity": 0.5}, {"recency": 0.5}, {"recency": 9.0}], ids=str
)
def test_a_batch_does_not_depend_on_the_batches_before_it(sampling: Sampling, drawn: dict[str, Any]) -> None:
    pairs = in_order(random_pairs(0))

    def fresh(seed: int) -> Sampler:
        return Sampler(pairs, 16, sampling=sampling, seed=seed, **drawn)

    walked = fresh(5)
    for number in range(walked.batches_per_epoch):
        walked.batch(1, number)
    first, second, other = walked.batch(2, 3), fresh(5).batch(2, 3), fresh(6).batch(2, 3)
    for name in ("users", "positives", "negatives"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert not torch.equal(first.negatives, other.negatives)
    assert not torch.equal(first.users, other.users)


@pytest.mark.parametrize("shared", [None, 8])
def test_batch_to_moves_all_tensors(shared: int | None) -> None:
    batch = Sampler(random_pairs(0), 16, shared=shared).batch(1, 0)
    moved = batch.to(torch.device("meta"))
    for name, tensor in vars(batch).items():
        there = getattr(moved, name)
        assert there is None if tensor is None else (there.is_meta and there.shape == tensor.shape)


@pytest.mark.parametrize(
    ("sampling", "settings", "users", "positives", "negatives"),
    [
        ("interaction", {}, [22, 4, 24, 24], [30, 17, 32, 9], [17, 20, 0, 17]),
        ("interaction", {"recency": 0.5}, [15, 17, 19, 15], [8, 29, 7, 10], [15, 20, 1, 16]),
        ("user", {}, [21, 29, 22, 12], [1, 1, 9, 32], [16, 19, 25, 10]),
        ("user", {"recency": 0.5}, [21, 29, 22, 12], [1, 5, 9, 32], [16, 19, 25, 10]),
        ("user", {"batch_size": 50}, [27, 6, 29, 24], [14, 1, 6, 7], [18, 30, 11, 4]),
    ],
    ids=str,
)
def test_batches_of_a_seed_never_change(
    sampling: Sampling, settings: dict[str, Any], users: list[int], positives: list[int], negatives: list[int]
) -> None:
    """A run that was stopped is resumed with the batches that it would have had."""
    pairs = in_order(random_pairs(0))
    batch = Sampler(pairs, sampling=sampling, seed=7, **{"batch_size": 4, **settings}).batch(2, 1)
    found = batch.users[:4].tolist(), batch.positives[:4].tolist(), batch.negatives[:4].ravel().tolist()
    assert found == (users, positives, negatives)
    assert torch.equal(Sampler(pairs, 4).batch(2, 1).users, Sampler(pairs, 4, seed=0).batch(2, 1).users)


def test_different_batches_have_different_negatives() -> None:
    sampler = Sampler(random_pairs(0), 16)
    drawn = {tuple(sampler.batch(e, b).negatives.ravel().tolist()) for e in (1, 2) for b in range(5)}
    assert len(drawn) == 10


def test_a_user_with_every_item_is_left_out_and_counted() -> None:
    sampler = Sampler(pairs_of([[0, 1, 2], [1], []], 3), 8)
    assert sampler.skipped_users == 1
    assert sampler.batch(1, 0).users.tolist() == [1]


@pytest.mark.parametrize("rows", [[[0, 1, 2], []], [[], []]])
def test_no_trainable_user_is_an_error(rows: list[list[int]]) -> None:
    with pytest.raises(DataError, match="none of the 2 users"):
        Sampler(pairs_of(rows, 3), 8)
