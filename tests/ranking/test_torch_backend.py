"""The backend against a full lexicographic sort, under ties, masks, and every way to cut the users."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError
from dgcf.models import Embeddings
from dgcf.ranking import torch_backend
from dgcf.ranking.torch_backend import top_k_by_scores


class Table:
    """A scorer with given scores, which records the users of each call."""

    def __init__(self, scores):
        self.table = torch.as_tensor(scores)
        self.calls = []

    def scores(self, user_idx):
        self.calls.append(user_idx.tolist())
        return self.table[user_idx]


def random_pairs(rng, n_users, n_items, share):
    user, item = np.nonzero(rng.random((n_users, n_items)) < share)
    return Pairs.from_indices(user, item, n_users, n_items)


def by_full_sort(scores, mask, user_idx, k):
    """The definition: candidates ordered by (score descending, index ascending)."""
    lists = []
    for user in user_idx:
        seen = set(mask[user].tolist())
        row = scores[user].tolist()
        order = sorted((-row[i], i) for i in range(len(row)) if i not in seen and row[i] != -np.inf)
        lists.append(([i for _, i in order] + [-1] * k)[:k])
    return np.array(lists).reshape(len(user_idx), k)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n_users=st.integers(1, 12),
    n_items=st.integers(1, 1500),
    levels=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    k=st.integers(1, 60),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_top_k_equals_full_sort_with_many_ties(seed, n_users, n_items, levels, share, k, dtype):
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(-levels, levels, (n_users, n_items)) / 4).to(dtype)
    mask = random_pairs(rng, n_users, n_items, share)
    users = rng.permutation(n_users)
    best = top_k_by_scores(Table(scores), users, mask, k)
    assert (best.item_idx.dtype, best.scores.dtype) == (torch.int64, dtype)
    expected = by_full_sort(scores, mask, users, k)
    np.testing.assert_array_equal(best.item_idx.numpy(), expected)
    there = expected >= 0
    scored = best.scores.double().numpy()
    np.testing.assert_array_equal(
        scored[there], scores.double().numpy()[np.repeat(users, k).reshape(-1, k)[there], expected[there]]
    )
    assert np.isneginf(scored[~there]).all()


@pytest.mark.parametrize("n_items", [1_000, 5_003, 41_000])
def test_ties_are_ranked_by_item_index(n_items):
    """One tie across the whole catalogue is the worst case of every shortcut."""
    mask = Pairs.from_indices(np.zeros(3, dtype=int), np.array([0, 2, 5]), 2, n_items)
    best = top_k_by_scores(Table(torch.zeros(2, n_items)), np.array([0, 1]), mask, 6)
    assert best.item_idx.tolist() == [[1, 3, 4, 6, 7, 8], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(("n_users", "n_items", "dim"), [(97, 1_237, 64), (300, 517, 33), (40, 9_001, 128)])
def test_chunk_size_does_not_change_bits(n_users, n_items, dim):
    generator = torch.Generator().manual_seed(n_users)
    scorer = Embeddings(torch.randn(n_users, dim, generator=generator), torch.randn(n_items, dim, generator=generator))
    mask = random_pairs(np.random.default_rng(0), n_users, n_items, 0.05)
    users = np.arange(n_users)
    whole = top_k_by_scores(scorer, users, mask, 20, chunk=n_users)
    for cut in ({"chunk": 1}, {"chunk": 7}, {}, {"memory": 20 * 2**20}):
        best = top_k_by_scores(scorer, users, mask, 20, **cut)
        assert torch.equal(best.item_idx, whole.item_idx)
        assert torch.equal(best.scores, whole.scores)
    shuffled = np.random.default_rng(1).permutation(n_users)
    assert torch.equal(top_k_by_scores(scorer, shuffled, mask, 20, chunk=7).scores, whole.scores[shuffled])
    for user in range(0, n_users, 29):  # one user alone gets the very same bits
        assert torch.equal(top_k_by_scores(scorer, users[[user]], mask, 20).scores, whole.scores[[user]])


def test_scorer_with_batch_dependent_bits_gives_stable_results():
    """The guarantee does not rest on luck with a kernel: here every batch size gives other scores."""

    class Moody:
        def scores(self, user_idx):
            generator = torch.Generator().manual_seed(len(user_idx))
            noise = torch.rand(len(user_idx), 900, generator=generator)
            return torch.sin(user_idx[:, None] * 1.7 + torch.arange(900)) + noise

    mask = Pairs.empty(1_500, 900)
    users = np.arange(0, 1_500, 37)
    whole = top_k_by_scores(Moody(), users, mask, 5, chunk=len(users))
    for chunk in (1, 7, None):
        assert torch.equal(top_k_by_scores(Moody(), users, mask, 5, chunk=chunk).item_idx, whole.item_idx)


def test_each_block_is_scored_once():
    scorer = Table(torch.rand(25, 30))
    users = np.array([24, 3, 3, 11, 0, 12])
    top_k_by_scores(scorer, users, Pairs.empty(25, 30), 3, chunk=2, block=10)
    assert scorer.calls == [list(range(10)), list(range(10, 20)), list(range(20, 25))]


@pytest.mark.parametrize("users", [[13], [12, 14, 16], [11, 12, 13], [3, 13, 23], [24, 0]])
@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_subset_of_users_in_any_order(users, kind):
    scores = torch.rand(25, 30)
    best = top_k_by_scores(Table(scores), np.array(users, dtype=kind), Pairs.empty(25, 30), 30, block=10)
    assert torch.equal(best.scores, scores[users].sort(descending=True).values)


@pytest.mark.parametrize("n_items", [1, 1000, 4096, 4097, 5000, 2**21, 2**22, 2**22 + 1, 2**30])
def test_block_is_largest_power_of_two_that_fits(n_items):
    """It decides the last bits of the scores, so it must stay as it is."""
    size = torch_backend._block_size(n_items)
    powers = [1 << power for power in range(11)]
    assert size == max([1, *(power for power in powers if power * n_items <= 2**22)])


def test_scores_of_the_scorer_are_not_modified():
    scores = torch.rand(4, 40)

    class Own:
        def scores(self, user_idx):
            return scores

    before = scores.clone()
    everything = Pairs.from_indices(np.repeat(np.arange(4), 40), np.tile(np.arange(40), 4), 4, 40)
    assert (top_k_by_scores(Own(), np.arange(4), everything, 5).item_idx == -1).all()
    assert torch.equal(scores, before)


def test_memory_stays_within_the_budget(monkeypatch):
    made = []
    real = torch.full
    monkeypatch.setattr(torch_backend.torch, "full", lambda *a, **kw: made.append(real(*a, **kw)) or made[-1])
    scorer = Table(torch.rand(64, 10_000))
    top_k_by_scores(scorer, np.arange(64), Pairs.empty(64, 10_000), 5, memory=4 * 2**20, block=32)
    buffer = made[0]
    block_bytes = 32 * 10_000 * 4
    assert 1 < len(buffer) < 64
    assert buffer.numel() * 4 + block_bytes <= 4 * 2**20
    with pytest.raises(ConfigError, match="raise it, or lower block") as refusal:
        top_k_by_scores(scorer, np.arange(64), Pairs.empty(64, 10_000), 5, memory=2**20, block=32)
    enough = int(re.search(r"at least (\d+) bytes", str(refusal.value))[1])
    top_k_by_scores(scorer, np.arange(64), Pairs.empty(64, 10_000), 5, memory=enough, block=32)
    with pytest.raises(ConfigError, match=f"at least {enough} bytes"):
        top_k_by_scores(scorer, np.arange(64), Pairs.empty(64, 10_000), 5, memory=enough - 1, block=32)


def test_no_users_give_no_rows():
    best = top_k_by_scores(Table(torch.rand(3, 4)), np.array([], dtype=int), Pairs.empty(3, 4), 2)
    assert best.item_idx.shape == best.scores.shape == (0, 2)
    assert best.item_idx.dtype == torch.int64


def test_nan_is_refused_at_any_position():
    for n_items in (10, 4_000):
        scores = torch.rand(3, n_items)
        scores[2, n_items - 1] = torch.nan
        with pytest.raises(DataError, match="NaN"):
            top_k_by_scores(Table(scores), np.arange(3), Pairs.empty(3, n_items), 2)
        top_k_by_scores(Table(scores), np.arange(2), Pairs.empty(3, n_items), 2)  # not ranked, so not looked at


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": 0}, ConfigError, "k is 0"),
        ({"chunk": 0}, ConfigError, "chunk is 0"),
        ({"block": -1}, ConfigError, "block is -1"),
        ({"user_idx": np.array([3])}, DataError, "3 users"),
        ({"user_idx": np.array([-1])}, DataError, "from -1"),
        ({"user_idx": np.zeros((1, 1), dtype=int)}, DataError, "flat array"),
        ({"mask": Pairs.empty(3, 5)}, DataError, "expected floating-point scores of shape"),
        ({"mask": Pairs.empty(3, 0)}, DataError, "no item"),
        ({"scorer": Table(torch.ones(3, 4, dtype=torch.int64))}, DataError, "int64"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    call = {"scorer": Table(torch.rand(3, 4)), "user_idx": np.arange(3), "mask": Pairs.empty(3, 4), "k": 2}
    with pytest.raises(error, match=message):
        top_k_by_scores(**{**call, **change})


def test_embeddings_of_different_widths_are_refused():
    with pytest.raises(DataError, match="one dim"):
        Embeddings(torch.rand(3, 4), torch.rand(5, 6))


@pytest.mark.gpu
def test_cuda_agrees_with_reference():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.integers(-30, 30, (200, 5_000)) / 4).float()
    mask = random_pairs(rng, 200, 5_000, 0.1)
    users = rng.permutation(200)[:150]
    expected = by_full_sort(scores, mask, users, 20)
    for chunk in (1, 7, None):
        best = top_k_by_scores(Table(scores.cuda()), users, mask, 20, chunk=chunk)
        np.testing.assert_array_equal(best.item_idx.cpu().numpy(), expected)
    generator = torch.Generator().manual_seed(0)
    users_at = torch.randn(200, 64, generator=generator).cuda()
    scorer = Embeddings(users_at, torch.randn(5_000, 64, generator=generator).cuda())
    whole = top_k_by_scores(scorer, np.arange(200), mask, 20, chunk=200)
    for chunk in (1, 7, None):
        assert torch.equal(top_k_by_scores(scorer, np.arange(200), mask, 20, chunk=chunk).scores, whole.scores)
