"""The choice of item weights for a composed ranking, against dense arrays and a brute-force search."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from dgcf.config import configure
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.models import CATALOG
from dgcf.models.ease import EASEConfig
from dgcf.ranking.blend import Blend
from dgcf.ranking.rankings import Embeddings
from dgcf.ranking.weights import DenseWeights, SparseWeights
from dgcf.train import resolve
from dgcf.train.blend import BlendConfig, Blender, Blending, BlendInterrupted, fit, parts
from dgcf.train.blend.result import settings_of
from tests.ranking.test_blend import pairs_of, sparse

Dense = NDArray[np.float64]
METRIC = "ndcg@5"


@pytest.fixture(scope="module")
def embeddings(dataset: Dataset) -> Embeddings[Tensor]:
    """Rows that know the planted groups a little, so that item weights can help, and not without end."""
    rng = np.random.default_rng(5)
    groups = np.eye(4)
    users = groups[np.arange(dataset.n_users) % 4] + 0.7 * rng.normal(size=(dataset.n_users, 4))
    items = groups[np.arange(dataset.n_items) % 4] + 0.7 * rng.normal(size=(dataset.n_items, 4))
    return Embeddings(torch.tensor(users, dtype=torch.float32), torch.tensor(items, dtype=torch.float32))


def blender(dataset: Dataset, validated: bool = True, **settings: Any) -> Blender:
    validate = validator(dataset, METRIC) if validated else None
    return Blender(BlendConfig(**settings), dataset.train, METRIC, validate)


def dense(weights: SparseWeights) -> Dense:
    W = np.zeros(weights.shape)
    for row, (first, last) in enumerate(itertools.pairwise(weights.indptr)):
        W[row, weights.indices[first:last]] = weights.values[first:last]
    return W


def having(pairs: Pairs) -> Dense:
    R = np.zeros((pairs.n_users, pairs.n_items))
    R[pairs.user_idx, pairs.indices] = 1.0
    return R


def sums(pairs: Pairs, W: Dense) -> Dense:
    """``d_u^-½ Σ_j W[j, i]``."""
    R = having(pairs)
    degrees = R.sum(1)
    return np.asarray(np.divide(1.0, np.sqrt(degrees), out=np.zeros(len(R)), where=degrees > 0)[:, None] * (R @ W))


def products(rows: Embeddings[Tensor]) -> Dense:
    return np.asarray(rows.users.double().numpy() @ rows.items.double().numpy().T)


def spread(scores: Dense, pairs: Pairs) -> float:
    """The mean over users with training pairs of the deviation over items."""
    return float(scores[pairs.user_degrees > 0].std(axis=1).mean())


def ndcg_5(scores: Dense, dataset: Dataset) -> float:
    """The validation metric by plain loops."""
    values = []
    for user in range(dataset.n_users):
        wanted, known = set(dataset.validation[user].tolist()), set(dataset.train[user].tolist())
        if not wanted or not known:
            continue
        ranked = [item for item in np.argsort(-scores[user], kind="stable").tolist() if item not in known][:5]
        gain = sum(1 / math.log2(place + 2) for place, item in enumerate(ranked) if item in wanted)
        values.append(gain / sum(1 / math.log2(place + 2) for place in range(min(5, len(wanted)))))
    return float(np.mean(values))


def weightings(blending: Blending) -> dict[tuple[float, ...], float]:
    """The weightings that were tried, with their metric."""
    return {tuple(point["weights"]): point[METRIC] for point in blending.curve if "weights" in point}


# -- the choice of weights ------------------------------------------------------------------------------------------


def test_one_part_takes_the_best_weight_of_the_grid(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    """Every weight of the grid is recorded, with the metric that dense scores give by plain loops."""
    blending = blender(dataset, blend="ease(l2=20)").fit(embeddings)
    own, W = products(embeddings), ease(dataset.train, 20.0)
    added = sums(dataset.train, W)
    unit = spread(own, dataset.train) / spread(added, dataset.train)
    expected = {(weight,): ndcg_5(own + weight * unit * added, dataset) for weight in fit.GRID}
    assert weightings(blending) == pytest.approx(expected)
    best = max(expected.values())
    assert best > expected[0.0,] + 0.01
    (part,) = blending.parts
    assert part["weight"] == next(weight for (weight,), value in expected.items() if value == pytest.approx(best))
    assert part == {"part": "ease(l2=20)", "weight": part["weight"], "factor": pytest.approx(part["weight"] * unit)}
    assert blending.weights is not None
    np.testing.assert_allclose(dense(blending.weights), part["factor"] * W, rtol=1e-5, atol=1e-7)
    assert blending.validation[METRIC] == pytest.approx(best)
    assert blending.left_out == ()


def ease(pairs: Pairs, l2: float) -> Dense:
    """The closed form of EASE."""
    R = having(pairs)
    P = np.linalg.inv(R.T @ R + l2 * np.eye(R.shape[1]))
    W = -P / np.diag(P)
    np.fill_diagonal(W, 0.0)
    return np.asarray(W)


def test_the_metric_of_two_parts_never_decreases_and_no_single_change_is_better(
    dataset: Dataset, embeddings: Embeddings[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "GRID", (0.0, 0.3, 1.0, 3.0))
    one = blender(dataset, blend="gf-cf(rank=3)+ease(l2=20)")
    blending = one.fit(embeddings)
    own, added = products(embeddings), [sums(dataset.train, dense(part.weights)) for part in one.parts[0]]
    units = [spread(own, dataset.train) / spread(term, dataset.train) for term in added]
    brute = {
        (a, b): ndcg_5(own + a * units[0] * added[0] + b * units[1] * added[1], dataset)
        for a, b in itertools.product(fit.GRID, fit.GRID)
    }
    tried = weightings(blending)
    assert next(iter(tried)) == (0.0, 0.0)
    assert tried == pytest.approx({weights: brute[weights] for weights in tried})
    chosen = dict.fromkeys(("gf-cf(rank=3)", "ease(l2=20)"), 0.0) | {p["part"]: p["weight"] for p in blending.parts}
    a, b = chosen.values()
    assert brute[a, b] == pytest.approx(max(tried.values()))
    assert brute[a, b] == pytest.approx(max(brute.values()))  # no rule, but true of this data
    assert brute[a, b] > brute[0.0, 0.0] + 0.01
    assert blending.validation[METRIC] == pytest.approx(brute[a, b])


@dataclass
class Table:
    """A metric for each weighting: it is asked for a mixture, whose weights follow from its factors, and at the end."""

    values: Mapping[tuple[float, ...], float]
    units: tuple[float, ...]

    def __call__(self, ranking: Any) -> dict[str, float]:
        if isinstance(ranking, Embeddings | Blend):
            return {}
        weights = tuple(
            min(fit.GRID, key=lambda w: abs(w * unit - factor))
            for unit, factor in zip(self.units, ranking.factors, strict=True)
        )
        return {METRIC: self.values[weights]}


@pytest.fixture(scope="module")
def two_parts(dataset: Dataset, embeddings: Embeddings[Tensor]) -> Blender:
    """A blender of two parts, solved once."""
    one = blender(dataset, False, blend="gf-cf(rank=3)+ease(l2=20)", blend_weights="1+1")
    assert len(one.parts[0]) == 2
    return one


def search(two_parts: Blender, rows: Embeddings[Tensor], values: Mapping[tuple[float, ...], float]) -> Blending:
    """Choose the weights by a table of the metric."""
    factors = [part["factor"] for part in two_parts.fit(rows).parts]
    one = replace(two_parts, config=BlendConfig(two_parts.config.blend), validate=Table(values, tuple(factors)))
    one.__dict__["parts"] = two_parts.parts
    return one.fit(rows)


SMALL_GRID = (0.0, 0.5, 1.0, 2.0)


@given(st.lists(st.integers(0, 3), min_size=16, max_size=16))
def test_search_ends_where_no_part_can_do_better_or_as_well_with_less(
    two_parts: Blender, embeddings: Embeddings[Tensor], numbers: list[int]
) -> None:
    values = {key: float(n) for key, n in zip(itertools.product(SMALL_GRID, SMALL_GRID), numbers, strict=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "GRID", SMALL_GRID)
        blending = search(two_parts, embeddings, values)
    tried = weightings(blending)
    assert tried == {weights: values[weights] for weights in tried}
    assert len(tried) == len(blending.curve)  # none twice
    weight_of = {part["part"]: part["weight"] for part in blending.parts}
    a, b = (weight_of.get(name, 0.0) for name in two_parts.config.blend.split("+"))
    assert values[a, b] == max(tried.values())
    for other in SMALL_GRID:
        for now, place in (((other, b), 0), ((a, other), 1)):
            assert values[now] < values[a, b] or (values[now] == values[a, b] and now[place] >= (a, b)[place])


@given(
    st.lists(st.integers(-9, 9), min_size=4, max_size=4, unique=True),
    st.lists(st.integers(-9, 9), min_size=4, max_size=4, unique=True),
)
def test_search_finds_the_best_of_all_where_parts_do_not_interact(
    two_parts: Blender, embeddings: Embeddings[Tensor], first: list[int], second: list[int]
) -> None:
    values = {
        (a, b): float(x + y)
        for (a, x), (b, y) in itertools.product(
            zip(SMALL_GRID, first, strict=True), zip(SMALL_GRID, second, strict=True)
        )
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "GRID", SMALL_GRID)
        blending = search(two_parts, embeddings, values)
    weight_of = {part["part"]: part["weight"] for part in blending.parts}
    chosen = tuple(weight_of.get(name, 0.0) for name in two_parts.config.blend.split("+"))
    assert chosen == max(values, key=lambda weights: values[weights])


def test_item_weights_that_do_not_help_are_left_out(two_parts: Blender, embeddings: Embeddings[Tensor]) -> None:
    """Of equal weightings the simpler is taken, and the ranking is then that of the embeddings."""
    blending = search(two_parts, embeddings, dict.fromkeys(itertools.product(fit.GRID, fit.GRID), 0.5))
    assert (blending.weights, blending.parts, blending.text) == (None, (), "none")
    assert len(weightings(blending)) == 2 * len(fit.GRID) - 1
    assert blending.compose(embeddings, two_parts.pairs) is embeddings
    assert blending.settings() == {"blend": "none", "blend_weights": "auto"}
    assert blending.tensors() == {}


def test_without_validation_the_weights_are_the_stated_ones(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    """Of several candidates for a part, the first; nothing is recorded, because nothing was tried."""
    unwatched = replace(dataset, validation=Pairs.empty(dataset.n_users, dataset.n_items))
    for blend, stated in (("auto", (0.5, 0.35)), ("ease", (0.35,)), ("item-knn+ease", (0.5, 0.35)), ("bspm", (0.5,))):
        blending = blender(unwatched, False, blend=blend).fit(embeddings)
        assert tuple(part["weight"] for part in blending.parts) == stated
        assert (blending.curve, blending.validation) == ((), {})
        assert blending.weights is not None
        if blend == "auto":
            names = [str(parts.candidates(part, dataset.train)[0]) for part in BlendConfig("auto").parts]
            assert [part["part"] for part in blending.parts] == names


def test_given_weights_are_used_and_not_searched(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    blending = blender(dataset, blend="gf-cf(rank=3)+ease(l2=20)", blend_weights="0+0.7").fit(embeddings)
    assert [(part["part"], part["weight"]) for part in blending.parts] == [("ease(l2=20)", 0.7)]
    assert weightings(blending) == {}
    assert blending.text == "0.7 × ease(l2=20)"
    assert set(blending.validation) >= {METRIC}


def test_weights_are_in_units_of_the_spread_of_the_embeddings(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    """Rows 30 times as long: the same weights are chosen, and what they add is 900 times as large."""
    one = blender(dataset, blend="gf-cf(rank=3)+ease(l2=20)")
    blending = one.fit(embeddings)
    longer = one.fit(Embeddings(30 * embeddings.users, 30 * embeddings.items))
    assert [part["weight"] for part in longer.parts] == [part["weight"] for part in blending.parts]
    assert blending.parts
    for part, other in zip(blending.parts, longer.parts, strict=True):
        assert other["factor"] == pytest.approx(900 * part["factor"], rel=1e-4)
    assert weightings(longer) == pytest.approx(weightings(blending))


def test_spread_is_taken_over_an_even_sample_of_users_with_pairs(
    dataset: Dataset, embeddings: Embeddings[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "_SPREAD_USERS", 4)
    R = having(dataset.train) > 0
    R[[0, 7]] = False
    pairs = pairs_of(R)
    (part,) = (
        blender(replace(dataset, train=pairs), False, blend="ease(l2=20)", blend_weights=1.0).fit(embeddings).parts
    )
    sample = [user for user in range(60) if user not in (0, 7)][:: 58 // 4][:4]
    own, added = products(embeddings)[sample], sums(pairs, ease(pairs, 20.0))[sample]
    assert part["factor"] == pytest.approx(own.std(1).mean() / added.std(1).mean(), rel=1e-5)


def test_scores_of_parts_are_cached_by_all_users_of_a_block(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    """Blocks that begin with one user and have one length are not mixed up; the cache changes no bit."""
    mixture = fit._Mixture(embeddings, dataset.train, [sparse(ease(dataset.train, 20.0).astype(np.float32))])
    uncached = fit._Mixture(embeddings, dataset.train, mixture.weights)
    uncached.cached, mixture.factors, uncached.factors = False, [0.8], [0.8]
    for _ in range(2):
        for users in (torch.tensor([0, 1, 2]), torch.tensor([0, 5, 9]), torch.tensor([], dtype=torch.int64)):
            assert torch.equal(mixture.scores(users), uncached.scores(users))
    assert mixture.cached


def test_scores_that_do_not_fit_are_computed_again(
    dataset: Dataset, embeddings: Embeddings[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = blender(dataset, blend="ease(l2=20)")
    blending = one.fit(embeddings)
    monkeypatch.setattr(fit, "_CACHE_BYTES", 4 * 60 * 48 * 2 - 1)
    again = one.fit(embeddings)
    assert again.to_dict() == blending.to_dict()
    assert not fit._Mixture(embeddings, dataset.train, [part.weights for part in one.parts[0]]).cached


def test_interruption_stops_the_choice(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    answers = iter([False] * 5 + [True])
    one = replace(blender(dataset, blend="ease(l2=20)"), interrupted=lambda: next(answers))
    with pytest.raises(BlendInterrupted):
        one.fit(embeddings)
    assert next(answers, None) is None


# -- the parts ------------------------------------------------------------------------------------------------------


def test_auto_takes_the_candidate_of_each_part_that_ranks_best_alone(
    dataset: Dataset, embeddings: Embeddings[Tensor]
) -> None:
    one = blender(dataset, blend="auto")
    blending = one.fit(embeddings)
    alone = {point["part"]: point[METRIC] for point in blending.curve if "part" in point}
    filters, eases = (
        [str(choice) for choice in parts.candidates(part, dataset.train)] for part in BlendConfig("auto").parts
    )
    assert list(alone) == filters + eases
    assert (len(filters), len(eases)) == (5, 6)
    expected = [max(names, key=lambda name: alone[name]) for names in (filters, eases)]
    assert [str(part.part) for part in one.parts[0]] == expected
    for part in one.parts[0]:
        W = dense(part.weights)
        assert alone[str(part.part)] == pytest.approx(ndcg_5(having(dataset.train) @ W, dataset))
    assert {part["part"] for part in blending.parts} <= set(expected)
    assert blending.curve[0]["part"] == filters[0]  # before the weightings


def test_parts_are_solved_once_for_several_seeds(
    dataset: Dataset, embeddings: Embeddings[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = blender(dataset, blend="auto")
    first = one.fit(embeddings)
    monkeypatch.setattr(fit, "solve_part", None)
    assert one.fit(embeddings).to_dict() == first.to_dict()


def test_candidates_are_fewer_on_larger_data(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first filter is always one; EASE has no candidate where it would take too long."""
    filters, ease_part = BlendConfig("auto").parts
    every = parts.candidates(filters, dataset.train)
    monkeypatch.setattr(parts, "_FILTER_WORK", 2.5 * parts._filter_work(dataset.train))
    assert parts.candidates(filters, dataset.train) == every[:2]
    monkeypatch.setattr(parts, "_FILTER_WORK", 0.0)
    assert parts.candidates(filters, dataset.train) == every[:1]
    monkeypatch.setattr(parts, "_EASE_WORK", 3.5 * 48**3)
    assert [part.settings for part in parts.candidates(ease_part, dataset.train)] == [
        (("l2", l2),) for l2 in (200.0, 100.0, 400.0)
    ]
    monkeypatch.setattr(parts, "_EASE_WORK", 48.0**3 - 1)
    assert parts.candidates(ease_part, dataset.train) == []


