"""The composed ranking against a dense float64 matrix of scores that is sorted as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.errors import DataError
from dgcf.ranking import topk
from dgcf.ranking.blend import Blend, BlendQueries, item_sum_scale
from dgcf.ranking.rankings import Embeddings, ItemWeights
from dgcf.ranking.topk import Backend, NumpyBackend, Subset, TopK, top_k
from dgcf.ranking.torch_backend import TorchBackend, item_sums, product_sums, top_k_by_scores
from dgcf.ranking.user_rules import BlendedRule, ConstantRow, embeddings_rule
from dgcf.ranking.weights import DenseWeights, SparseWeights
from tests.ranking.test_weights import both

Floats = NDArray[np.float64]
BACKENDS: list[Backend] = [NumpyBackend(), TorchBackend()]


@dataclass(frozen=True)
class Case:
    """A composed ranking in dense arrays: user rows, item rows, W (n_items, n_items), who has what, and a prior."""

    users: NDArray[np.float32]
    items: NDArray[np.float32]
    W: NDArray[np.float32]
    having: NDArray[np.bool_]
    prior: NDArray[np.float32] | None = None

    @property
    def pairs(self) -> Pairs:
        return pairs_of(self.having)

    @property
    def ranking(self) -> Blend[NDArray[np.float32]]:
        return Blend(Embeddings(self.users, self.items, ConstantRow()), self.pairs, sparse(self.W), self.prior)

    @property
    def on_torch(self) -> Blend[torch.Tensor]:
        users, items = torch.from_numpy(self.users), torch.from_numpy(self.items)
        return Blend(Embeddings(users, items), self.pairs, sparse(self.W), self.prior)

    @property
    def scores(self) -> Floats:
        """``⟨e_u, e_i⟩ + d_u^-½ Σ_j W[j, i] + p_i``, (n_users, n_items)."""
        products = self.users.astype(np.float64) @ self.items.astype(np.float64).T
        return np.asarray(products + (0.0 if self.prior is None else self.prior) + self.sums)

    @property
    def scale(self) -> Floats:
        return np.array([0.0 if degree == 0 else 1 / degree**0.5 for degree in self.having.sum(1).tolist()])

    @property
    def sums(self) -> Floats:
        """``d_u^-½ Σ_j W[j, i]``, (n_users, n_items)."""
        return np.asarray((self.having.astype(np.float64) @ self.W.astype(np.float64)) * self.scale[:, None])


def pairs_of(having: NDArray[np.bool_]) -> Pairs:
    users, items = np.nonzero(having)
    return Pairs.from_indices(users, items, *having.shape)


def sparse(W: NDArray[np.float32]) -> SparseWeights:
    weights = both(W)[1]
    assert isinstance(weights, SparseWeights)
    return weights


def sorted_whole(scores: Floats, hidden: NDArray[np.bool_], allowed: NDArray[np.bool_], k: int) -> TopK:
    """The k best of each row by a full sort, equal scores by index."""
    item_idx, best = np.full((len(scores), k), -1), np.full((len(scores), k), -np.inf)
    for row, (values, out) in enumerate(zip(scores, hidden, strict=True)):
        items = np.flatnonzero(allowed & ~out)
        order = items[np.lexsort((items, -values[items]))][:k]
        item_idx[row, : len(order)], best[row, : len(order)] = order, values[order]
    return TopK(item_idx, best)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, np.random.Generator]:
    """Numbers are multiples of ¼, so that many scores are equal; some users have nothing, some everything."""
    n_users, n_items, dim = draw(st.integers(1, 7)), draw(st.integers(1, 14)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([1, 3]))

    def numbers(*shape: int) -> NDArray[np.float32]:
        return (rng.integers(-most, most + 1, shape) / 4).astype(np.float32)

    W = numbers(n_items, n_items) * (rng.random((n_items, n_items)) < draw(st.sampled_from([0.0, 0.3, 1.0])))
    having = rng.random((n_users, n_items)) < rng.choice([0.0, 0.3, 1.0], (n_users, 1))
    prior = numbers(n_items) if draw(st.booleans()) else None
    return Case(numbers(n_users, dim), numbers(n_items, dim), W.astype(np.float32), having, prior), rng


@given(cases(), st.integers(1, 16), st.sampled_from([1, 30, 2**22]), st.sampled_from([0.0, 0.5, 1.0]))
def test_top_k_is_a_full_sort_of_dense_scores(
    drawn: tuple[Case, np.random.Generator], k: int, at_once: int, share: float
) -> None:
    """With any items hidden, any candidates, any block of users and either backend; scores are equal to the bit."""
    case, rng = drawn
    n_users, n_items = case.having.shape
    users = rng.integers(n_users, size=rng.integers(1, 12))
    hidden: NDArray[np.bool_] = rng.random((len(users), n_items)) < float(rng.choice([0.0, 0.4, 1.0]))
    allowed: NDArray[np.bool_] = rng.random(n_items) < share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topk, "_BLOCK_SCORES", at_once)
        found = [
            top_k(Subset(case.ranking.index(), allowed), case.ranking.queries(users), pairs_of(hidden), k, backend)
            for backend in BACKENDS
        ]
    expected = sorted_whole(case.scores[users], hidden, allowed, min(k, int(allowed.sum())))
    for best in found:
        np.testing.assert_array_equal(best.item_idx, expected.item_idx)
        np.testing.assert_array_equal(best.scores, expected.scores)


@given(cases(), st.integers(1, 16), st.integers(1, 5), st.sampled_from([1, 2, 8]))
def test_evaluation_ranks_by_the_same_scores_in_any_chunk(
    drawn: tuple[Case, np.random.Generator], k: int, chunk: int, block: int
) -> None:
    case, rng = drawn
    n_users, n_items = case.having.shape
    users, mask = rng.permutation(n_users), rng.random(case.having.shape) < 0.4
    expected = sorted_whole(case.scores[users], mask[users], np.ones(n_items, dtype=bool), k)
    rankings: list[Blend[Any]] = [case.ranking, case.on_torch]
    for ranking in rankings:
        best = top_k_by_scores(ranking, users, pairs_of(mask), k, chunk=chunk, block=block)
        np.testing.assert_array_equal(best.item_idx.numpy(), expected.item_idx)
        np.testing.assert_allclose(best.scores.numpy(), expected.scores, rtol=1e-6, atol=1e-6)


@given(cases())
def test_scores_and_pair_scores_are_the_dense_scores(drawn: tuple[Case, np.random.Generator]) -> None:
    case, rng = drawn
    n_users, n_items = case.having.shape
    users = rng.integers(n_users, size=9)
    rankings: list[Blend[Any]] = [case.ranking, case.on_torch]
    for ranking in rankings:
        for chosen in (users, users[:1]):
            scores = np.asarray(ranking.scores(torch.from_numpy(chosen)))
            assert scores.dtype == np.float32
            np.testing.assert_allclose(scores, case.scores[chosen], rtol=1e-6, atol=1e-6)
        items = rng.integers(n_items, size=9)
        np.testing.assert_array_equal(ranking.pair_scores(users, items), case.scores[users, items])
        nothing = np.zeros(0, dtype=np.int64)
        assert ranking.pair_scores(nothing, nothing).shape == (0,)


@given(cases())
def test_some_scores_have_the_bits_of_all_scores(drawn: tuple[Case, np.random.Generator]) -> None:
    case, rng = drawn
    everyone = torch.arange(len(case.users))
    some = np.flatnonzero(rng.random(len(everyone)) < 0.5)
    rankings: list[Any] = [case.ranking, case.on_torch, ItemWeights(case.pairs, sparse(case.W))]
    for ranking in rankings:
        scores, others = np.asarray(ranking.scores(everyone)), np.asarray(ranking.some_scores(everyone, some))
        np.testing.assert_array_equal(others[some], scores[some])


def test_weights_are_summed_for_the_ranked_users_only(monkeypatch: pytest.MonkeyPatch) -> None:
    case, summed, each_sum = large_case(), list[int](), SparseWeights.each_sum

    def counted(weights: SparseWeights, queries: Pairs) -> Iterator[Floats]:
        summed.append(queries.n_users)
        return each_sum(weights, queries)

    monkeypatch.setattr(SparseWeights, "each_sum", counted)
    users = np.array([7, 2, 7])
    best = top_k_by_scores(case.on_torch, users, pairs_of(case.having), 5)
    assert summed == [2]
    expected = top_k_by_scores(case.on_torch, np.arange(len(case.users)), pairs_of(case.having), 5)
    assert torch.equal(best.scores, expected.scores[users])


def large_case(n_users: int = 9, n_items: int = 700, dim: int = 24, seed: int = 0) -> Case:
    """Enough items for the search by groups, and numbers that round in every sum."""
    rng = np.random.default_rng(seed)
    users, items = (rng.normal(size=(n, dim)).astype(np.float32) for n in (n_users, n_items))
    W = np.where(rng.random((n_items, n_items)) < 0.1, rng.normal(size=(n_items, n_items)), 0).astype(np.float32)
    having = rng.random((n_users, n_items)) < np.linspace(0, 0.2, n_users)[:, None]
    return Case(users, items, W, having)


def test_one_user_alone_has_the_bits_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    case = large_case()
    ranking, users = case.ranking, np.arange(len(case.users))
    hidden = case.pairs
    together = top_k(ranking.index(), ranking.queries(users), hidden, 20)
    np.testing.assert_array_equal(
        together.item_idx, sorted_whole(case.scores, case.having, np.ones(700, bool), 20).item_idx
    )
    for user in users:
        alone = top_k(ranking.index(), ranking.queries(users[[user]]), hidden.take(users[[user]]), 20)
        assert alone.item_idx.tobytes() == together.item_idx[user].tobytes()
        assert alone.scores.tobytes() == together.scores[user].tobytes()
        items = together.item_idx[user]
        assert ranking.pair_scores(np.full(20, user), items).tobytes() == together.scores[user].tobytes()
        one = [float(ranking.pair_scores(users[[user]], items[[place]])[0]) for place in range(20)]
        assert one == together.scores[user].tolist()
    mixed = ranking.pair_scores(np.repeat(users, 20)[::-1], together.item_idx.ravel()[::-1])
    assert mixed[::-1].tobytes() == together.scores.tobytes()
    monkeypatch.setattr(topk, "_BLOCK_SCORES", 2 * 700)
    in_blocks = top_k(ranking.index(), ranking.queries(users), hidden, 20)
    assert in_blocks.scores.tobytes() == together.scores.tobytes()


@pytest.mark.parametrize("large", ["product", "sum"])
def test_small_differences_beside_large_numbers_decide(large: str) -> None:
    """In float32 all scores would be equal: the candidates must allow for its rounding, of products and of sums."""
    n_items, rng = 700, np.random.default_rng(3)
    users = np.full((2, 1), 2.0**12 if large == "product" else 1.0, dtype=np.float32)
    items = np.full((n_items, 1), 2.0**12 if large == "product" else 2.0**-30, dtype=np.float32)
    W = np.zeros((n_items, n_items), dtype=np.float32)
    W[0], W[1] = rng.permutation(n_items) / 1024, 0.0 if large == "product" else 2.0**24
    having = np.zeros((2, n_items), dtype=bool)
    having[0, [0, 1]] = having[1, 0] = True
    case = Case(users, items, W, having)
    best = top_k(case.ranking.index(), case.ranking.queries(np.arange(2)), Pairs.empty(2, n_items), 15)
    order = np.argsort(-W[0].astype(np.float64))[:15]
    np.testing.assert_array_equal(best.item_idx, [order, order])


@given(cases())
def test_item_sums_are_those_of_numpy(drawn: tuple[Case, np.random.Generator]) -> None:
    case, _ = drawn
    scale = item_sum_scale(case.having.sum(1))
    np.testing.assert_array_equal(scale, case.scale)
    for weights in (DenseWeights(case.W), sparse(case.W)):
        sums = item_sums(torch.device("cpu"), weights, case.pairs, scale)
        assert sums.dtype == torch.float32
        np.testing.assert_array_equal(sums.numpy(), case.sums.astype(np.float32))


def test_sums_by_a_product_are_the_sums() -> None:
    case, cpu = large_case(), torch.device("cpu")
    W, scale = sparse(case.W), item_sum_scale(case.having.sum(1))
    torch.testing.assert_close(
        product_sums(cpu, W, case.pairs, scale), item_sums(cpu, W, case.pairs, scale), rtol=1e-5, atol=1e-5
    )


@pytest.mark.gpu
def test_sums_and_scores_on_a_gpu_are_those_of_the_cpu() -> None:
    case, cuda = large_case(), torch.device("cuda")
    W, scale = sparse(case.W), item_sum_scale(case.having.sum(1))
    expected = item_sums(torch.device("cpu"), W, case.pairs, scale)
    found = item_sums(cuda, W, case.pairs, scale)
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(item_sums(cuda, W, case.pairs, scale), found)
    other = sparse(2 * case.W)
    torch.testing.assert_close(item_sums(cuda, other, case.pairs, scale).cpu(), 2 * expected, rtol=1e-5, atol=1e-5)
    rows = Embeddings(torch.from_numpy(case.users).to(cuda), torch.from_numpy(case.items).to(cuda))
    users = torch.arange(len(case.users))
    scores = Blend(rows, case.pairs, W).scores(users)
    assert scores.device.type == "cuda"
    torch.testing.assert_close(scores.cpu().double(), torch.from_numpy(case.scores), rtol=1e-4, atol=1e-4)


def test_similar_items_are_ranked_by_cosine_plus_weight() -> None:
    case = large_case(n_users=20, n_items=60, dim=4)
    case.items[7] = 0.0
    users, items = (rows.astype(np.float64) for rows in (case.users, case.items))
    length = np.linalg.norm(users, axis=1).mean() * np.linalg.norm(items, axis=1).mean()
    unit = items / np.maximum(np.linalg.norm(items, axis=1, keepdims=True), 1e-12)
    expected = sorted_whole(unit @ unit.T + case.W / length, np.eye(60, dtype=bool), np.ones(60, bool), 10)
    best, left = case.ranking.similarity("item").nearest(np.arange(60), 10)
    assert left == 59
    np.testing.assert_array_equal(best.item_idx, expected.item_idx)
    np.testing.assert_allclose(best.scores, expected.scores, rtol=1e-5, atol=1e-6)
    alone, _ = case.ranking.similarity("item").nearest(np.array([7, 3]), 10)
    np.testing.assert_array_equal(alone.scores, best.scores[[7, 3]])


def test_similar_users_are_those_of_the_embeddings() -> None:
    case = large_case(n_users=20, n_items=60, dim=4)
    best = case.ranking.similarity("user").nearest(np.arange(20), 5)[0]
    expected = case.ranking.base.similarity("user").nearest(np.arange(20), 5)[0]
    np.testing.assert_array_equal(best.item_idx, expected.item_idx)
    np.testing.assert_array_equal(best.scores, expected.scores)


def test_without_weights_the_ranking_is_that_of_the_embeddings() -> None:
    case = large_case()
    users = np.arange(len(case.users))
    blend = Blend(Embeddings(case.users, case.items), case.pairs, sparse(np.zeros_like(case.W)))
    own = top_k(blend.index(), blend.queries(users), case.pairs, 20)
    plain = top_k(blend.base.index(), blend.base.queries(users), case.pairs, 20)
    np.testing.assert_array_equal(own.item_idx, plain.item_idx)
    np.testing.assert_array_equal(own.scores, plain.scores)


@pytest.mark.parametrize(("weights", "pairs"), [((3, 3), 4), ((4, 3), 4), ((3, 4), 4), ((5, 5), 4), ((4, 4), 5)])
def test_weights_and_pairs_of_other_items_are_refused(weights: tuple[int, int], pairs: int) -> None:
    base: Embeddings[Any] = Embeddings(np.zeros((2, 1), np.float32), np.zeros((4, 1), np.float32))
    with pytest.raises(DataError, match="but 4 items have embeddings; give weights between these items") as caught:
        Blend(base, Pairs.empty(2, pairs), sparse(np.ones(weights, dtype=np.float32)))
    assert "\n" not in str(caught.value)


def test_rule_and_arrays_are_those_of_both_parts() -> None:
    case = large_case(n_users=3, n_items=8)
    ranking = case.ranking
    rule = ranking.user_rule
    assert isinstance(rule, BlendedRule)
    assert rule.weights is ranking.item_weights is ranking.weights
    assert embeddings_rule(rule) == rule.base == ConstantRow()
    assert case.on_torch.user_rule is None  # nothing can be folded in without the rule of the embeddings
    arrays = ranking.arrays()
    expected = {"users", "items", *(f"blend_{one}" for one in ("indptr", "indices", "values"))}
    assert set(arrays) == expected | {"blend_user_indptr", "blend_user_items"}
    again = case.on_torch.to_numpy()
    assert all(np.array_equal(array, arrays[name]) for name, array in again.arrays().items())


def test_a_user_without_items_has_the_scores_of_the_embeddings() -> None:
    case = large_case()
    queries = case.ranking.queries(np.array([0]))
    assert isinstance(queries, BlendQueries)
    assert (len(queries.items[0]), queries.scale.tolist()) == (0, [0.0])
    products = case.ranking.base.pair_scores(np.zeros(700, dtype=np.int64), np.arange(700))
    np.testing.assert_array_equal(case.ranking.pair_scores(np.zeros(700, dtype=np.int64), np.arange(700)), products)