def test_auto_leaves_out_ease_where_it_takes_too_long(
    dataset: Dataset, embeddings: Embeddings[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, it is used all the same."""
    monkeypatch.setattr(parts, "_EASE_WORK", 0.0)
    blending = blender(dataset, blend="auto").fit(embeddings)
    assert blending.left_out == ({"part": "ease", "reason": "it takes more than seconds with 48 items"},)
    assert {point["part"].partition("(")[0] for point in blending.curve if "part" in point} <= {"bspm", "chebycf"}
    assert all(len(weights) == 1 for weights in weightings(blending))
    named = blender(dataset, blend="ease", blend_weights=1.0).fit(embeddings)
    assert [part["part"] for part in named.parts] == ["ease"]
    assert named.left_out == ()


def test_auto_leaves_out_ease_where_it_does_not_fit_into_memory(
    dataset: Dataset, embeddings: Embeddings[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, it is refused in one sentence."""
    monkeypatch.setattr(EASEConfig, "memory", lambda *_: 2**60)
    blending = blender(dataset, blend="auto").fit(embeddings)
    (left,) = blending.left_out
    assert left["part"] == "ease"
    assert "model ease needs about" in left["reason"]
    with pytest.raises(ConfigError, match=r"^model ease needs about .* GB of memory") as caught:
        blender(dataset, blend="ease").fit(embeddings)
    assert "\n" not in str(caught.value)


def test_an_item_without_pairs_keeps_the_scores_of_the_embeddings(
    dataset: Dataset, embeddings: Embeddings[Tensor]
) -> None:
    R = having(dataset.train) > 0
    R[:, 9], R[3] = False, False
    pairs = pairs_of(R)
    blending = blender(replace(dataset, train=pairs), False, blend="auto").fit(embeddings)
    assert len(blending.parts) == 2
    ranking = blending.compose(embeddings, pairs)
    assert isinstance(ranking, Blend)
    W = dense(ranking.weights)
    assert not W[9].any()
    assert not W[:, 9].any()
    scores = ranking.scores(torch.arange(60)).double().numpy()
    np.testing.assert_allclose(scores[:, 9], products(embeddings)[:, 9], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scores[3], products(embeddings)[3], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scores, products(embeddings) + sums(pairs, W), rtol=1e-5, atol=1e-5)


# -- bounded rows ---------------------------------------------------------------------------------------------------

matrices = st.tuples(st.integers(1, 9), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.4, 1.0]))


def matrix(size: int, seed: int, share: float) -> NDArray[np.float32]:
    """Multiples of ¼, of which many are equal."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-3, 4, (size, size)) / 4 * (rng.random((size, size)) < share)).astype(np.float32)


def largest(W: NDArray[Any], n: int) -> Dense:
    """The n entries of largest magnitude of each row, of equal ones those of smaller columns, and zeros elsewhere."""
    kept = np.zeros(W.shape)
    for row, values in enumerate(W):
        columns = np.argsort(-np.abs(values), kind="stable")[:n]
        kept[row, columns] = values[columns]
    return kept


@given(matrices, st.integers(1, 10), st.sampled_from([1, 5, 20, 1 << 24]))
def test_truncation_keeps_the_largest_entries_in_blocks_of_any_size(
    drawn: tuple[int, int, float], n: int, entries: int
) -> None:
    W = matrix(*drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_BLOCK_ENTRIES", entries)
        for weights in (DenseWeights(W), sparse(W)):
            kept = parts.truncate(weights, n)
            np.testing.assert_array_equal(dense(kept), largest(W, n))
            assert (kept.indptr.dtype, kept.indices.dtype, kept.values.dtype) == (np.int64, np.int32, np.float32)
            assert kept.values.all()
            Pairs.from_arrays("", lambda name, _, held=kept: getattr(held, name), *W.shape)  # the columns ascend


@given(matrices, st.integers(0, 2**32 - 1), st.integers(1, 10))
def test_combination_is_the_dense_sum_with_its_largest_entries(
    drawn: tuple[int, int, float], seed: int, n: int
) -> None:
    """With factors that are powers of two, to the bit; two entries that cancel are no entry."""
    size, first, share = drawn
    V, W = matrix(size, first, share), matrix(size, seed, share)
    combined = parts.combine([sparse(V), sparse(W)], [2.0, 0.5], n)
    np.testing.assert_array_equal(dense(combined), largest(2.0 * V + 0.5 * W, n))
    whole = parts.combine([sparse(V), sparse(W)], [2.0, 0.5], size)
    np.testing.assert_array_equal(dense(whole), 2.0 * V + 0.5 * W)
    assert len(parts.combine([sparse(V), sparse(V)], [1.0, -1.0], n).values) == 0


@pytest.mark.parametrize("name", [name for name, entry in CATALOG.items() if not entry.has_embeddings])
def test_a_part_has_the_weights_of_its_model(name: str, dataset: Dataset) -> None:
    """With as many neighbours as there are items, all of them; with fewer, the largest."""
    (part,) = BlendConfig(name).parts
    settings: dict[str, Any] = {"neighbours": 48} if "neighbours" in CATALOG[name].keys else {}
    model = CATALOG[name].build(60, 48, configure(CATALOG[name].config, settings, name))
    model.solve(dataset.train, 0)  # type: ignore[union-attr]
    scores = np.asarray(model.ranking(dataset.train).scores(torch.arange(60)))  # type: ignore[union-attr]
    whole = parts.solve_part(part, dataset.train, 48, "cpu")
    np.testing.assert_allclose(having(dataset.train) @ dense(whole), scores, rtol=1e-6, atol=1e-6)
    few = dense(parts.solve_part(part, dataset.train, 5, "cpu"))
    assert ((few != 0).sum(1) <= 5).all()
    if name != "item-knn":  # its neighbours are those of a column
        np.testing.assert_allclose(few, largest(dense(whole), 5), rtol=1e-6, atol=1e-7)


# -- settings and records -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blend_neighbours": 0}, "blend_neighbours is 0, expected from 1 to 100000"),
        ({"blend_neighbours": 100_001}, "blend_neighbours is 100001, expected from 1 to 100000"),
        ({"blend_neighbours": 1.5}, "blend_neighbours of the composed ranking is 1.5"),
        ({"blend": "filter", "blend_weights": -0.1}, "blend_weights is -0.1, expected auto, or numbers from 0 to 1e6"),
        ({"blend": "filter", "blend_weights": float("nan")}, "blend_weights is nan, expected auto, or numbers from 0"),
        ({"blend": "filter", "blend_weights": float("inf")}, "blend_weights is inf, expected auto, or numbers from 0"),
        ({"blend": "filter+ease", "blend_weights": "0.5+nan"}, "blend_weights is '0.5+nan', expected auto, or numbers"),
        ({"blend": "filter", "blend_weights": "much"}, "blend_weights is 'much', expected auto, or numbers from 0"),
        ({"blend": "filter", "blend_weights": ""}, "blend_weights is '', expected auto, or numbers from 0"),
        (
            {"blend": "filter+ease", "blend_weights": 0.5},
            "blend_weights has 1 numbers, but blend has 2 parts; give",
        ),
        ({"blend": "ease", "blend_weights": "1+2"}, "blend_weights has 2 numbers, but blend has 1 parts; give one for"),
        ({"blend": "none", "blend_weights": "1"}, "blend_weights has 1 numbers, but blend has 0 parts"),
        ({"blend": "auto", "blend_weights": "1+2"}, "blend is auto, so its weights are chosen too; name the parts"),
        ({"blend": "eese"}, "blend has the part 'eese'; did you mean 'ease'?"),
        ({"blend": "filter+"}, "blend has the part '', expected a name, or a name with settings such as ease(l2=200)"),
        ({"blend": "ease(l2=200"}, "blend has the part 'ease(l2=200', expected a name, or a name with settings"),
        ({"blend": "ease(l2)"}, "setting 'l2' has no key and value"),
        ({"blend": "ease(l3=200)"}, "ease in blend has no setting 'l3'; did you mean 'l2'?"),
        ({"blend": "ease(l2=nan)"}, "l2 is nan, expected above 0"),
        ({"blend": "ease(l2=[1])"}, "l2 of a part of blend is '[1]', expected a number or a word"),
        ({"blend": "filter(rank=3)"}, "blend has settings for filter, which is one of several; name it, such as bspm"),
        ({"blend": "bpr-mf"}, "blend has the part 'bpr-mf'; it has embeddings and no weights between items"),
        ({"blend": 3}, "blend of the composed ranking is 3"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused_in_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("dgcf", preset="plain", settings=settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_model_without_embeddings_is_not_composed() -> None:
    for name, entry in CATALOG.items():
        if not entry.has_embeddings:
            with pytest.raises(ConfigError, match=rf"model {name} ranks by weights between items, .* blend={name}"):
                resolve(name, settings={"blend": "filter"})
            assert not resolve(name).blend.parts


def test_parts_are_parsed_with_their_settings() -> None:
    config = BlendConfig("bspm(rank=64, sharpening=2.5) + ease(l2=1e+2)+item-knn")
    assert [str(part) for part in config.parts] == ["bspm(rank=64,sharpening=2.5)", "ease(l2=100.0)", "item-knn"]
    again = BlendConfig("+".join(map(str, config.parts)))
    assert again.parts == config.parts


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=3))
def test_recorded_weights_are_settings_again(numbers: list[float]) -> None:
    names = ["ease(l2=20.0)", "bspm(rank=5)", "item-knn"][: len(numbers)]
    recorded = [{"part": name, "weight": number} for name, number in zip(names, numbers, strict=True)]
    config = BlendConfig(**settings_of(recorded))
    assert config.numbers == tuple(numbers)
    assert [str(part) for part in config.parts] == names


def test_the_settings_of_a_choice_give_it_again(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    blending = blender(dataset, blend="auto").fit(embeddings)
    again = blender(dataset, False, **blending.settings()).fit(embeddings)
    assert again.parts == blending.parts
    assert again.weights is not None
    assert blending.weights is not None
    for one, other in zip(again.weights.arrays().values(), blending.weights.arrays().values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_choice_survives_its_record(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    one = blender(dataset, blend="auto")
    blending = one.fit(embeddings)
    again = Blending.of(json.loads(json.dumps(blending.to_dict())), stored(blending), 48)
    assert again.to_dict() == blending.to_dict()
    assert again.tensors().keys() == blending.tensors().keys()
    assert all(torch.equal(again.tensors()[name], tensor) for name, tensor in blending.tensors().items())
    empty = Blending(None)
    assert Blending.of(empty.to_dict(), {}, 48) == empty


def stored(blending: Blending) -> dict[str, Tensor]:
    return {name.removeprefix("blend."): tensor for name, tensor in blending.tensors().items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda t: {**t, "values": t["values"][:-1]}, "another number of values than of columns", id="values-cut"
        ),
        pytest.param(
            lambda t: {**t, "values": t["values"] * torch.nan}, "a number that is not finite", id="values-nan"
        ),
        pytest.param(lambda t: {**t, "values": t["values"].double()}, "no array values of float32", id="values-double"),
        pytest.param(lambda t: {**t, "values": t["values"][None]}, "no array values of float32", id="values-nested"),
        pytest.param(lambda t: {**t, "indices": t["indices"].long()}, "no array indices of int32", id="indices-long"),
        pytest.param(
            lambda t: {**t, "indices": t["indices"] + 47}, "indices are not item indices below 48", id="indices-large"
        ),
        pytest.param(
            lambda t: {**t, "indices": t["indices"] - 48},
            "indices are not item indices below 48",
            id="indices-negative",
        ),
        pytest.param(
            lambda t: {**t, "indices": t["indices"].flip(0)}, "indices are not ascending", id="indices-descending"
        ),
        pytest.param(
            lambda t: {**t, "indptr": t["indptr"][:-1]}, "indptr does not give each row a place", id="indptr-cut"
        ),
        pytest.param(
            lambda t: {**t, "indptr": t["indptr"] * 0}, "indptr does not give each row a place", id="indptr-zero"
        ),
        pytest.param(
            lambda t: {name: t[name] for name in ("indptr", "indices")},
            "no array values of float32",
            id="values-missing",
        ),
    ],
)
def test_weights_of_another_form_are_refused(
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    message: str,
    dataset: Dataset,
    embeddings: Embeddings[Tensor],
) -> None:
    blending = blender(dataset, blend="ease(l2=20)", blend_weights=1.0).fit(embeddings)
    with pytest.raises(ValueError, match=message):
        Blending.of(blending.to_dict(), change(stored(blending)), 48)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": 3}, "parts is 3, expected a list"),
        ({"parts": [{"part": "ease", "weight": "much", "factor": 1.0}]}, 'weight is "much", expected a number'),
        ({"parts": [{"part": "ease"}]}, "is missing"),
        ({"curve": {}}, "curve is an object, expected a list"),
        ({"validation": []}, "validation is a list, expected an object"),
        ({"left_out": ["ease"]}, "expected an object"),
    ],
    ids=str,
)
def test_records_of_another_form_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Blending.of({**Blending(None).to_dict(), **change}, {}, 48)
